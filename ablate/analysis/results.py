"""The results of a study, read once from the files of its runs."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.analysis.scores import Scores
from ablate.config import cost
from ablate.config.metrics import Metric
from ablate.errors import StoreError
from ablate.stats.comparison import PairedScores
from ablate.stats.noise import BaseScores
from ablate.store import Results, RunFolder, State, if_readable, state_of
from ablate.store.files import verify
from ablate.store.records import (
    Decoding,
    Measurement,
    MetricsLine,
    Provenance,
    Result,
    Score,
    read_metrics,
)
from ablate.store.score_cache import (
    damage_of_predictions,
    is_archived,
    read_predictions,
    read_scores,
)
from ablate.store.status import NO_DECODING, damage_of
from ablate.study import Row, Run, Study
from ablate.study.tuning import AWAITS


@dataclass(frozen=True)
class RunResult:
    """A run of one row, read from its files.

    params: trained parameters; in closed form until the run has counted them.
    note: why the run has no scores; empty if it is done or pending.
    result: None unless the run is done or diverged.
    decoding: the row's evaluation of the run; None unless the run is done.
    scores: by metric; empty unless the run is done.
    resamples: scores on the resampled test sets, by metric.
    damage: a line for each file whose scores are lost because it is damaged or cannot be read, and
        what heals it.
    faults: likewise for the files beside the scores.
    has_predictions: False in an unpacked archive, which has the scores alone.
    """

    row: Row
    run: Run
    state: State
    params: int
    note: str = ""
    result: Result | None = None
    decoding: Decoding | None = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    resamples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    provenance: Provenance | None = None
    damage: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
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
        return self.result.seconds or None if self.result and self.decoding else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens trained on, divided by `seconds`."""
        tokens = self.result.tokens if self.result else None
        return tokens / self.seconds if tokens is not None and self.seconds else None


def measured_metrics(study: Study) -> tuple[str, ...]:
    """Names of the metrics that a study's runs are measured in: the task's defaults, then those the
    study adds.
    """
    of_model = [metric.name for metric in study.task.model_metrics]
    return tuple(dict.fromkeys((*of_model, *study.task.default_metrics, *study.metrics)))


def read_runs(study: Study, results: Results) -> list[RunResult]:
    """Read every run of every row: base first, each row in the order of the seeds."""
    metrics, runs = measured_metrics(study), []
    for row in study.rows:
        for run in study.runs_of(row):
            runs.append(_read_run(study, row, run, results.run(run.id), metrics))
    return runs


def _read_run(
    study: Study, row: Row, run: Run, folder: RunFolder, metrics: Sequence[str]
) -> RunResult:
    planned = cost.parameters(row.config, study.data_of(row).vocab_size)
    if run.awaits_tuning:
        return RunResult(row, run, "pending", planned, AWAITS)
    state = state_of(folder, row.decoding)
    result = folder.read_result() if state in ("done", "diverged") else None
    if result is None:
        if state == "pending":  # never with a damaged result
            return RunResult(row, run, state, planned)
        if damaged := damage_of(folder):
            return RunResult(row, run, state, planned, damaged, damage=(damaged,))
        progress = if_readable(folder.read_progress)
        note = f"{state} at step {progress.step}" if progress and progress.step else state
        return RunResult(row, run, state, planned, note)
    common = RunResult(
        row,
        run,
        state,
        result.params,
        result=result,
        provenance=if_readable(folder.read_provenance),
        faults=tuple(_faults(folder, row.decoding, result)),
    )
    if state == "diverged":
        return replace(common, note=f"diverged at step {result.steps}: {result.reason}")
    decoding = result.decodings[row.decoding]
    scores: dict[str, Score] = {}
    resamples, damage = {}, None
    try:
        measured = read_scores(folder, row.decoding, decoding)
    except StoreError as error:
        measured, damage = decoding.scores, str(error)
    for name in metrics:
        score = measured.get(name)
        if score is not None and study.task.metrics[name].is_log and score.value <= 0:
            damage = f"{folder.result}: {name} is {score.value}; on log scale it must be above 0"
        elif score is not None:
            scores[name] = score
        if isinstance(score, Measurement):
            resamples[name] = score.resamples
    return replace(
        common,
        decoding=decoding,
        scores=scores,
        resamples=resamples,
        damage=() if damage is None else (damage,),
        has_predictions=not is_archived(folder, row.decoding),
    )


