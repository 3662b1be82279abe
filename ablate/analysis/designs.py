"""Effects of a study's designs: main effects and interactions of factorials, and parts added or
left out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.analysis.scores import Scores
from ablate.analysis.table import Table, TableRow
from ablate.config.metrics import Metric
from ablate.formatting import plural
from ablate.stats.factorial import effects
from ablate.stats.significance import LEVEL, POWER, holm_levels, paired_t_test
from ablate.study.designs import FactorialDesign, PathDesign


@dataclass(frozen=True)
class Contrast:
    """An effect in one metric; None where scores or seeds are missing.

    low, high: interval at the level of its test: it excludes 0 exactly if `p` is below 0.05.
    p: after Holm's correction over the effects of the design; of a row's difference from base, that
        of its verdict.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    def word(self, metric: Metric) -> str:
        """`better` or `worse` if the effect is significant."""
        if self.value is None or self.p is None or self.p >= LEVEL:
            return ""
        return "better" if (self.value > 0) == metric.more_is_better else "worse"


@dataclass(frozen=True)
class DesignEffects:
    """The effects of one design.

    title: its group and kind.
    names: of the effects.
    is_factorial: whether these are main effects and interactions, and not parts of a path.
    by_metric: contrasts in the order of `names`, by metric; empty while scores are missing.
    notes: how to read them, and what is missing.
    """

    group: str
    title: str
    names: tuple[str, ...]
    is_factorial: bool
    by_metric: Mapping[str, tuple[Contrast, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The effects for scripts."""
        return {
            "group": self.group,
            "title": self.title,
            "effects": [
                {
                    "effect": name,
                    **{
                        metric: {
                            "value": one.value,
                            "low": one.low,
                            "high": one.high,
                            "p_holm": one.p,
                        }
                        for metric, contrasts in self.by_metric.items()
                        for one in (contrasts[index],)
                    },
                }
                for index, name in enumerate(self.names)
            ],
            "notes": list(self.notes),
        }


def design_effects(table: Table) -> list[DesignEffects]:
    """The effects of every design of the study, with those rows that it has; at a look, with its
    seeds and level.
    """
    table = table.as_judged()
    found = [
        _factorial(table, one) for one in table.study.designs if isinstance(one, FactorialDesign)
    ]
    paths: dict[str, list[PathDesign]] = {}
    for one in table.study.designs:
        if isinstance(one, PathDesign):
            paths.setdefault(one.group, []).append(one)
    return [*found, *(_paths(table, group, designs) for group, designs in paths.items())]


def metrics_of(table: Table) -> tuple[Metric, ...]:
    """The metrics that effects are shown in: those of the verdicts, and perplexity."""
    return table.compared


def look_note(table: Table) -> Iterator[str]:
    """Seeds and level of effects and slopes in a study with looks."""
    if table.look is not None:
        yield (
            f"At {table.look.text}, at the level {table.look.level:.3g} that this look spends: "
            f"intervals of at least "
            f"{100 * (1 - table.look.level):.3g} %, p times {LEVEL / table.look.level:.3g}."
        )


def bound_notes(table: Table) -> Iterator[str]:
    """Yield a line if base's scores are nearer to 0 or 100 than the differences that the study
    finds: rows cannot be told apart on that side, and effects near a bound do not add up.
    """
    bases = [row for row in table.rows if row.row.is_base]
    for metric, base in itertools.product(table.judged, bases):
        mean = base.scores[metric.name].mean
        found = []
        for row in table.rows:
            verdict = row.verdicts.get(metric.name)
            if row.row.base == base.row.label and verdict and not verdict.is_blind:
                found.append(verdict.minimum_detectable or math.inf)
        least = min(found, default=math.inf)
        if not metric.of_100 or mean is None or math.isinf(least):
            continue
        for bound, room in ((0, mean), (100, 100 - mean)):
            if room < least:
                word = "better" if (bound == 100) == metric.more_is_better else "worse"
                name = f"Base of size {base.row.size}" if base.row.size else "Base"
                yield (
                    f"{name} is {metric.size_text(room)} {metric.title} from the bound {bound}, "
                    f"less than the {metric.size_text(least)} that the study finds with "
                    f"{POWER:.0%} probability: it can hardly show a row to be {word}, and effects "
                    f"near a bound do not add up."
                )


# Factorials


def _factorial(table: Table, design: FactorialDesign) -> DesignEffects:
    rows = {row.row.label: row for row in table.rows}
    cells = [rows.get(label) for label in design.rows]
    names = tuple(_effect_name(design, effect) for effect in design.fraction.contrasts())
    title, levels = (
        f"{design.group}: {design.title}",
        ", ".join(f"{name}: {low} to {high}" for name, (low, high) in design.levels.items()),
    )
    notes = [
        f"Levels: {levels}.",
        "Main effect: mean over the cells at the second level less mean at the first. Interaction "
        "of two: half the "
        "difference between the effect of one at the second and at the first level of the other.",
    ]
    by_metric: dict[str, tuple[Contrast, ...]] = {}
    for metric in metrics_of(table):
        scores = [list(row.scores[metric.name].on_scale.values()) if row else [] for row in cells]
        if all(scores):
            by_metric[metric.name] = tuple(
                Contrast(one.value, one.low, one.high, one.p_holm)
                for one in effects(design.fraction, scores, table.level)
            )
    notes += _factorial_notes(table, cells, by_metric)
    return DesignEffects(design.group, title, names, True, by_metric, tuple(notes))


def _effect_name(design: FactorialDesign, effect: frozenset[str]) -> str:
    """An effect, with its shortest aliases in a fraction."""
    aliases = design.fraction.aliases(effect)
    shown = [
        design.fraction.signed_text(other, sign)
        for other, sign in aliases.items()
        if len(other) <= 2
    ]
    return " = ".join([design.fraction.text(effect), *shown])


def _factorial_notes(
    table: Table, cells: list[TableRow | None], by_metric: Mapping[str, tuple[Contrast, ...]]
) -> Iterator[str]:
    missing = sum(row is None or not row.scores[table.main.name].n for row in cells)
    if missing:
        yield (
            f"{missing} of {plural(len(cells), 'cell')} have no score yet; effects need all of "
            f"them."
        )
    elif any(one.low is None for contrasts in by_metric.values() for one in contrasts):
        several = any(row is not None and row.scores[table.main.name].n > 1 for row in cells)
        why = "No spread over the seeds of any cell" if several else "One score in each cell"
        yield f"{why}: the error, and so intervals and p values, are unknown."
    else:
        yield (
            "Intervals and p: t, with the error pooled over the cells, Holm-corrected over the "
            "effects."
        )
    yield from look_note(table)
    yield from bound_notes(table)
    yield from _diverged(row for row in cells if row)


def _diverged(rows: Iterator[TableRow]) -> Iterator[str]:
    count = sum(state == "diverged" for row in rows for state in row.states.values())
    if count:
        yield (
            f"{plural(count, 'run')} diverged and {'has' if count == 1 else 'have'} no score in "
            f"these effects."
        )


# Paths


def _paths(table: Table, group: str, designs: list[PathDesign]) -> DesignEffects:
    """One table for all paths of a group: each part added to base, and left out of the whole."""
    rows = {row.row.label: row for row in table.rows}
    base = next(
        (rows[rows[label].row.base] for label in designs[0].rows if label in rows), table.rows[0]
    )
    pairs: list[
        tuple[str, TableRow | None, TableRow | None]
    ] = []  # name, row, row that it is compared with
    for design in designs:
        for part, label in zip(design.parts, design.rows, strict=True):
            row, whole = rows.get(label), rows.get(design.whole)
            added = design.way == "add-one-in"
            pairs.append(
                (f"{part}, added to base", row, base)
                if added
                else (f"{part}, in all others", whole, row)
            )
    pairs.append(("all parts", rows.get(designs[0].whole), base))
    by_metric = {
        metric.name: _differences(pairs, metric.name, table.level) for metric in metrics_of(table)
    }
    notes = [
        "Added to base: base with the part, less base. In all others: the row with every part, "
        "less that without it.",
        "Differences from base: interval and p of the verdict. Without the part: paired t over "
        "seeds, Holm-corrected over these lines; none without a spread.",
        *look_note(table),
        *bound_notes(table),
        *_sum_note(table, designs, by_metric),
        *_diverged(row for _, row, _ in pairs if row),
    ]
    ways = " and ".join(dict.fromkeys(design.way for design in designs))
    return DesignEffects(
        group,
        f"{group}: {ways}",
        tuple(name for name, _, _ in pairs),
        False,
        by_metric,
        tuple(notes),
    )


def _differences(
    pairs: list[tuple[str, TableRow | None, TableRow | None]], metric: str, level: float
) -> tuple[Contrast, ...]:
    contrasts = [Contrast()] * len(pairs)
    removed: list[tuple[int, list[float], float]] = []
    for index, (_, row, other) in enumerate(pairs):
        if row is None or other is None:
            continue
        if row.row.base == other.row.label and metric in row.verdicts:
            verdict = row.verdicts[metric]
            low, high = verdict.interval or (None, None)
            contrasts[index] = Contrast(verdict.mean, low, high, verdict.p)
            continue
        differences = list(row.scores[metric].minus(other.scores[metric]).by_seed.values())
        test = paired_t_test(differences)
        contrasts[index] = Contrast(Scores(dict(enumerate(differences))).mean)
        if test is not None:
            removed.append((index, differences, test.p))
    levels = holm_levels([p for _, _, p in removed], len(removed), level)
    for (index, differences, _), (p, own_level) in zip(removed, levels, strict=True):
        test = paired_t_test(differences, own_level)
        assert test is not None
        contrasts[index] = Contrast(test.mean, test.low, test.high, p)
    return tuple(contrasts)


def _sum_note(
    table: Table, designs: list[PathDesign], by_metric: Mapping[str, tuple[Contrast, ...]]
) -> Iterator[str]:
    """The sum of the single additions beside the whole: parts that do not add up interact."""
    first = next(
        (place for place, design in enumerate(designs) if design.way == "add-one-in"), None
    )
    if first is None:
        return
    contrasts, metric = by_metric[table.main.name], table.main
    start = sum(len(design.parts) for design in designs[:first])
    singles = [one.value for one in contrasts[start : start + len(designs[first].parts)]]
    whole = contrasts[-1].value
    if whole is not None and None not in singles:
        total = sum(value for value in singles if value is not None)
        yield (
            f"The single additions sum to {metric.difference_text(total)} {metric.title}; all "
            f"parts together give {metric.difference_text(whole)}."
        )
