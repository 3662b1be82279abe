"""Two rows of a study side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.report.curves import Curve, evaluations
from ablate.report.scores import verdict_json
from ablate.report.table import Table, TableRow
from ablate.stats.verdict import Verdict
from ablate.store import Results
from ablate.tasks import Sample


@dataclass(frozen=True)
class ItemDifference:
    """An item of the test split that both rows have predicted.

    number: of the item, from 1.
    given: (name, text) of the input and the reference.
    texts: predictions of both rows.
    scores: of each prediction alone.
    """

    number: int
    given: tuple[tuple[str, str], ...]
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
    sentences: tuple[ItemDifference, ...] = ()

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
                    "number": one.number, **dict(one.given),
                    "translations": list(one.texts), self.table.main.name: list(one.scores),
                }
                for one in self.sentences
            ],
        }  # fmt: skip


def compare(table: Table, first: TableRow, second: TableRow, results: Results) -> Comparison:
    """Compare two rows, without their sentences."""
    (judged,) = table.against(first, [second])
    before, after = (row.row.config.model_dump() for row in (first, second))
    settings = tuple((name, before[name], after[name]) for name in before if before[name] != after[name])
    curves = (_curve(table, first, results), _curve(table, second, results))
    shown = {metric.name: judged.verdicts[metric.name] for metric in table.metrics}
    return Comparison(table, first, second, settings, shown, curves)


def _curve(table: Table, row: TableRow, results: Results) -> Curve:
    found = {run.seed: evaluations(results.run(run.id)) for run in table.study.runs_of(row.row)}
    return Curve(row.row.label, row.row.group, {seed: points for seed, points in found.items() if points})


def differing_most(
    texts: tuple[Sequence[str], Sequence[str]],
    scores: tuple[Sequence[float], Sequence[float]],
    count: int,
    more_is_better: bool,
    given: Callable[[Sequence[int]], Iterable[Sample]],
) -> tuple[ItemDifference, ...]:
    """The items in which two rows differ most: the `count` worst of the second row, then its `count` best.

    Args:
        texts: predictions of both rows.
        scores: of each prediction alone.
        count: on each side.
        more_is_better: whether a higher score is better.
        given: the texts of some items, by index.
    """
    sign = 1 if more_is_better else -1
    differences = [(sign * (y - x), i) for i, (x, y) in enumerate(zip(*scores, strict=True)) if x != y]
    differences.sort()
    worse = [i for difference, i in differences if difference < 0][:count]
    better = [i for difference, i in sorted(differences, key=lambda one: (-one[0], -one[1])) if difference > 0][:count]
    picked = [*worse, *better]
    return tuple(
        ItemDifference(i + 1, sample.texts, (texts[0][i], texts[1][i]), (scores[0][i], scores[1][i]))
        for i, sample in zip(picked, given(picked), strict=True)
    )
