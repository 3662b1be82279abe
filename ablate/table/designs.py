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
from ablate.stats import factorial
from ablate.stats.designs import FactorialDesign, PathDesign
from ablate.stats.metrics import Interval, Metric
from ablate.stats.significance import LEVEL, holm_correction, paired_t_test
from ablate.table.experiment import ExperimentRun
from ablate.table.layout import Layout, TextColumn
from ablate.table.table import Table, TableRow

NEAR_BOUND = 15.0  # percentage points: a base at most so far from 0 or 100 is near this bound


@dataclass(frozen=True)
class EffectEstimate:
    """The estimate of an effect in one metric. A number is None while scores or seeds that it needs
    are missing.

    interval: confidence interval (low, high) at the level of the test: it excludes 0 exactly if `p`
        is below 0.05.
    p: p value after Holm's correction over the effects of the design. For the difference of a row
        from base, it is the p value of the verdict.
    """

    value: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None

    @classmethod
    def of_factorial(cls, estimate: factorial.Estimate, metric: Metric) -> EffectEstimate:
        """The estimate of an effect of a factorial, with its interval clipped to the possible
        differences.
        """
        if estimate.low is None or estimate.high is None:
            return cls(estimate.value)
        possible = metric.possible_differences(estimate.mean_at_low_level)
        interval = metric.clipped(estimate.low, estimate.high, possible, estimate.value)
        return cls(estimate.value, interval, estimate.p_holm)

    def as_json(self) -> dict[str, float | None]:
        """The estimate as JSON values."""
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

    group: group of the design's rows.
    title: the group and the kind of the design.
    names: names of the effects.
    is_factorial: whether the effects are main effects and interactions; False for effects of the
        parts of a path.
    by_metric: estimates in the order of `names`, by metric; empty while scores are missing.
    notes: lines that explain the effects and name missing scores.
    """

    group: str
    title: str
    names: tuple[str, ...]
    is_factorial: bool
    by_metric: Mapping[str, tuple[EffectEstimate, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The effects as JSON values."""
        effects: list[dict[str, Any]] = [{"effect": name} for name in self.names]
        for metric, estimates in self.by_metric.items():
            for effect, estimate in zip(effects, estimates, strict=True):
                effect[metric] = estimate.as_json()
        head = {"group": self.group, "title": self.title}
        return {**head, "effects": effects, "notes": list(self.notes)}


def design_effects(table: Table) -> list[DesignEffects]:
    """The effects of every design of the study, with the seeds and the level of the verdicts."""
    judged = table.judged_part()
    effects = []
    paths: dict[str, list[PathDesign]] = {}
    for design in judged.experiment.setup.designs:
        if isinstance(design, FactorialDesign):
            effects.append(_factorial_effects(judged, design))
        else:
            paths.setdefault(design.group, []).append(design)
    for group, designs in paths.items():
        effects.append(_path_effects(judged, group, designs))
    return effects


def effects_layout(table: Table, design: DesignEffects) -> Layout:
    """The effects of a design as a table."""
    columns = [
        TextColumn("effect" if design.is_factorial else "part", numeric=False, cells=design.names)
    ]
    for metric in table.compared_metrics:
        # Without any estimate, all cells are empty; else a metric without estimates has no column.
        if design.by_metric and metric.name not in design.by_metric:
            continue
        estimates = design.by_metric.get(metric.name, (EffectEstimate(),) * len(design.names))
        cells = tuple(estimate.text(metric) for estimate in estimates)
        p_values = tuple(p_text(estimate.p) for estimate in estimates)
        columns.append(TextColumn(f"Δ{metric.title}\n[95 %]", numeric=True, cells=cells))
        columns.append(TextColumn("p\n(adj.)", numeric=True, cells=p_values))
    return Layout(tuple(columns), design.notes)


def bound_notes(table: Table) -> Iterator[str]:
    """Yield a line for each base whose distance from 0 or 100 is below the detectable difference:
    scores cannot change by so much in this direction. The cause is the bound if base is within
    NEAR_BOUND of it, else the noise.
    """
    for metric, (base, rows) in itertools.product(table.judged_metrics, table.families):
        mean = base.scores[metric.name].mean
        detectable = math.inf
        for row in rows:
            verdict = row.verdicts.get(metric.name)
            if verdict:
                detectable = min(detectable, verdict.minimum_detectable or math.inf)
        if not metric.is_percentage or mean is None or math.isinf(detectable):
            continue
        best_bound = "ceiling" if metric.more_is_better else "floor"
        score = f"{number(mean, metric.digits)} of 100 {metric.title}"
        out_of_reach = []
        distances = {"floor": mean}
        if metric.more_is_better:  # an error rate may exceed 100 %
            distances["ceiling"] = 100 - mean
        for bound, distance in distances.items():
            article, change = ("an", "improvement") if bound == best_bound else ("a", "decline")
            if NEAR_BOUND < distance < detectable:
                out_of_reach.append(change)
            elif distance <= 0:
                yield f"{base_name(base)} is at the {bound} ({score}): no {change} is possible."
            elif distance < detectable:
                yield (
                    f"{base_name(base)} is near the {bound} ({score}): {article} {change} is at "
                    f"most {metric.size_text(distance)}, too small to be found."
                )
        if out_of_reach:
            changes = " or ".join(out_of_reach)
            yield (
                f"With this noise, no {changes} from {base_name(base).replace('B', 'b', 1)} can be "
                f"found: the smallest detectable difference, {metric.size_text(detectable)} "
                f"{metric.title}, is larger than any possible {changes}."
            )


