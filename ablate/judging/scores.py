"""The experiment of scores that were measured elsewhere, whose rows are labels."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.errors import UsageError, unknown_name
from ablate.formatting import first_few
from ablate.stats.metrics import METRICS, PPL, Metric
from ablate.table.experiment import Experiment, Row, Run, Score
from ablate.table.looks import Standing

BASES = ("base", "baseline", "control")  # labels of base, where none is named
# Words in the name of a metric that tell its direction.
LOWER = {
    "loss", "nll", "ppl", "perplexity", "bpb", "bpc", "err", "error", "wer", "cer", "ter", "mse",
    "rmse", "mae", "fid",
}  # fmt: skip
HIGHER = {
    "acc", "accuracy", "bleu", "chrf", "rouge", "f", "precision", "recall", "auc", "auroc", "map",
    "ndcg", "reward", "iou",
}  # fmt: skip
_MOST_DIGITS = 9


@dataclass(frozen=True)
class Number:
    """A score that was measured elsewhere, or a part of it.

    seed: of the run; rows are paired by it.
    value: not finite if the run diverged.
    item: of the test set; the score is the mean over items. Empty for a score.
    resample: number of a resampled test set, whose score this is; empty for the test set.
    run: id of the training, which rows may share; empty for one of its own.
    """

    row: str
    seed: int
    metric: str
    value: float
    item: str = ""
    resample: str = ""
    run: str = ""


def experiment_of_scores(
    numbers: Sequence[Number],
    name: str,
    base: str | None = None,
    directions: Mapping[str, bool] | None = None,
    margin: float | None = None,
) -> Experiment:
    """The experiment of some scores. Seeds that only base has are its further seeds.

    Args:
        numbers: rows in the order of the table; the first metric is that of the verdicts.
        name: of the table.
        base: label of the row that others are compared with; None for one of BASES.
        directions: by metric, whether more is better, where its name does not tell it.
        margin: of the first metric, within which a row is as good as base; None for none.

    Raises:
        UsageError: the rows cannot be compared, or the direction of a metric is not known.
    """
    directions = directions or {}
    names: dict[str, None] = {}
    seeds: dict[str, dict[int, None]] = {}
    for number in numbers:
        names[number.metric] = None
        seeds.setdefault(number.row, {})[number.seed] = None
    for given in directions:
        if given not in names:
            raise UsageError(unknown_name("metric", given, names))
    base = _base(base, list(seeds))
    of_rows: dict[int, None] = {}
    alone = []
    for label, of_row in seeds.items():
        if label != base:
            of_rows |= of_row
            if not of_row.keys() & seeds[base].keys():
                alone.append(label)
    if alone:
        raise UsageError(
            f"{first_few(alone)}: no seed in common with {base}, and rows are paired by seed; "
            f"leave the column seed out if seeds mean nothing here"
        )
    metrics = [metric_of(metric, numbers, directions) for metric in names]
    runs = _runs(numbers, {metric.name: metric for metric in metrics})
    rows = []
    for label in (base, *(label for label in seeds if label != base)):
        group = "base" if label == base else ""
        # Each row is evaluated in its own way: equal names of runs make no equal scores.
        rows.append(Row(label, group, base, tuple(runs[label]), evaluation=label))
    return Experiment(
        name,
        tuple(rows),
        tuple(of_rows),
        measured=tuple(metrics),
        shown=tuple(metrics),
        judged=tuple(metrics[:1]),
        totals={base: len(rows) - 1},
        standing=Standing.once(len(of_rows)),
        further_seeds=tuple(seed for seed in seeds[base] if seed not in of_rows),
        margins={} if margin is None else {metrics[0].name: margin},
    )


def _base(named: str | None, labels: Sequence[str]) -> str:
    usual = [label for label in labels if label.lower() in BASES]
    if named is None:
        if len(usual) != 1:
            known = first_few(labels, 12)
            raise UsageError(
                f"which row is base? --base ROW (base=ROW in Python); there are {known}"
            )
        named = usual[0]
    if named not in labels:
        raise UsageError(unknown_name("row", named, labels))
    if len(labels) == 1:
        raise UsageError(f'"{named}" is the only row: there is nothing to compare it with')
    return named


def direction_of(metric: str) -> bool | None:
    """Whether more is better in a metric, by the words of its name; None if they do not tell."""
    words = _words(metric)
    if bool(words & LOWER) == bool(words & HIGHER):
        return None
    return bool(words & HIGHER)


def _words(metric: str) -> set[str]:
    return set(re.findall("[a-z]+", metric.lower()))


def metric_of(name: str, numbers: Sequence[Number], directions: Mapping[str, bool]) -> Metric:
    """One of ablate's own metrics, or one whose digits follow from its spread over seeds."""
    scores: dict[str, list[float]] = {}
    least, is_share = math.inf, True
    for number in numbers:
        if number.metric != name:
            continue
        if math.isfinite(number.value):
            least = min(least, number.value)
        if math.isfinite(number.value) and not number.item and not number.resample:
            scores.setdefault(number.row, []).append(number.value)
            is_share &= abs(number.value) <= 1
    own = METRICS.get(name)
    if own is not None and name not in directions and not (own.is_percentage and is_share):
        bounded = own.is_not_negative and least >= (1.0 if own.is_log else 0.0)
        return replace(own, side="", item="item", is_not_negative=bounded)
    more_is_better = directions.get(name, direction_of(name))
    if more_is_better is None:
        raise UsageError(
            f"is a lower or a higher {name} better? --lower-is-better {name}, or "
            f"--higher-is-better {name} (more_is_better={{{name!r}: True}} in Python)"
        )
    spreads = [statistics.stdev(values) for values in scores.values() if len(values) > 1]
    digits, words = 3, _words(name)
    if any(spreads) and (spread := statistics.median(spreads)):
        # The spread is shown with two digits.
        digits = min(_MOST_DIGITS, max(0, 1 - math.floor(math.log10(spread))))
    kind = Metric("", "", False, 0, "", is_percentage=False)
    if words & {PPL.name, "perplexity"}:
        kind = PPL
    return replace(
        kind,
        name=name,
        title=name,
        more_is_better=more_is_better,
        digits=digits,
        side="",
        item="item",
        # A loss is not negative and a perplexity not below 1, unless a score is, as of a density.
        is_not_negative=bool(words & LOWER)
        and not more_is_better
        and least >= (1.0 if kind.is_log else 0.0),
    )


