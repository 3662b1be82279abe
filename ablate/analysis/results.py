"""The results of a study: read once from its runs, then one tidy pandas frame that every table is
made from.

pandas takes 0.4 s to import. Only functions that make a frame import it, so plan, status and the
live view start without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ablate.analysis.scores import Scores, mean, sample_std
from ablate.config import cost
from ablate.errors import StoreError
from ablate.stats.comparison import PairedScores
from ablate.store import Results, RunFolder, State, state_of
from ablate.store.files import verify
from ablate.store.records import (
    Decoding,
    MetricsLine,
    Progress,
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
from ablate.store.status import NO_DECODING, damage_of, read_progress, read_provenance
from ablate.study import Row, Run, Study
from ablate.study.tuning import AWAITS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RunResult:
    """A run of one row, read from its files.

    params: trained parameters; in closed form until the run has counted them.
    note: why the run has no scores; empty if it is done or pending.
    result: None unless the run is done or diverged.
    decoding: the row's evaluation of the run; None unless the run is done.
    scores: by metric; empty unless the run is done.
    resamples: scores on the resampled test sets, by metric.
    faults: a line for each file that is damaged or cannot be read, and what heals it.
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
    task = study.task
    return tuple(
        dict.fromkeys(
            (*(metric.name for metric in task.model_metrics), *task.default_metrics, *study.metrics)
        )
    )


def read_runs(study: Study, results: Results) -> list[RunResult]:
    """Read every run of every row: base first, each row in the order of the seeds."""
    metrics = measured_metrics(study)
    return [
        _read_run(study, row, run, results.run(run.id), metrics)
        for row in study.rows
        for run in study.runs_of(row)
    ]


def _read_run(
    study: Study, row: Row, run: Run, folder: RunFolder, metrics: Sequence[str]
) -> RunResult:
    if run.awaits_tuning:
        return RunResult(
            row, run, "pending", cost.parameters(row.config, study.data_of(row).vocab_size), AWAITS
        )
    state = state_of(folder, row.decoding)
    result = folder.read_result() if state in ("done", "diverged") else None
    if result is None:
        damage = (
            None if state == "pending" else damage_of(folder)
        )  # with a damaged result it is never pending
        note = "" if state == "pending" else damage or _at_step(state, read_progress(folder))
        params = cost.parameters(row.config, study.data_of(row).vocab_size)
        return RunResult(row, run, state, params, note, faults=(damage,) if damage else ())
    provenance, faults = read_provenance(folder), tuple(_faults(folder, row.decoding, result))
    if state == "diverged":
        note = f"diverged at step {result.steps}: {result.reason}"
        return RunResult(
            row, run, state, result.params, note, result, provenance=provenance, faults=faults
        )
    decoding = result.decodings[row.decoding]
    cached = read_scores(folder, row.decoding, decoding)
    # result.json has the scores that the run made itself; the cache adds metrics that were asked
    # for later.
    scores = {
        name: score
        for name in metrics
        if (score := decoding.scores.get(name) or cached.get(name)) is not None
    }
    resamples = {name: cached[name].resamples for name in metrics if name in cached}
    return RunResult(
        row, run, state, result.params, "", result, decoding, scores, resamples, provenance, faults,
        not is_archived(folder, row.decoding),
    )  # fmt: skip


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


def _at_step(state: State, progress: Progress | None) -> str:
    return f"{state} at step {progress.step}" if progress and progress.step else state


def log_of(folder: RunFolder, result: Result | None) -> list[MetricsLine]:
    """The metrics log of a run; empty if the run has ended and the log is not the one that it
    wrote.
    """
    if result is not None:
        try:
            verify(folder.metrics, result.metrics_sha256)
        except StoreError:
            return []
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


def paired_scores(
    metric: str, ours: Sequence[RunResult], base: Sequence[RunResult], seeds: Sequence[int]
) -> PairedScores:
    """The scores of a row and of its base with these seeds, as verdicts take them."""
    row, other = (
        {run.run.seed: run for run in each if run.run.seed in seeds} for each in (ours, base)
    )
    scored = [
        seed
        for seed in row
        if metric in row[seed].scores and seed in other and metric in other[seed].scores
    ]
    # A seed without cached resamples, of a run whose predictions are gone, has no part in the
    # bootstrap.
    resamples = {
        seed: (one, two)
        for seed in scored
        if (one := row[seed].resamples.get(metric)) and (two := other[seed].resamples.get(metric))
    }
    counts, of_base = (Counter(run.state for run in each.values()) for each in (row, other))
    return PairedScores(
        {
            seed: row[seed].scores[metric].value - other[seed].scores[metric].value
            for seed in scored
        },
        resamples,
        diverged=counts["diverged"],
        base_diverged=of_base["diverged"],
        ended=counts["done"] + counts["diverged"],
        base_ended=of_base["done"] + of_base["diverged"],
        pending=len(row) - counts["done"] - counts["diverged"],
        same_training={run.run.id for run in row.values()}
        == {run.run.id for run in other.values()},
    )