def base_name(base: TableRow) -> str:
    """The name of a base at the beginning of a sentence, with its size if the study has several."""
    return f"Base of size {base.size}" if base.size else "Base"


# Factorials


def _factorial_effects(table: Table, design: FactorialDesign) -> DesignEffects:
    cells = list(map(table.by_label.get, design.rows))
    names = []
    for effect in design.fraction.contrasts():
        names.append(design.alias_line(effect, max_factors=2))
    levels = [f"{name}: {low} to {high}" for name, (low, high) in design.levels.items()]
    notes = [
        f"Levels: {', '.join(levels)}.",
        "Main effect: mean over the cells at the second level minus mean over the cells at the "
        "first. Interaction of A and B: half of (effect of A at the second level of B minus effect "
        "of A at the first level of B).",
    ]
    by_metric: dict[str, tuple[EffectEstimate, ...]] = {}
    for metric in table.compared_metrics:
        scores = []
        for row in cells:
            if row is not None and row.scores[metric.name].n:
                scores.append(list(row.scores[metric.name].transformed.values()))
        if len(scores) == len(cells):
            estimates = factorial.effects(design.fraction, scores, table.level)
            by_metric[metric.name] = tuple(
                EffectEstimate.of_factorial(estimate, metric) for estimate in estimates
            )
    notes += _factorial_notes(table, cells, by_metric)
    title = f"{design.group}: {design.title}"
    return DesignEffects(design.group, title, tuple(names), True, by_metric, tuple(notes))


def _factorial_notes(
    table: Table, cells: list[TableRow | None], by_metric: Mapping[str, tuple[EffectEstimate, ...]]
) -> Iterator[str]:
    counts = []
    for row in cells:
        counts.append(0 if row is None else row.scores[table.main_metric.name].n)
    estimates = itertools.chain.from_iterable(by_metric.values())
    if not table.experiment.judged_seeds:
        yield "No effects before the first look is complete."
    elif missing := counts.count(0):
        yield (
            f"{missing} of {plural(len(cells), 'cell')} have no score in this table; effects need "
            f"all of them."
        )
    elif any(estimate.p is None for estimate in estimates):
        reason = (
            "No spread over the seeds of any cell" if max(counts) > 1 else "One score in each cell"
        )
        yield f"{reason}: the error is unknown, and with it intervals and p values."
    else:
        yield (
            "Intervals and p: t, with the error pooled over the cells, Holm-corrected over the "
            "effects."
        )
    if legend := table.experiment.looks.legend_of_effects:
        yield legend
    yield from _diverged_note(_runs_of(cells))
    if by_metric:
        yield from _unscored_note(table, _runs_of(cells))


def _diverged_note(runs: Iterable[ExperimentRun]) -> Iterator[str]:
    count = sum(run.state == "diverged" for run in runs)
    if count:
        have = "has" if count == 1 else "have"
        yield f"{plural(count, 'run')} diverged and {have} no score in these effects."


def _unscored_note(table: Table, runs: Iterable[ExperimentRun]) -> Iterator[str]:
    name = table.main_metric.name
    count = sum(run.state != "diverged" and name not in run.scores for run in runs)
    if count:
        have = "has" if count == 1 else "have"
        yield f"{plural(count, 'run')} {have} no score yet: some effects are over fewer seeds."


def _runs_of(rows: Iterable[TableRow | None]) -> list[ExperimentRun]:
    """The runs of some rows, each row once."""
    distinct = {row.label: row for row in rows if row is not None}
    return list(itertools.chain.from_iterable(row.runs for row in distinct.values()))


# Paths


_MEANINGS = {
    "cumulative": "After the parts before: score with the parts up to this one minus score with "
    "the parts before it.",
    "add-one-in": "Added to base: score of base with the part minus score of base.",
    "leave-one-out": "With all other parts: score with every part minus score without this part.",
}


class _Pair(NamedTuple):
    """A line of the table of paths: the difference of a row from a reference.

    name: name of the effect.
    row: the row from whose scores the reference's scores are subtracted.
    reference: the row whose scores are subtracted: base, the row before, or the row without a part.
    is_addition: whether the row adds a single part to base.
    """

    name: str
    row: TableRow | None
    reference: TableRow | None
    is_addition: bool = False


