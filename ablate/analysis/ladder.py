"""A study at several sizes: whether each row keeps its sign and its rank, and the slope of its
difference.

The size of a configuration is the number of parameters of its base. The slope is that of a
least-squares line through the differences from base over the logarithm to base 10 of the size, for
each seed; its interval is Student's t over the seeds. Rows often change with scale: "Scaling Laws
vs Model Architectures" (Tay et al., 2022), arXiv 2207.10551.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.analysis.designs import look_note
from ablate.analysis.scores import Scores
from ablate.analysis.table import Table, TableRow
from ablate.config.metrics import Metric
from ablate.formatting import number
from ablate.stats.significance import LEVEL, PairedTTest, kendall_tau_b, paired_t_test


@dataclass(frozen=True)
class Rung:
    """A row at one size. `rank`: among the rows of the size, base included, 1 the best; None while
    one has no score.
    """

    size: str
    params: int
    difference: Scores
    rank: int | None


@dataclass(frozen=True)
class RowOverSizes:
    """A row at all sizes, in one metric; `rungs` in the order of the study, `level` of the interval
    of the slope.
    """

    name: str
    rungs: tuple[Rung, ...]
    level: float = LEVEL

    @property
    def signs(self) -> str:
        """`holds` if all mean differences have one sign, `changes` if not; empty if one is missing
        or all are 0.
        """
        means = [rung.difference.mean for rung in self.rungs]
        if None in means or not any(means):
            return ""
        found = {math.copysign(1, mean) if mean else 0 for mean in means if mean is not None}
        return "holds" if len(found) == 1 else "changes"

    @property
    def slopes(self) -> dict[int, float]:
        """Slope of the difference per tenfold parameters of base, by seed; only seeds with every
        size.
        """
        if len({rung.params for rung in self.rungs}) < 2:
            return {}
        seeds = set.intersection(*(set(rung.difference.by_seed) for rung in self.rungs))
        # Base 10, so that a slope is the change for ten times the parameters.
        x = [math.log10(rung.params) for rung in self.rungs]
        return {
            seed: statistics.linear_regression(
                x, [rung.difference.by_seed[seed] for rung in self.rungs]
            ).slope
            for seed in sorted(seeds)
        }

    @property
    def slope(self) -> PairedTTest | None:
        """The mean slope with its interval over seeds; None below two seeds, or if all give the
        same slope.
        """
        return paired_t_test(list(self.slopes.values()), self.level)


@dataclass(frozen=True)
class Ladder:
    """The rows of a study that every size has, in one metric; `notes` on the intervals."""

    metric: Metric
    sizes: Mapping[str, int]
    rows: tuple[RowOverSizes, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_differences(self) -> bool:
        """Whether some row has a score at some size, and the sizes differ."""
        return len(set(self.sizes.values())) > 1 and any(
            rung.difference.n for row in self.rows for rung in row.rungs
        )

    def tau(self, one: str, other: str) -> float | None:
        """Kendall's tau-b of the rows' mean differences at two sizes; None while one is missing."""
        order = list(self.sizes)
        first, second = order.index(one), order.index(other)
        pairs = [
            (row.rungs[first].difference.mean, row.rungs[second].difference.mean)
            for row in self.rows
        ]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        return (
            kendall_tau_b([a for a, _ in known], [b for _, b in known]) if len(known) > 1 else None
        )

    def as_json(self) -> dict[str, Any]:
        """The ladder for scripts."""
        return {
            "metric": self.metric.name,
            "sizes": dict(self.sizes),
            "rows": [
                {
                    "row": row.name,
                    "differences": [rung.difference.as_json() for rung in row.rungs],
                    "ranks": [rung.rank for rung in row.rungs],
                    "sign": row.signs or None,
                    "slope": None if (slope := row.slope) is None else {
                        "mean": slope.mean, "low": slope.low, "high": slope.high, "p": slope.p
                    },
                }
                for row in self.rows
            ],
        }  # fmt: skip


def ladders(table: Table) -> list[Ladder]:
    """The ladder in the metrics of the verdicts and in perplexity; none for one size."""
    table = table.as_judged()
    bases = [row for row in table.rows if row.row.is_base]
    if len(bases) < 2:
        return []
    return [_ladder(table, bases, metric) for metric in table.compared]


def _ladder(table: Table, bases: Sequence[TableRow], metric: Metric) -> Ladder:
    by_size = {base.row.size: _rows_of(table, base) for base in bases}
    ranks = {
        size: _ranks([base, *by_size[base.row.size].values()], metric)
        for size, base in zip(by_size, bases, strict=True)
    }
    common = [
        name
        for name in by_size[bases[0].row.size]
        if all(name in rows for rows in by_size.values())
    ]
    rows = [
        RowOverSizes(
            name,
            tuple(
                Rung(
                    base.row.size,
                    base.params,
                    _difference(by_size[base.row.size][name], base, metric),
                    ranks[base.row.size].get(by_size[base.row.size][name].row.label),
                )
                for base in bases
            ),
            table.level,
        )
        for name in common
    ]
    return Ladder(
        metric, {base.row.size: base.params for base in bases}, tuple(rows), tuple(look_note(table))
    )


def _rows_of(table: Table, base: TableRow) -> dict[str, TableRow]:
    """The rows that are compared with this base, by label without the size."""
    return {
        row.row.name: row
        for row in table.rows
        if row.row.base == base.row.label and not row.row.is_base
    }


def _difference(row: TableRow, base: TableRow, metric: Metric) -> Scores:
    return row.scores[metric.name].minus(base.scores[metric.name])


def _ranks(rows: Sequence[TableRow], metric: Metric) -> dict[str, int]:
    """Rank of each row by its mean, equal means sharing the best; empty while one has no score."""
    means = {row.row.label: row.scores[metric.name].mean for row in rows}
    known = {label: mean for label, mean in means.items() if mean is not None}
    # A rank among some of the rows would change when the others finish.
    if len(known) < len(means):
        return {}
    sign = 1 if metric.more_is_better else -1
    return {
        label: 1 + sum(sign * other > sign * mean for other in known.values())
        for label, mean in known.items()
    }


def ladder_notes(ladder: Ladder) -> Iterator[str]:
    """How to read the table of a ladder, and its rank correlations."""
    yield f"Δ{ladder.metric.title} from the base of each size; its parameters are in the head."
    yield (
        "sign: whether the mean differences of all sizes have one sign. rank: at each size, with "
        "base; 1 is the best."
    )
    yield (
        "slope: of Δ per tenfold parameters, least squares for each seed; interval: t over seeds, "
        "uncorrected."
    )
    yield from ladder.notes
    sizes = list(ladder.sizes)
    taus = [(a, b, ladder.tau(a, b)) for a, b in itertools.pairwise(sizes)]
    texts = [f"{a} to {b} {number(tau, 2)}" for a, b, tau in taus if tau is not None]
    if texts:
        yield f"Order of the rows from one size to the next, Kendall's tau-b: {', '.join(texts)}."
