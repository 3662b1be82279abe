"""Make an experiment from the scores of other code. Its rows have labels, but no settings."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.errors import Fault, UsageError, not_allowed, unknown_name
from ablate.formatting import first_few
from ablate.judging.columns import BASES
from ablate.judging.names import runs_of_a_row, shared_name
from ablate.stats.metrics import METRICS, PPL, Metric
from ablate.table.experiment import Experiment, ExperimentRow, ExperimentRun, RunScore
from ablate.table.looks import Looks

# Words in the name of a metric that imply its direction.
LOWER = {
    "loss", "nll", "ppl", "perplexity", "bpb", "bpc", "err", "error", "wer", "cer", "ter", "mse",
    "rmse", "mae", "fid",
}  # fmt: skip
HIGHER = {
    "acc", "accuracy", "bleu", "chrf", "rouge", "f", "precision", "recall", "auc", "auroc", "map",
    "ndcg", "reward", "iou",
}  # fmt: skip
# Words with which a name implies no direction, because they reverse it or change the quantity.
OTHER = {
    "neg", "negative", "minus", "inverse", "free", "gap", "drop", "reduction", "decrease",
    "increase", "gain", "improvement", "delta", "diff", "difference", "std", "sd", "var",
    "variance", "stderr", "sem", "ratio", "to", "until",
}  # fmt: skip
_MOST_DIGITS = 9  # of a score in a table


@dataclass(frozen=True)
class RunMeasurement:
    """A value of a metric for a run: the score on the test set, the score on a resampled test set,
    or the value for one test item.

    seed: seed of the run, by which rows are paired; or the number of the run, if runs are unpaired.
    value: value of the metric; not finite if the run diverged.
    item: name of the test item; empty for a score. The score of a run is the mean over its items.
    resample: number of the resampled test set; empty for the test set itself.
    run: id of the trained model, which several rows may share; empty if only this row uses it.
    """

    row: str
    seed: int
    metric: str
    value: float
    item: str = ""
    resample: str = ""
    run: str = ""


def scores_experiment(
    measurements: Sequence[RunMeasurement],
    name: str,
    base: str | None = None,
    directions: Mapping[str, bool] | None = None,
    margin: float | None = None,
    is_paired: bool = True,
) -> Experiment:
    """Make an experiment from scores. Seeds that only base has become its further seeds.

    Args:
        measurements: the scores, in the order of the rows. The verdicts are by the first metric.
        name: name of the table.
        base: label of base; None for the only row whose label is in BASES.
        directions: whether more is better, by metric, for metrics whose name does not imply it.
        margin: margin of equivalence in the first metric; None for no margin.
        is_paired: whether runs with the same seed are paired.

    Raises:
        UsageError: the rows cannot be compared, or the direction of a metric is unknown.
    """
    directions = directions or {}
    names: dict[str, None] = {}
    seeds: dict[str, dict[int, None]] = {}
    for measurement in measurements:
        names[measurement.metric] = None
        seeds.setdefault(measurement.row, {})[measurement.seed] = None
    for metric in directions:
        if metric not in names:
            raise UsageError(unknown_name("metric", metric, names))
    base = _base(base, list(seeds))
    shared_seeds: dict[int, None] = {}
    unpaired = []
    for label, row_seeds in seeds.items():
        if label != base:
            shared_seeds |= row_seeds
            if not row_seeds.keys() & seeds[base].keys():
                unpaired.append(label)
    if unpaired:
        problem = f"no seed in common with {base}, and rows are paired by seed"
        remedy = "if equal seeds have nothing in common, remove the column seed"
        if shared := shared_name(seeds):
            remedy = runs_of_a_row(*shared)
        raise UsageError(Fault(problem, subject=first_few(unpaired), remedy=remedy))
    metrics = [metric_of(metric, measurements, directions) for metric in names]
    runs = _runs(measurements, {metric.name: metric for metric in metrics})
    rows = []
    for label in (base, *(label for label in seeds if label != base)):
        group = "base" if label == base else ""
        # Rows may share a run. `evaluation` tells their scores of it apart.
        rows.append(ExperimentRow(label, group, base, tuple(runs[label]), evaluation=label))
    return Experiment(
        name,
        tuple(rows),
        tuple(shared_seeds),
        measured=tuple(metrics),
        shown=tuple(metrics),
        judged=tuple(metrics[:1]),
        totals={base: len(rows) - 1},
        looks=Looks.judged_once(len(shared_seeds)),
        further_seeds=tuple(seed for seed in seeds[base] if seed not in shared_seeds),
        is_paired=is_paired,
        margins={} if margin is None else {metrics[0].name: margin},
    )


def _base(base: str | None, labels: Sequence[str]) -> str:
    """The label of base: the requested one, or the only label in BASES."""
    if base is None:
        candidates = [label for label in labels if label.lower() in BASES]
        if len(candidates) != 1:
            found = first_few(labels, 12)
            remedy = f"give --base ROW (base=ROW in Python); found {found}"
            raise UsageError(Fault("which row is base?", remedy=remedy, choices=tuple(labels)))
        base = candidates[0]
    if base not in labels:
        raise UsageError(_unknown_row(base, labels))
    if len(labels) == 1:
        remedy = "there is nothing to compare it with"
        raise UsageError(Fault("is the only row", given=f'"{base}"', remedy=remedy))
    return base


def _unknown_row(name: str, labels: Sequence[str]) -> Fault:
    """The fault of an unknown row; if its name is a part of labels, they may be its runs."""
    word = re.compile(rf"(?<![^\W\d_]){re.escape(name)}(?![^\W\d_])")
    runs = [label for label in labels if word.search(label)]
    if len(runs) < 2 or not name:
        return unknown_name("row", name, labels)
    fault = unknown_name("row", name, (), remedy=runs_of_a_row(name, runs))
    return replace(fault, choices=tuple(labels))


def direction_of(metric: str) -> bool | None:
    """Whether more is better in a metric, by the words in its name; None if the words imply
    nothing or contradict each other.
    """
    words = _words(metric)
    if words & OTHER:
        return None
    implies_lower = bool(words & LOWER)
    implies_higher = bool(words & HIGHER)
    if implies_higher and not implies_lower:
        return True
    if implies_lower and not implies_higher:
        return False
    return None


def _words(metric: str) -> set[str]:
    return set(re.findall("[a-z]+", metric.lower()))


def metric_of(
    name: str, measurements: Sequence[RunMeasurement], directions: Mapping[str, bool]
) -> Metric:
    """The metric with this name: a built-in metric, or a new one that is printed with as many
    digits as two significant digits of the standard deviation over seeds need.
    """
    scores: dict[str, list[float]] = {}  # by row
    smallest = math.inf
    is_share = True  # all scores are between -1 and 1
    for measurement in measurements:
        if measurement.metric != name:
            continue
        if math.isfinite(measurement.value):
            smallest = min(smallest, measurement.value)
        if math.isfinite(measurement.value) and not measurement.item and not measurement.resample:
            scores.setdefault(measurement.row, []).append(measurement.value)
            is_share = is_share and abs(measurement.value) <= 1
    if name not in directions and _words(name) & HIGHER:
        _refuse_mixed_scales(name, list(itertools.chain.from_iterable(scores.values())))
    built_in = METRICS.get(name)
    # Built-in percentages go up to 100. Scores up to 1 are a metric of the same name on another
    # scale.
    is_other = name in directions or (built_in and built_in.is_percentage and is_share)
    if built_in and not is_other:
        is_not_negative = built_in.is_not_negative and smallest >= _lower_bound(built_in)
        return replace(built_in, side="", item="item", is_not_negative=is_not_negative)
    more_is_better = directions.get(name, direction_of(name))
    if more_is_better is None:
        remedy = (
            f"give --lower-is-better {name} or --higher-is-better {name} "
            f"(more_is_better={{{name!r}: True}} in Python)"
        )
        raise UsageError(Fault(f"is a lower or a higher {name} better?", remedy=remedy))
    deviations = [statistics.stdev(values) for values in scores.values() if len(values) > 1]
    words = _words(name)
    digits = 3
    if any(deviations) and (deviation := statistics.median(deviations)):
        # Two significant digits of the deviation, such as 0.012.
        digits = min(_MOST_DIGITS, max(0, 1 - math.floor(math.log10(deviation))))
    kind = Metric("", "", False, 0, "", is_percentage=False)
    if words & {PPL.name, "perplexity"} and "log" not in words:
        kind = PPL
    # The loss of a density may be negative, and its perplexity below 1. So the bound holds only if
    # all scores respect it.
    is_loss = bool(words & LOWER) and not more_is_better
    is_not_negative = is_loss and smallest >= _lower_bound(kind)
    return replace(
        kind,
        name=name,
        title=name,
        more_is_better=more_is_better,
        digits=digits,
        side="",
        item="item",
        is_not_negative=is_not_negative,
    )


def _refuse_mixed_scales(name: str, scores: Sequence[float]) -> None:
    """Refuse scores of which some are shares and others percentages, such as 0.91 and 91.

    A score up to 1 is taken for a share only if as a percentage it would be near the others: a run
    that learned nothing may have 0.6 % where others have 91 %.
    """
    shares = [score for score in scores if 0 < score <= 1]
    percentages = [score for score in scores if score > 1]
    if not shares or not percentages:
        return
    lowest = 0.8 * min(percentages)
    highest = 1.25 * max(percentages)
    if min(percentages) > 20 and all(lowest < 100 * share < highest for share in shares):
        problem = (
            f"{name} is {shares[0]:g} in one run and {percentages[0]:g} in another: shares and "
            "percentages are mixed"
        )
        remedy = (
            f"write all of them in the same way, or give --higher-is-better {name} if they have "
            "the same scale"
        )
        raise UsageError(Fault(problem, remedy=remedy))


def _lower_bound(metric: Metric) -> float:
    """The smallest value of a loss or a perplexity of discrete data."""
    return 1.0 if metric.is_log else 0.0


def _runs(
    measurements: Sequence[RunMeasurement], metrics: Mapping[str, Metric]
) -> dict[str, list[ExperimentRun]]:
    """The runs of each row, with their scores on the test set and on resampled test sets."""
    measurements_by_run: dict[tuple[str, int], list[RunMeasurement]] = {}
    for measurement in measurements:
        if metrics[measurement.metric].is_log and measurement.value <= 0:
            fault = not_allowed(f"{measurement.value:g}", "above 0").about(measurement.metric)
            raise UsageError(fault.about(f"{measurement.row}, seed {measurement.seed}"))
        measurements_by_run.setdefault((measurement.row, measurement.seed), []).append(measurement)
    items: dict[str, list[str]] = {}
    runs: dict[str, list[ExperimentRun]] = {}
    for (label, seed), run_measurements in measurements_by_run.items():
        row_runs = runs.setdefault(label, [])
        id = run_measurements[0].run or f"{label} {seed}"
        if not all(math.isfinite(measurement.value) for measurement in run_measurements):
            row_runs.append(ExperimentRun(id, seed, "diverged", "diverged"))
            continue
        measurements_by_metric: dict[str, list[RunMeasurement]] = {}
        for measurement in run_measurements:
            measurements_by_metric.setdefault(measurement.metric, []).append(measurement)
        scores = {}
        for name, values in measurements_by_metric.items():
            try:
                scores[name] = _score(metrics[name], values, items.setdefault(name, []))
            except ValueError as error:
                fault = Fault(str(error), subject=f"{label}, seed {seed}")
                raise UsageError(fault) from None
        row_runs.append(ExperimentRun(id, seed, "done", scores=scores))
    return runs


def _score(metric: Metric, values: Sequence[RunMeasurement], items: list[str]) -> RunScore:
    """The score of a run in a metric, with its scores on resampled test sets.

    Args:
        metric: the metric.
        values: the measurements of the run in this metric: one score, perhaps with scores on
            resampled test sets; or a value for each item, from which test sets are resampled here.
        items: names of the items. The first run fills the list, and all runs must have the same
            items, so that they are scored on the same resampled test sets.

    Raises:
        ValueError: the run has several scores, or its items are not `items`.
    """
    name = metric.name
    item_values: dict[str, float] = {}
    resamples: dict[int, float] = {}
    for measurement in values:
        if measurement.resample:
            resamples[int(measurement.resample)] = metric.without_excess(measurement.value)
        else:
            item_values[measurement.item] = measurement.value
    if len(item_values) + len(resamples) < len(values):
        raise ValueError(f"{name} has two values; a run has one value, or one for each item")
    if item_values.keys() == {""}:
        resample_scores = [resamples[number] for number in sorted(resamples)]
        return RunScore(item_values[""], tuple(resample_scores))
    from ablate.stats.resampling import resampled_means  # loads numpy

    if not items:
        items += item_values
    if item_values.keys() != set(items) or "" in item_values or resamples:
        raise ValueError(f"{name} needs a value for the same items in every run, and only these")
    return RunScore(*resampled_means([item_values[item] for item in items]))