def _path_effects(table: Table, group: str, designs: list[PathDesign]) -> DesignEffects:
    """The effects of all paths of a group: each part is added to base or to the parts before it, or
    left out of the target. The paths of a group lead from the same base to the same target.
    """
    rows = table.by_label
    base = _base_of_path(table, designs[0])
    pairs: list[_Pair] = []
    for design in designs:
        previous: TableRow | None = base
        for part, label in zip(design.parts, design.rows, strict=True):
            if design.way == "cumulative":
                pairs.append(_Pair(f"{part}, after the parts before", rows.get(label), previous))
                previous = rows.get(label)
            elif design.way == "add-one-in":
                pairs.append(
                    _Pair(f"{part}, added to base", rows.get(label), base, is_addition=True)
                )
            else:
                target = rows.get(design.target)
                pairs.append(_Pair(f"{part}, with all other parts", target, rows.get(label)))
    pairs.append(_Pair("all parts", rows.get(designs[0].target), base))
    names = tuple(pair.name for pair in pairs)
    by_metric = {}
    for metric in table.compared_metrics:
        by_metric[metric.name] = _differences(pairs, metric, table.level)
    runs = _runs_of(itertools.chain.from_iterable((pair.row, pair.reference) for pair in pairs))
    ways = tuple(dict.fromkeys(design.way for design in designs))
    notes = [
        " ".join(meaning for way, meaning in _MEANINGS.items() if way in ways),
        "Differences from base: interval and p of the verdict. Other lines: paired t test over "
        "seeds, Holm-corrected over these lines; no p without a spread over seeds, and no interval "
        "if it would cover every possible difference.",
        table.experiment.looks.legend_of_effects,
        *_sum_note(table.main_metric, pairs, by_metric[table.main_metric.name]),
        *_diverged_note(runs),
        *_unscored_note(table, runs),
    ]
    title = f"{group}: {enumeration(ways)}"
    return DesignEffects(group, title, names, False, by_metric, tuple(filter(None, notes)))


def _base_of_path(table: Table, design: PathDesign) -> TableRow:
    """The base of the rows of a path: every model size has its own."""
    rows = table.by_label
    labels = [label for label in design.rows if label in rows]
    return rows[rows[labels[0]].base] if labels else table.rows[0]


def _differences(pairs: list[_Pair], metric: Metric, level: float) -> tuple[EffectEstimate, ...]:
    """The estimate of each pair: from the verdict if the reference is the row's base, else from a
    paired t test, with Holm's correction over these tests.
    """
    name = metric.name
    estimates = [EffectEstimate()] * len(pairs)
    # Index of a pair -> its differences, and the possible differences.
    tested: dict[int, tuple[list[float], Interval]] = {}
    p_values = []
    for index, pair in enumerate(pairs):
        row, reference = pair.row, pair.reference
        if row is None or reference is None:
            continue
        if row.base == reference.label and name in row.verdicts:
            verdict = row.verdicts[name]
            estimates[index] = EffectEstimate(verdict.mean, verdict.interval, verdict.p_adjusted)
            continue
        paired = row.scores[name].minus(reference.scores[name])
        differences = list(paired.by_seed.values())
        test = paired_t_test(differences)
        estimates[index] = EffectEstimate(paired.mean)
        if test is not None:
            reference_scores = reference.scores[name].only_seeds(paired.by_seed).transformed
            reference_mean = statistics.fmean(reference_scores.values())
            tested[index] = differences, metric.possible_differences(reference_mean)
            p_values.append(test.p)
    # Holm's correction gives each test the level of its interval, so the test is made again.
    corrections = holm_correction(p_values, len(p_values), level)
    for index, corrected in zip(tested, corrections, strict=True):
        differences, possible = tested[index]
        test = paired_t_test(differences, corrected.level)
        assert test is not None
        interval = metric.clipped(test.low, test.high, possible, test.mean)
        estimates[index] = EffectEstimate(test.mean, interval, corrected.p)
    return tuple(estimates)


def _sum_note(
    metric: Metric, pairs: Sequence[_Pair], estimates: Sequence[EffectEstimate]
) -> Iterator[str]:
    """Yield the sum of the single additions and the effect of all parts together. Parts interact if
    the two differ.
    """
    additions = []
    for pair, estimate in zip(pairs, estimates, strict=True):
        if pair.is_addition:
            if estimate.value is None:
                return
            additions.append(estimate.value)
    all_parts = estimates[-1].value
    if additions and all_parts is not None:
        yield (
            f"The single additions sum to {metric.difference_text(sum(additions))} {metric.title}; "
            f"all parts together give {metric.difference_text(all_parts)}."
        )