def vocabularies_of(study: Study) -> tuple[int, ...]:
    """Sizes of the vocabularies of a study's rows, sorted."""
    return tuple(sorted({study.data_of(row).vocab_size for row in study.rows}))


def signatures(study: Study, runs: Sequence[RunResult]) -> dict[str, list[str]]:
    """Signature of each metric, from the study or from its scores; one text if all runs agree."""
    found = {}
    for name in measured_metrics(study):
        described = study.task.describe(
            study.task.metrics[name], study.data, vocabularies_of(study)
        )
        signed = {run.scores[name].signature for run in runs if name in run.scores}
        found[name] = sorted(text for text in {described} | signed if text)
    return found


def results_frame(runs: Sequence[RunResult], metrics: Sequence[str]) -> pd.DataFrame:
    """The tidy frame: a line for each row, seed and metric.

    Columns: `row`, `group`, `seed`, `run` (id), `state`, `params`, `steps`, `seconds`,
        `tokens_per_second`, `metric`
    and `value`. Missing numbers are NaN or NA.
    """
    import pandas as pd

    lines = [
        {
            "row": one.row.label,
            "group": one.row.group,
            "seed": one.run.seed,
            "run": one.run.id,
            "state": one.state,
            "params": one.params,
            "steps": one.steps,
            "seconds": one.seconds,
            "tokens_per_second": one.tokens_per_second,
            "metric": name,
            "value": one.scores[name].value if name in one.scores else None,
        }
        for one in runs
        for name in metrics
    ]
    numbers = {
        "steps": "Int64",
        "seconds": "float64",
        "tokens_per_second": "float64",
        "value": "float64",
    }
    frame: pd.DataFrame = pd.DataFrame(lines).astype(numbers)
    return frame


def aggregate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, sample standard deviation and number of values over the seeds of each row and metric.

    pandas' own mean and std sum in another order, which changes last digits; `scores` has the exact
    ones.

    Args:
        frame: a tidy frame.

    Returns:
        Columns `mean`, `std` and `n`, indexed by `row` and `metric` in the order of the frame.
    """
    import pandas as pd

    values = frame.groupby(["row", "metric"], sort=False)["value"]
    exact = {"mean": values.agg(_over_seeds(mean)), "std": values.agg(_over_seeds(sample_std))}
    summary: pd.DataFrame = pd.DataFrame({**exact, "n": values.count()})
    return summary


def _over_seeds(
    statistic: Callable[[Iterable[float]], float | None],
) -> Callable[[pd.Series[float]], float]:
    """The statistic of the values that are not missing, NaN where it is not defined."""

    def of_present(values: pd.Series[float]) -> float:
        value = statistic(values.dropna())
        return math.nan if value is None else value

    return of_present


def differences(frame: pd.DataFrame, base: str | Mapping[str, str]) -> pd.DataFrame:
    """Differences from the row `base`, or from the base of each row, paired by seed.

    Returns:
        The tidy frame, each value less base's value with the same seed in the same metric; NaN
        unless both exist, and for base itself.
    """
    import pandas as pd

    bases = frame["row"].map(
        dict.fromkeys(frame["row"].unique(), base) if isinstance(base, str) else dict(base)
    )
    values = frame.set_index(["row", "seed", "metric"])["value"]
    paired = values.reindex(
        pd.MultiIndex.from_arrays([bases, frame["seed"], frame["metric"]])
    ).to_numpy()
    result: pd.DataFrame = frame.assign(
        value=(frame["value"] - paired).where(frame["row"] != bases)
    )
    return result


def scores_by_row(frame: pd.DataFrame) -> dict[str, dict[str, Scores]]:
    """The values of a tidy frame by seed, for each row and metric."""
    scores: dict[str, dict[str, Scores]] = {}
    by_row = frame.set_index("seed").groupby(["row", "metric"], sort=False)["value"]
    for (row, metric), values in by_row:
        by_seed = cast("dict[int, float]", values.dropna().to_dict())
        scores.setdefault(str(row), {})[str(metric)] = Scores(by_seed)
    return scores


def run_state(study: Study, results: Results, id: str) -> State:
    """The state of a run over all decodings of this study: that of the first decoding that is not
    done, else done.
    """
    folder = results.run(id)
    states = (state_of(folder, decoding) for decoding in study.decodings[id] or (NO_DECODING,))
    return next((state for state in states if state != "done"), "done")
