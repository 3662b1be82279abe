"""Effects of the designs of a study: main effects and interactions of factorials, and effects of
parts that are added or left out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ablate.formatting import enumeration, number, p_text, plural
from ablate.stats.designs import FactorialDesign, PathDesign
from ablate.stats.factorial import Estimate, effects
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, holm_correction, paired_t_test
from ablate.table.layout import Layout, TextColumn
from ablate.table.table import Table, TableRow


@dataclass(frozen=True)
class Contrast:
    """An effect in one metric; None for numbers that need missing scores or seeds.

    interval: confidence interval (low, high) at the level of the test: it excludes 0 exactly if `p`
        is below 0.05. None also if the interval covers every possible difference.
    p: after Holm's correction over the effects of the design. For the difference of a row from
        base, the p value of the verdict.
    """

    value: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None

    @staticmethod
    def build(estimate: Estimate, metric: Metric) -> Contrast:
        """The contrast of an estimated effect of a factorial."""
        if estimate.low is None or estimate.high is None:
            return Contrast(estimate.value)
        lower_bound = metric.lower_bound(estimate.low_mean)
        interval = metric.informative_interval(
            estimate.low, estimate.high, lower_bound, estimate.value
        )
        return Contrast(estimate.value, interval, estimate.p_holm)

    def as_json(self) -> dict[str, float | None]:
        """The effect for scripts."""
        low, high = self.interval or (None, None)
        return {"value": self.value, "low": low, "high": high, "p_holm": self.p}

    def text(self, metric: Metric) -> str:
        """`+1.2 [+0.3, +2.1]`."""
        return metric.difference_text(self.value, self.interval)

    def word(self, metric: Metric) -> str:
        """`better` or `worse` if the effect is significant, else empty."""
        if self.value is None or self.p is None or self.p >= LEVEL:
            return ""
        return "better" if metric.is_better(self.value) else "worse"


@dataclass(frozen=True)
class DesignEffects:
    """The effects of a design.

    title: its group and kind.
    names: names of the effects.
    is_factorial: whether the effects are main effects and interactions; else they are effects of
        the parts of a path.
    by_metric: contrasts in the order of `names`, by metric; empty while scores are missing.
    notes: explanations, and missing scores.
    """

    group: str
    title: str
    names: tuple[str, ...]
    is_factorial: bool
    by_metric: Mapping[str, tuple[Contrast, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The effects for scripts."""
        effects: list[dict[str, Any]] = [{"effect": name} for name in self.names]
        for metric, contrasts in self.by_metric.items():
            for effect, contrast in zip(effects, contrasts, strict=True):
                effect[metric] = contrast.as_json()
        head = {"group": self.group, "title": self.title}
        return {**head, "effects": effects, "notes": list(self.notes)}


def design_effects(table: Table) -> list[DesignEffects]:
    """The effects of every design of the study, at the seeds and the level of its verdicts."""
    table = table.judged_part()
    effects = []
    paths: dict[str, list[PathDesign]] = {}
    for design in table.experiment.setup.designs:
        if isinstance(design, FactorialDesign):
            effects.append(_factorial_effects(table, design))
        else:
            paths.setdefault(design.group, []).append(design)
    for group, designs in paths.items():
        effects.append(_path_effects(table, group, designs))
    return effects


def effects_layout(table: Table, design: DesignEffects) -> Layout:
    """The effects of a design as a table."""
    columns = [TextColumn("effect" if design.is_factorial else "part", False, design.names)]
    for metric in table.compared:
        if design.by_metric and metric.name not in design.by_metric:
            continue
        contrasts = design.by_metric.get(metric.name, (Contrast(),) * len(design.names))
        cells = tuple(contrast.text(metric) for contrast in contrasts)
        p_values = tuple(p_text(contrast.p) for contrast in contrasts)
        columns.append(TextColumn(f"Δ{metric.title}\n[95 %]", True, cells))
        columns.append(TextColumn("p\n(adj.)", True, p_values))
    return Layout(tuple(columns), design.notes)


