"""Two rows of a study side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablate.report.curves import Curve, evaluations
from ablate.report.table import Table, TableRow
from ablate.report.verdicts import against_base
from ablate.report.verdicts import as_json as verdict_json
from ablate.stats.verdict import Verdict
from ablate.store import Results


@dataclass(frozen=True)
class Translated:
    """A sentence that both rows have translated, and what a metric says of it alone, before and after."""

    number: int
    source: str
    reference: str
    texts: tuple[str, str]
    scores: tuple[float, float]

    @property
    def difference(self) -> float:
        """The second row's score less the first's."""
        return self.scores[1] - self.scores[0]


@dataclass(frozen=True)
class Comparison:
    """The second row against the first, as the only pair that is looked at: nothing is corrected for others.

    settings: the fields in which they differ, with both values.
    verdicts: by metric.
    seed: whose sentences are shown; None where no seed has both.
    sentences: those of the test side in which they differ most, the second row's worst first.
    """

    table: Table
    first: TableRow
    second: TableRow
    settings: tuple[tuple[str, Any, Any], ...]
    verdicts: dict[str, Verdict]
    curves: tuple[Curve, Curve]
    seed: int | None = None
    sentences: tuple[Translated, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        rows = (self.first, self.second)
        return {
            "study": self.table.study.name,
            "rows": [row.row.label for row in rows],
            "states": [{str(seed): state for seed, state in row.states.items()} for row in rows],
            "settings": [{"field": name, "values": [a, b]} for name, a, b in self.settings],
            "scores": {
                name: {"rows": [row.scores[name].as_json() for row in rows], "difference": verdict_json(verdict)}
                for name, verdict in self.verdicts.items()
            },
            "cost": [{"params": row.params, **row.cost.as_json()} for row in rows],
            "curves": [
                {"row": one.row, "ppl": {str(seed): points for seed, points in one.by_seed.items()}}
                for one in self.curves
            ],
            "seed_of_sentences": self.seed,
            "sentences": [
                {
                    "number": one.number, "source": one.source, "reference": one.reference,
                    "translations": list(one.texts), self.table.main.name: list(one.scores),
                }
                for one in self.sentences
            ],
        }  # fmt: skip


def compare(table: Table, first: TableRow, second: TableRow, results: Results) -> Comparison:
    """Compare two rows, without their sentences."""
    (verdicts,) = against_base(first.measured, [second.measured])
    before, after = (row.row.config.model_dump() for row in (first, second))
    settings = tuple((name, before[name], after[name]) for name in before if before[name] != after[name])
    curves = (_curve(table, first, results), _curve(table, second, results))
    shown = {metric.name: verdicts[metric.name] for metric in table.metrics}
    return Comparison(table, first, second, settings, shown, curves)


def _curve(table: Table, row: TableRow, results: Results) -> Curve:
    found = {run.seed: evaluations(results.run(run.id)) for run in table.study.runs_of(row.row)}
    return Curve(row.row.label, row.row.group, {seed: points for seed, points in found.items() if points})


def differing_most(
    sources: Sequence[str],
    references: Sequence[str],
    texts: tuple[Sequence[str], Sequence[str]],
    scores: tuple[Sequence[float], Sequence[float]],
    count: int,
    more_is_better: bool,
) -> tuple[Translated, ...]:
    """The sentences in which two rows differ most: so many of the second's worst, then so many of its best."""
    sign = 1 if more_is_better else -1
    pairs = [
        Translated(i + 1, source, reference, (a, b), (x, y))
        for i, (source, reference, a, b, x, y) in enumerate(zip(sources, references, *texts, *scores, strict=True))
        if x != y
    ]
    pairs.sort(key=lambda one: (sign * one.difference, one.number))
    worse = [one for one in pairs if sign * one.difference < 0][:count]
    better = [one for one in reversed(pairs) if sign * one.difference > 0][:count]
    return (*worse, *better)
