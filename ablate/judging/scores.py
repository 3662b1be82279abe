"""Make an experiment of the scores of other code. Its rows have labels, but no recipes."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.errors import UsageError, unknown_name
from ablate.formatting import first_few
from ablate.stats.metrics import METRICS, PPL, Metric
from ablate.table.experiment import Experiment, Row, Run, Score
from ablate.table.looks import Looks

BASES = ("base", "baseline", "control")  # default labels of base
# Words in the name of a metric that imply its direction.
LOWER = {
    "loss", "nll", "ppl", "perplexity", "bpb", "bpc", "err", "error", "wer", "cer", "ter", "mse",
    "rmse", "mae", "fid",
}  # fmt: skip
HIGHER = {
    "acc", "accuracy", "bleu", "chrf", "rouge", "f", "precision", "recall", "auc", "auroc", "map",
    "ndcg", "reward", "iou",
}  # fmt: skip
# Words that turn a direction round, or make another quantity of a score: nobody can guess it.
OTHER = {
    "neg", "negative", "minus", "inverse", "free", "gap", "drop", "reduction", "decrease",
    "increase", "gain", "improvement", "delta", "diff", "difference", "std", "sd", "var",
    "variance", "stderr", "sem", "ratio", "to", "until",
}  # fmt: skip
_MOST_DIGITS = 9


@dataclass(frozen=True)
class Number:
    """A score of a run, of a test item, or of a resampled test set.

    seed: the seed of the run. Rows are paired by seed.
    value: not finite if the run diverged.
    item: the test item; empty for a score. The score of a run is the mean over its items.
    resample: the number of the resampled test set; empty for the test set itself.
    run: id of the training, which rows may share; empty if the row has its own training.
    """

    row: str
    seed: int
    metric: str
    value: float
    item: str = ""
    resample: str = ""
    run: str = ""


def scores_experiment(
    numbers: Sequence[Number],
    name: str,
    base: str | None = None,
    directions: Mapping[str, bool] | None = None,
    margin: float | None = None,
) -> Experiment:
    """Make an experiment of scores. Seeds that only base has become its further seeds.

    Args:
        numbers: the scores, in the order of the rows. The first metric is judged.
        name: name of the table.
        base: label of base; None to take the only row with a label in BASES.
        directions: whether more is better, by metric, for metrics whose name does not imply it.
        margin: margin of equivalence in the first metric; None for no margin.

    Raises:
        UsageError: the rows cannot be compared, or the direction of a metric is unknown.
    """
    directions = directions or {}
    names: dict[str, None] = {}
    seeds: dict[str, dict[int, None]] = {}
    for number in numbers:
        names[number.metric] = None
        seeds.setdefault(number.row, {})[number.seed] = None
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
        raise UsageError(
            f"{first_few(unpaired)}: no seed in common with {base}, and rows are paired by seed; "
            f"leave the column seed out if seeds mean nothing here"
        )
    metrics = [metric_of(metric, numbers, directions) for metric in names]
    runs = _runs(numbers, {metric.name: metric for metric in metrics})
    rows = []
    for label in (base, *(label for label in seeds if label != base)):
        group = "base" if label == base else ""
        # Rows may share runs, but not scores.
        rows.append(Row(label, group, base, tuple(runs[label]), evaluation=label))
    return Experiment(
        name,
        tuple(rows),
        tuple(shared_seeds),
        measured=tuple(metrics),
        shown=tuple(metrics),
        judged=tuple(metrics[:1]),
        totals={base: len(rows) - 1},
        looks=Looks.single_look(len(shared_seeds)),
        further_seeds=tuple(seed for seed in seeds[base] if seed not in shared_seeds),
        margins={} if margin is None else {metrics[0].name: margin},
    )


def _base(base: str | None, labels: Sequence[str]) -> str:
    """The label of base: as requested, or the only label in BASES."""
    if base is None:
        candidates = [label for label in labels if label.lower() in BASES]
        if len(candidates) != 1:
            raise UsageError(
                f"which row is base? --base ROW (base=ROW in Python); there are "
                f"{first_few(labels, 12)}"
            )
        base = candidates[0]
    if base not in labels:
        raise UsageError(unknown_name("row", base, labels))
    if len(labels) == 1:
        raise UsageError(f'"{base}" is the only row: there is nothing to compare it with')
    return base


def direction_of(metric: str) -> bool | None:
    """Whether more is better in a metric, by the words in its name; None if they do not imply
    it.
    """
    words = _words(metric)
    if words & OTHER or bool(words & LOWER) == bool(words & HIGHER):
        return None
    return bool(words & HIGHER)


def _words(metric: str) -> set[str]:
    return set(re.findall("[a-z]+", metric.lower()))


def metric_of(name: str, numbers: Sequence[Number], directions: Mapping[str, bool]) -> Metric:
    """The metric with this name: a metric of ablate, or a new one whose number of digits follows
    from its spread over seeds.
    """
    scores: dict[str, list[float]] = {}
    smallest = math.inf
    is_share = True
    for number in numbers:
        if number.metric != name:
            continue
        if math.isfinite(number.value):
            smallest = min(smallest, number.value)
        if math.isfinite(number.value) and not number.item and not number.resample:
            scores.setdefault(number.row, []).append(number.value)
            is_share &= abs(number.value) <= 1
    if name not in directions and _words(name) & HIGHER:
        _refuse_mixed_scales(name, list(itertools.chain.from_iterable(scores.values())))
    known = METRICS.get(name)
    # ablate's percentages are up to 100, so scores up to 1 are of another metric.
    if known is not None and name not in directions and not (known.is_percentage and is_share):
        is_not_negative = known.is_not_negative and smallest >= (1.0 if known.is_log else 0.0)
        return replace(known, side="", item="item", is_not_negative=is_not_negative)
    more_is_better = directions.get(name, direction_of(name))
    if more_is_better is None:
        raise UsageError(
            f"is a lower or a higher {name} better? --lower-is-better {name}, or "
            f"--higher-is-better {name} (more_is_better={{{name!r}: True}} in Python)"
        )
    spreads = [statistics.stdev(values) for values in scores.values() if len(values) > 1]
    words = _words(name)
    digits = 3
    if any(spreads) and (spread := statistics.median(spreads)):
        # Two significant digits of the spread are shown.
        digits = min(_MOST_DIGITS, max(0, 1 - math.floor(math.log10(spread))))
    kind = Metric("", "", False, 0, "", is_percentage=False)
    if words & {PPL.name, "perplexity"}:
        kind = PPL
    # Losses are not negative and perplexities not below 1. Scores of densities can be, so it is
    # checked.
    lower_bound = 1.0 if kind.is_log else 0.0
    is_loss = bool(words & LOWER) and not more_is_better
    is_not_negative = is_loss and smallest >= lower_bound
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
    """Refuse 0.91 beside 91, shares and percentages of one metric. A run that learned nothing may
    have 0.6 % beside 91 %.
    """
    shares = [score for score in scores if 0 < score <= 1]
    percentages = [score for score in scores if score > 1]
    if not shares or not percentages:
        return
    lowest, highest = 0.8 * min(percentages), 1.25 * max(percentages)
    if min(percentages) > 20 and all(lowest < 100 * share < highest for share in shares):
        raise UsageError(
            f"{name} is {shares[0]:g} in one run and {percentages[0]:g} in another: shares and "
            f"percentages are mixed; write all of them alike, or say --higher-is-better {name} if "
            "they are of one scale"
        )


def _runs(numbers: Sequence[Number], metrics: Mapping[str, Metric]) -> dict[str, list[Run]]:
    """The runs of each row, with their scores on the test set and on resampled test sets."""
    run_numbers: dict[tuple[str, int], list[Number]] = {}
    for number in numbers:
        if metrics[number.metric].is_log and number.value <= 0:
            raise UsageError(
                f"{number.row}, seed {number.seed}: {number.metric} is {number.value:g}; must be "
                f"above 0"
            )
        run_numbers.setdefault((number.row, number.seed), []).append(number)
    items: dict[str, list[str]] = {}
    runs: dict[str, list[Run]] = {}
    for (label, seed), numbers_of_run in run_numbers.items():
        row_runs = runs.setdefault(label, [])
        id = numbers_of_run[0].run or f"{label} {seed}"
        if not all(math.isfinite(number.value) for number in numbers_of_run):
            row_runs.append(Run(id, seed, "diverged", "diverged"))
            continue
        metric_numbers: dict[str, list[Number]] = {}
        for number in numbers_of_run:
            metric_numbers.setdefault(number.metric, []).append(number)
        scores = {}
        for name, values in metric_numbers.items():
            try:
                scores[name] = _score(values, items.setdefault(name, []))
            except ValueError as error:
                raise UsageError(f"{label}, seed {seed}: {error}") from None
        row_runs.append(Run(id, seed, "done", scores=scores))
    return runs


def _score(values: Sequence[Number], items: list[str]) -> Score:
    """The score of a run in a metric, with the scores on resampled test sets.

    Args:
        values: the values of the run: a score, with scores on resampled test sets or without; or a
            value for each item, from which the test sets are resampled.
        items: names of the items. The first run fills it, and all runs must have the same items, so
            that they are scored on the same resampled test sets.

    Raises:
        ValueError: the values are not one score, or have other items.
    """
    name = values[0].metric
    item_values: dict[str, float] = {}
    resamples: dict[int, float] = {}
    for number in values:
        if number.resample:
            resamples[int(number.resample)] = number.value
        else:
            item_values[number.item] = number.value
    if len(item_values) + len(resamples) < len(values):
        raise ValueError(f"{name} has two values; a run has one, or one for each item")
    if item_values.keys() == {""}:
        ordered = dict(sorted(resamples.items())).values()
        return Score(item_values[""], tuple(ordered))
    from ablate.stats.resampling import resampled_means  # loads numpy

    if not items:
        items += item_values
    if item_values.keys() != set(items) or "" in item_values or resamples:
        raise ValueError(f"{name} needs the same items in every run, and no other values")
    return Score(*resampled_means([item_values[item] for item in items]))
