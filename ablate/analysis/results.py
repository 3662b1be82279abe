"""The results of a study, read once from the files of its runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.config import cost
from ablate.config.identity import former_decodings
from ablate.errors import StoreError
from ablate.stats.metrics import Metric
from ablate.store import Results, RunFiles, RunFolder, State, none_if_unreadable, score_cache
from ablate.store.files import verify
from ablate.store.records import (
    Decoding,
    MetricsLine,
    Provenance,
    Result,
    Score,
    read_metrics,
)
from ablate.store.status import fault_in_result
from ablate.study import Row, Run, Runs, Study
from ablate.study.choice import AWAITS


@dataclass(frozen=True)
class RunResult:
    """A run of one row, read from its files.

    params: trained parameters; in closed form until the run has counted them.
    note: why the run has no scores; empty if it is done, or pending and not trained.
    lacks_decoding: whether the run is trained, and still to be decoded.
    former_default: the setting with which a run without a decoding has scores, as `--set` takes it,
        if it is the default of an earlier version; otherwise empty.
    result: None unless the run is done or diverged.
    decoding: the row's evaluation of the run; None unless the run is done.
    scores: by metric, with those on the resampled test sets; empty unless the run is done.
    damage: a line for each file whose scores are lost because it is damaged or cannot be read, and
        what heals it.
    has_predictions: False in an unpacked archive, which has the scores alone.
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
        """Optimizer steps made; None while the run has not ended."""
        return self.result.steps if self.result else None

    @property
    def seconds(self) -> float | None:
        """Seconds of a finished training with its evaluations; None if it diverged or is not
        finished.
        """
        if self.result is None or self.decoding is None:
            return None
        return self.result.seconds or None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens trained on, divided by `seconds`."""
        if self.result is None or self.result.tokens is None or not self.seconds:
            return None
        return self.result.tokens / self.seconds


def measured_metrics(study: Study) -> tuple[Metric, ...]:
    """The metrics that a study's runs are measured in: the task's defaults, then those the study
    adds.
    """
    names = (*study.task.default_metrics, *study.metrics.shown)
    named = [study.task.metrics[name] for name in names]
    return tuple(dict.fromkeys((*study.task.model_metrics, *named)))


def read_runs(planned: Runs, results: Results) -> list[RunResult]:
    """Read every run of every row: base first, each row in the order of the seeds."""
    metrics, runs = measured_metrics(planned.study), []
    for row in planned.rows:
        params = cost.parameters(row.config, planned.data_of(row).vocab_size)
        for run in planned.of(row):
            runs.append(_read_run(row, run, params, results.run(run.id), metrics))
    return runs


def _read_run(
    row: Row, run: Run, params: int, folder: RunFolder, metrics: Sequence[Metric]
) -> RunResult:
    """Read a run of a row, whose closed form has `params` parameters."""
    if run.awaits_choice:
        return RunResult(row, run, "pending", params, AWAITS)
    files = RunFiles.read(folder)
    state, result = files.state(row.decoding), files.result
    if state not in ("done", "diverged") or result is None:
        if state == "pending":  # never with a damaged result
            if result is None:
                return RunResult(row, run, state, params)
            assert row.evaluated is not None  # a trial is pending only without a result
            former = former_decodings(row.config, row.evaluated).items()
            stored = (setting for setting, id in former if id in result.decodings)
            return RunResult(
                row,
                run,
                state,
                params,
                "trained, still to be decoded",
                lacks_decoding=True,
                former_default=next(stored, ""),
            )
        if damaged := fault_in_result(folder):
            said = str(damaged)
            return RunResult(row, run, state, params, said, damage=(said,))
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
        measured, damage = decoding.scores, (str(error),)
    for metric in metrics:
        score = measured.get(metric.name)
        if score is not None and metric.is_log and score.value <= 0:
            lost = f"{metric.name} is {score.value}; on log scale it must be above 0"
            damage = (f"{folder.result}: {lost}",)
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
    """Yield why files beside the scores of a run cannot be used, and what heals them: each is
    compared with its hash, for the table alone.
    """
    if run.result is None:
        return
    folder, decoding = results.run(run.run.id), run.row.decoding
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
    """The metrics log of a run.

    Raises:
        StoreError: the log cannot be read, or the run has ended and this is not the log that it
            wrote.
    """
    if result is not None:
        verify(folder.metrics, result.metrics_sha256)
    return read_metrics(folder.metrics)


def predictions_of(run: RunResult, results: Results) -> list[str]:
    """The predictions of a run in the decoding of its row; empty if there are none, or if they are
    damaged.
    """
    if run.decoding is None:
        return []
    try:
        return score_cache.read_predictions(results.run(run.run.id), run.row.decoding, run.decoding)
    except StoreError:
        return []


def by_row(runs: Iterable[RunResult]) -> Mapping[str, Sequence[RunResult]]:
    """The runs of each row, by its label; none for other labels."""
    rows: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        rows[run.row.label].append(run)
    return rows


def of_seeds(runs: Iterable[RunResult], seeds: Sequence[int]) -> list[RunResult]:
    """The runs with these seeds."""
    return [run for run in runs if run.run.seed in seeds]


def vocabularies_of(planned: Runs) -> tuple[int, ...]:
    """Sizes of the vocabularies of rows, sorted."""
    return tuple(sorted({planned.data_of(row).vocab_size for row in planned.rows}))


def signatures(planned: Runs, runs: Sequence[RunResult]) -> dict[str, list[str]]:
    """Signature of each metric, from the study or from its scores; one text if all runs agree."""
    study, vocabularies = planned.study, vocabularies_of(planned)
    texts_of = {}
    for metric in measured_metrics(study):
        texts = {study.task.describe(metric, study.data, vocabularies)}
        for run in runs:
            if metric.name in run.scores:
                texts.add(run.scores[metric.name].signature)
        texts_of[metric.name] = sorted(filter(None, texts))
    return texts_of


def run_state(run: Run, results: Results) -> State:
    """The state of a run over all of its decodings."""
    return RunFiles.read(results.run(run.id)).state_in(run.decodings)