def _runs(numbers: Sequence[Number], metrics: Mapping[str, Metric]) -> dict[str, list[Run]]:
    """The runs of each row, with their scores and those on resampled test sets."""
    by_run: dict[tuple[str, int], list[Number]] = {}
    for number in numbers:
        if metrics[number.metric].is_log and number.value <= 0:
            place, value = f"{number.row}, seed {number.seed}", f"{number.value:g}"
            raise UsageError(f"{place}: {number.metric} is {value}; must be above 0")
        by_run.setdefault((number.row, number.seed), []).append(number)
    items: dict[str, list[str]] = {}
    runs: dict[str, list[Run]] = {}
    for (label, seed), of_run in by_run.items():
        of_row = runs.setdefault(label, [])
        id = of_run[0].run or f"{label} {seed}"
        if not all(math.isfinite(number.value) for number in of_run):
            of_row.append(Run(id, seed, "diverged", "diverged"))
            continue
        of_metrics: dict[str, list[Number]] = {}
        for number in of_run:
            of_metrics.setdefault(number.metric, []).append(number)
        scores = {}
        for name, values in of_metrics.items():
            try:
                scores[name] = _score(values, items.setdefault(name, []))
            except ValueError as error:
                raise UsageError(f"{label}, seed {seed}: {error}") from None
        of_row.append(Run(id, seed, "done", scores=scores))
    return runs


def _score(values: Sequence[Number], items: list[str]) -> Score:
    """A score, and those on resampled test sets; none without items.

    Args:
        values: of one run in one metric.
        items: of the runs before; every run is scored on the same resampled test sets.

    Raises:
        ValueError: the values are not one score, or other items than those of the runs before.
    """
    name = values[0].metric
    by_item, resamples = dict[str, float](), dict[int, float]()
    for number in values:
        if number.resample:
            resamples[int(number.resample)] = number.value
        else:
            by_item[number.item] = number.value
    if len(by_item) + len(resamples) < len(values):
        raise ValueError(f"{name} has two values; a run has one, or one for each item")
    if by_item.keys() == {""}:
        ordered = dict(sorted(resamples.items())).values()
        return Score(by_item[""], tuple(ordered))
    from ablate.stats.resampling import resampled_means  # loads numpy

    if not items:
        items += by_item
    if by_item.keys() != set(items) or "" in by_item or resamples:
        raise ValueError(f"{name} needs the same items in every run, and nothing beside them")
    return Score(*resampled_means([by_item[item] for item in items]))
