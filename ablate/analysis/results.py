"""Read the results of a study from the files of its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.config import cost
from ablate.config.identity import former_decodings
from ablate.errors import StoreError
from ablate.stats.metrics import PPL_CHAR, Metric
from ablate.store import Results, RunFiles, RunFolder, State, none_if_unreadable, score_cache
from ablate.store.files import verify
from ablate.store.metrics_log import read_metrics
from ablate.store.records import Decoding, MetricsLine, Provenance, Result, Score
from ablate.store.status import fault_in_result
from ablate.study import Row, Run, Runs, Study
from ablate.study.choice import AWAITS
from ablate.study.metrics import compares_vocabularies


@dataclass(frozen=True)
class RunResult:
    """The result of a run for one row, read from the run's files.

    row: the row.
    run: the run.
    state: state of the run in the decoding of the row.
    params: number of trained parameters; in closed form until the run has counted them.
    note: reason why the run has no scores; empty if it is done, or is pending and not trained.
    lacks_decoding: whether the run is trained but not yet decoded for the row.
    former_default: setting `NAME=VALUE` with a default of an earlier version, if the run lacks the
        row's decoding but has scores with this setting; else empty.
    result: record of the result; None unless the run is done or diverged.
    decoding: record of the row's decoding; None unless the run is done.
    scores: scores by metric, with scores on resampled test sets; empty unless the run is done.
    provenance: record of the machine and the code; None if it is missing or cannot be read.
    damage: a line for each file whose scores are lost because it is damaged or cannot be read, with
        the remedy.
    has_predictions: whether the predictions are stored; False in an unpacked archive of records.
    """

    row: Row
    run: Run
    state: State
    params: int
    note: str = ""
    lacks_decoding: bool = False
    former_default: str = ""
    result: Result | None = None
    decoding: Decoding | None = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    provenance: Provenance | None = None
    damage: tuple[str, ...] = ()
    has_predictions: bool = True

    @property
    def steps(self) -> int | None:
        """Number of optimizer steps made; None until the run has ended."""
        return self.result.steps if self.result else None

    @property
    def seconds(self) -> float | None:
        """Seconds of training, with its evaluations; None if the run diverged or is not done."""
        if self.result is None or self.decoding is None:
            return None
        return self.result.seconds or None

    @property
    def tokens_per_second(self) -> float | None:
        """Number of training tokens divided by `seconds`; None if either is unknown."""
        if self.result is None or self.result.tokens is None or not self.seconds:
            return None
        return self.result.tokens / self.seconds


def measured_metrics(study: Study) -> tuple[Metric, ...]:
    """The metrics in which the runs of a study have scores: the metrics that need no predictions,
    the task's default metrics, and the metrics of the study. Perplexity per character is left out
    if it cannot compare the vocabularies of the rows.
    """
    names = (*study.task.default_metrics, *study.metrics.shown)
    named = [study.task.metrics[name] for name in names]
    metrics = list(dict.fromkeys((*study.task.model_metrics, *named)))
    has_vocabularies = len({row.config.vocab_size for row in study.whole.rows}) > 1
    if has_vocabularies and not compares_vocabularies(PPL_CHAR, study.data):
        metrics = [metric for metric in metrics if metric != PPL_CHAR]
    return tuple(metrics)


def read_runs(planned: Runs, results: Results) -> list[RunResult]:
    """Read the result of every run of every row, base first, and each row in the order of seeds."""
    metrics = measured_metrics(planned.study)
    runs = []
    for row in planned.rows:
        params = cost.parameters(row.config, planned.data_of(row).vocab_size)
        for run in planned.of(row):
            runs.append(_read_run(row, run, params, results.run(run.id), metrics))
    return runs


def _read_run(
    row: Row, run: Run, params: int, folder: RunFolder, metrics: Sequence[Metric]
) -> RunResult:
    """Read the result of a run for a row. `params` is the closed form of the parameters."""
    if run.awaits_choice:
        return RunResult(row, run, "pending", params, AWAITS)
    files = RunFiles.read(folder)
    state = files.state(row.decoding)
    result = files.result
    if state not in ("done", "diverged") or result is None:
        if state == "pending":  # then the result is not damaged
            if result is None:
                return RunResult(row, run, state, params)
            assert row.evaluated is not None  # a tuning run is pending only without a result
            former = ""
            for setting, id in former_decodings(row.config, row.evaluated).items():
                if id in result.decodings:
                    former = setting
                    break
            note = "trained, still to be decoded"
            return RunResult(
                row, run, state, params, note, lacks_decoding=True, former_default=former
            )
        if damaged := fault_in_result(folder):
            line = str(damaged)
            return RunResult(row, run, state, params, line, damage=(line,))
        progress = none_if_unreadable(folder.read_progress)
        note = f"{state} at step {progress.step}" if progress and progress.step else state
        return RunResult(row, run, state, params, note)
    common = RunResult(
        row,
        run,
        state,
        result.params,
        result=result,
        provenance=none_if_unreadable(folder.read_provenance),
    )
    if state == "diverged":
        return replace(common, note=f"diverged at step {result.steps}: {result.reason}")
    decoding = result.decodings[row.decoding]
    scores: dict[str, Score] = {}
    damage: tuple[str, ...] = ()
    try:
        measured = score_cache.read_scores(folder, row.decoding, decoding)
    except StoreError as error:
        measured = decoding.scores
        damage = (str(error),)
    for metric in metrics:
        score = measured.get(metric.name)
        if score is not None and metric.is_log and score.value <= 0:
            problem = f"{metric.name} is {score.value}; on a log scale it must be above 0"
            damage = (*damage, f"{folder.result}: {problem}")
        elif score is not None:
            scores[metric.name] = score
    return replace(
        common,
        decoding=decoding,
        scores=scores,
        damage=damage,
        has_predictions=not score_cache.is_archived(folder, row.decoding),
    )


def faults_of(run: RunResult, results: Results) -> Iterator[str]:
    """Yield a line for each file of a run, apart from its scores, that is damaged or cannot be
    read, with the remedy. Each file is compared with its hash, which takes time.
    """
    if run.result is None:
        return
    folder = results.run(run.run.id)
    decoding = run.row.decoding
    if decoding in run.result.decodings:
        decoded = run.result.decodings[decoding]
        damage = score_cache.fault_in_predictions(folder, decoding, decoded)
        if damage is not None:
            yield str(damage)
    try:
        verify(folder.metrics, run.result.metrics_sha256)
    except StoreError as error:
        yield (
            f"{error}; its learning curve is left out, until the run is trained again in another "
            f"--results"
        )
    if run.provenance is None:
        try:
            folder.read_provenance()
        except StoreError as error:
            yield f"{error}; its code and machine are left out"


def log_of(folder: RunFolder, result: Result | None) -> list[MetricsLine]:
    """Read the metrics log of a run.

    Raises:
        StoreError: the log cannot be read, or it was changed after the run had ended.
    """
    if result is not None:
        verify(folder.metrics, result.metrics_sha256)
    return read_metrics(folder.metrics)


def predictions_of(run: RunResult, results: Results) -> list[str]:
    """Read the predictions of a run in the decoding of its row; empty if they are missing or
    damaged.
    """
    if run.decoding is None:
        return []
    try:
        return score_cache.read_predictions(results.run(run.run.id), run.row.decoding, run.decoding)
    except StoreError:
        return []


def runs_by_row(runs: Iterable[RunResult]) -> Mapping[str, Sequence[RunResult]]:
    """The runs of each row, by the label of the row. Rows without runs have an empty list."""
    by_label: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        by_label[run.row.label].append(run)
    return by_label


def with_rows_of(planned: Runs, runs: Iterable[RunResult]) -> Runs:
    """The runs with the rows of these results, which may be more rows than `planned` has."""
    rows = {run.row.label: run.row for run in runs}
    return replace(planned, rows=tuple(rows.values()))


def runs_with_seeds(runs: Iterable[RunResult], seeds: Sequence[int]) -> list[RunResult]:
    """The runs whose seed is one of `seeds`."""
    return [run for run in runs if run.run.seed in seeds]


def vocabularies_of(planned: Runs) -> tuple[int, ...]:
    """The vocabulary sizes of the rows, sorted and without duplicates."""
    return tuple(sorted({planned.data_of(row).vocab_size for row in planned.rows}))


def signatures(planned: Runs, runs: Sequence[RunResult]) -> dict[str, list[str]]:
    """The signatures of each metric, from the study and from the scores of its runs; a single text
    if all agree.
    """
    study = planned.study
    vocabularies = vocabularies_of(planned)
    signatures_by_metric = {}
    for metric in measured_metrics(study):
        texts = {study.task.describe(metric, study.data, vocabularies)}
        for run in runs:
            if metric.name in run.scores:
                texts.add(run.scores[metric.name].signature)
        signatures_by_metric[metric.name] = sorted(filter(None, texts))
    return signatures_by_metric


def run_state(run: Run, results: Results) -> State:
    """The state of a run in all of its decodings together."""
    return RunFiles.read(results.run(run.id)).state_in(run.decodings)