def _faults(folder: RunFolder, decoding: str, result: Result) -> Iterator[str]:
    """Yield why files beside the result cannot be used."""
    if decoding in result.decodings:
        damage = damage_of_predictions(folder, decoding, result.decodings[decoding])
        if damage is not None:
            yield damage
    try:
        verify(folder.metrics, result.metrics_sha256)
    except StoreError as error:
        yield (
            f"{error}; its learning curve is left out, until the run is trained again in another "
            f"--results"
        )
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
        return read_predictions(results.run(run.run.id), run.row.decoding, run.decoding)
    except StoreError:
        return []


def scores_of(runs: Iterable[RunResult], metric: Metric) -> Scores:
    """The scores of a row's runs in one metric."""
    name = metric.name
    return Scores(
        {run.run.seed: run.scores[name].value for run in runs if name in run.scores}, metric.is_log
    )


def paired_scores(
    metric: Metric,
    ours: Sequence[RunResult],
    base: Sequence[RunResult],
    seeds: Sequence[int],
    further: Sequence[int] = (),
) -> PairedScores:
    """The scores of a row and of its base, as verdicts take them.

    Args:
        metric: of the scores.
        ours: runs of the row.
        base: runs of its base.
        seeds: of the row and of base.
        further: seeds that only base has.
    """
    row = {run.run.seed: run for run in ours if run.run.seed in seeds}
    of_base = {run.run.seed: run for run in base if run.run.seed in seeds}
    scores_of_base = scores_of(of_base.values(), metric)
    differences = scores_of(row.values(), metric).minus(scores_of_base)
    least = -math.inf
    if metric.is_not_negative and differences.by_seed:
        paired = [scores_of_base.on_scale[seed] for seed in differences.by_seed]
        least = -statistics.fmean(paired)
    resamples = {}
    for seed in differences.by_seed:
        pair = _resamples(row[seed], metric), _resamples(of_base[seed], metric)
        # A seed without stored resamples, of a run whose predictions are gone, has no part in the
        # bootstrap.
        if all(pair):
            resamples[seed] = pair
    states = Counter(run.state for run in row.values())
    base_states = Counter(run.state for run in of_base.values())
    ended = states["done"] + states["diverged"]
    return PairedScores(
        differences.by_seed,
        resamples,
        diverged=states["diverged"],
        base_diverged=base_states["diverged"],
        ended=ended,
        base_ended=base_states["done"] + base_states["diverged"],
        pending=len(row) - ended,
        same_training={run.run.id for run in row.values()}
        == {run.run.id for run in of_base.values()},
        base=_base_scores(metric, base, seeds, further) if further else None,
        least=least,
    )


def _resamples(run: RunResult, metric: Metric) -> list[float]:
    return list(map(metric.on_scale, run.resamples.get(metric.name, ())))


def _base_scores(
    metric: Metric, base: Sequence[RunResult], seeds: Sequence[int], further: Sequence[int]
) -> BaseScores:
    scores = scores_of(base, metric).on_scale
    shared = {seed: scores[seed] for seed in seeds if seed in scores}
    return BaseScores(shared, {seed: scores[seed] for seed in further if seed in scores})


def vocabularies_of(study: Study) -> tuple[int, ...]:
    """Sizes of the vocabularies of a study's rows, sorted."""
    return tuple(sorted({study.data_of(row).vocab_size for row in study.rows}))


def signatures(study: Study, runs: Sequence[RunResult]) -> dict[str, list[str]]:
    """Signature of each metric, from the study or from its scores; one text if all runs agree."""
    of_metrics, sizes = {}, vocabularies_of(study)
    for name in measured_metrics(study):
        texts = {study.task.describe(study.task.metrics[name], study.data, sizes)}
        texts |= {run.scores[name].signature for run in runs if name in run.scores}
        of_metrics[name] = sorted(filter(None, texts))
    return of_metrics


def run_state(run: Run, results: Results) -> State:
    """The state of a run over all of its decodings: that of the first one that is not done, else
    done.
    """
    for decoding in run.decodings or (NO_DECODING,):
        state = state_of(results.run(run.id), decoding)
        if state != "done":
            return state
    return "done"


# State of a row with runs in several states; the first match wins.
_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "interrupted", "pending", "done")


def row_state(states: Iterable[State]) -> State:
    """The state of a row from those of its runs, the same in every view and format."""
    return min(states, key=_FIRST.index)