def bound_notes(table: Table) -> Iterator[str]:
    """Yield a line if base is so near to 0 or 100 that no detectable difference fits in between."""
    for metric, (base, rows) in itertools.product(table.judged, table.families):
        mean = base.scores[metric.name].mean
        detectable = math.inf
        for row in rows:
            verdict = row.verdicts.get(metric.name)
            if verdict and not verdict.is_uninformative:
                detectable = min(detectable, verdict.minimum_detectable or math.inf)
        if not metric.is_percentage or mean is None or math.isinf(detectable):
            continue
        for bound, distance in ((0, mean), (100, 100 - mean)):
            if distance < detectable:
                is_ceiling = bound == 100
                direction = "improvements" if is_ceiling == metric.more_is_better else "declines"
                yield (
                    f"{base_name(base)} is near the {'ceiling' if is_ceiling else 'floor'} "
                    f"({number(mean, metric.digits)} of 100 {metric.title}), so {direction} can "
                    f"hardly show: the detectable difference is {metric.size_text(detectable)}. "
                    f"Effects near a bound do not add up."
                )


def base_name(base: TableRow) -> str:
    """A base at the beginning of a sentence; with its size in a study at several sizes."""
    return f"Base of size {base.size}" if base.size else "Base"


# Factorials


def _factorial_effects(table: Table, design: FactorialDesign) -> DesignEffects:
    cells = list(map(table.by_label.get, design.rows))
    names = tuple(design.alias_line(effect, 2) for effect in design.fraction.contrasts())
    levels = [f"{name}: {low} to {high}" for name, (low, high) in design.levels.items()]
    notes = [
        f"Levels: {', '.join(levels)}.",
        "Main effect: mean over the cells at the second level less mean at the first. Interaction "
        "of two: half the difference between the effect of one at the second and at the first "
        "level of the other.",
    ]
    by_metric: dict[str, tuple[Contrast, ...]] = {}
    for metric in table.compared:
        scores = []
        for row in cells:
            if row is not None and row.scores[metric.name].n:
                scores.append(list(row.scores[metric.name].transformed.values()))
        if len(scores) == len(cells):
            estimates = effects(design.fraction, scores, table.level)
            by_metric[metric.name] = tuple(
                Contrast.build(estimate, metric) for estimate in estimates
            )
    notes += _factorial_notes(table, cells, by_metric)
    title = f"{design.group}: {design.title}"
    return DesignEffects(design.group, title, names, True, by_metric, tuple(notes))


def _factorial_notes(
    table: Table, cells: list[TableRow | None], by_metric: Mapping[str, tuple[Contrast, ...]]
) -> Iterator[str]:
    counts = []
    for row in cells:
        counts.append(0 if row is None else row.scores[table.main.name].n)
    contrasts = itertools.chain.from_iterable(by_metric.values())
    if missing := counts.count(0):
        yield (
            f"{missing} of {plural(len(cells), 'cell')} have no score yet; effects need all of "
            f"them."
        )
    elif any(contrast.p is None for contrast in contrasts):
        several = "No spread over the seeds of any cell"
        why = several if max(counts) > 1 else "One score in each cell"
        yield f"{why}: the error, and so intervals and p values, are unknown."
    else:
        yield (
            "Intervals and p: t, with the error pooled over the cells, Holm-corrected over the "
            "effects."
        )
    yield from table.experiment.looks.note()
    yield from _diverged(cells)


def _diverged(rows: Iterable[TableRow | None]) -> Iterator[str]:
    count = 0
    for row in filter(None, rows):
        count += list(row.states.values()).count("diverged")
    if count:
        have = "has" if count == 1 else "have"
        yield f"{plural(count, 'run')} diverged and {have} no score in these effects."


# Paths


_MEANINGS = {
    "cumulative": "After those before: base with all parts up to this one, less base with those "
    "before it.",
    "add-one-in": "Added to base: base with the part, less base.",
    "leave-one-out": "In all others: the row with every part, less that without it.",
}


class _Pair(NamedTuple):
    """A line of the table of paths: a row, and the row that it is compared with.

    is_addition: whether the pair adds a part to base.
    """

    name: str
    row: TableRow | None
    base: TableRow | None
    is_addition: bool = False


def _path_effects(table: Table, group: str, designs: list[PathDesign]) -> DesignEffects:
    """The effects of all paths of a group: each part is added to base or to the parts before it, or
    left out of the target.
    """
    rows = table.by_label
    base = table.rows[0]
    for label in designs[0].rows:
        if label in rows:
            base = rows[rows[label].base]
    pairs: list[_Pair] = []
    for design in designs:
        previous: TableRow | None = base
        for part, label in zip(design.parts, design.rows, strict=True):
            if design.way == "cumulative":
                pairs.append(_Pair(f"{part}, after those before", rows.get(label), previous))
                previous = rows.get(label)
            elif design.way == "add-one-in":
                pairs.append(_Pair(f"{part}, added to base", rows.get(label), base, True))
            else:
                target = rows.get(design.target)
                pairs.append(_Pair(f"{part}, in all others", target, rows.get(label)))
    pairs.append(_Pair("all parts", rows.get(designs[0].target), base))
    names = tuple(pair.name for pair in pairs)
    by_metric = {}
    for metric in table.compared:
        by_metric[metric.name] = _differences(pairs, metric, table.level)
    ways = tuple(dict.fromkeys(design.way for design in designs))
    notes = [
        " ".join(meaning for way, meaning in _MEANINGS.items() if way in ways),
        "Differences from base: interval and p of the verdict. Others: paired t over seeds, "
        "Holm-corrected over these lines; none without a spread, and no interval that would hold "
        "every difference.",
        *table.experiment.looks.note(),
        *_sum_note(table.main, pairs, by_metric[table.main.name]),
        *_diverged(pair.row for pair in pairs),
    ]
    title = f"{group}: {enumeration(ways)}"
    return DesignEffects(group, title, names, False, by_metric, tuple(notes))


def _differences(pairs: list[_Pair], metric: Metric, level: float) -> tuple[Contrast, ...]:
    """The contrast of each pair: from the verdict for a row and its base, else from a paired t
    test, with Holm's correction over these tests.
    """
    name = metric.name
    contrasts = [Contrast()] * len(pairs)
    tested: dict[int, tuple[list[float], float]] = {}
    p_values = []
    for index, (_, row, base, _) in enumerate(pairs):
        if row is None or base is None:
            continue
        if row.base == base.label and name in row.verdicts:
            verdict = row.verdicts[name]
            contrasts[index] = Contrast(verdict.mean, verdict.interval, verdict.p)
            continue
        paired = row.scores[name].minus(base.scores[name])
        differences = list(paired.by_seed.values())
        test = paired_t_test(differences)
        contrasts[index] = Contrast(paired.mean)
        if test is not None:
            base_scores = base.scores[name].with_seeds(paired.by_seed).transformed.values()
            tested[index] = differences, metric.lower_bound(statistics.fmean(base_scores))
            p_values.append(test.p)
    corrections = holm_correction(p_values, len(p_values), level)
    for index, corrected in zip(tested, corrections, strict=True):
        differences, lower_bound = tested[index]
        test = paired_t_test(differences, corrected.level)
        assert test is not None
        interval = metric.informative_interval(test.low, test.high, lower_bound, test.mean)
        contrasts[index] = Contrast(test.mean, interval, corrected.p)
    return tuple(contrasts)


def _sum_note(
    metric: Metric, pairs: Sequence[_Pair], contrasts: Sequence[Contrast]
) -> Iterator[str]:
    """Yield the sum of the single additions and the effect of all parts together. Parts interact if
    the two differ.
    """
    additions = []
    for pair, contrast in zip(pairs, contrasts, strict=True):
        if pair.is_addition:
            if contrast.value is None:
                return
            additions.append(contrast.value)
    all_parts = contrasts[-1].value
    if additions and all_parts is not None:
        yield (
            f"The single additions sum to {metric.difference_text(sum(additions))} {metric.title}; "
            f"all parts together give {metric.difference_text(all_parts)}."
        )
