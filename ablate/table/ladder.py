"""A study at several model sizes: for each row, the sign, the rank and the slope of its difference
from base over the sizes.

The size is the number of parameters of base. The slope is fitted for each seed, by least squares,
to the differences over log10(size); its interval is Student's t over the seeds. Rows often change
with scale: "Scaling Laws vs Model Architectures" (Tay et al., 2022), arXiv 2207.10551.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.formatting import number
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, PairedTTest, kendall_tau_b, paired_t_test
from ablate.table.layout import Layout, TextColumn
from ablate.table.scores import Scores, count_of
from ablate.table.table import Table


@dataclass(frozen=True)
class Rung:
    """A row at one size.

    params: number of parameters of base.
    rank: among the rows of this size and base; 1 is the best. None while a score is missing.
    """

    params: int
    difference: Scores
    rank: int | None


@dataclass(frozen=True)
class RowOverSizes:
    """A row at all sizes, in one metric.

    rungs: in the order of the sizes in the study.
    level: level of the interval of the slope.
    n_seeds: number of seeds with which rows are judged.
    """

    name: str
    rungs: tuple[Rung, ...]
    level: float = LEVEL
    n_seeds: int = 0

    @property
    def signs(self) -> str:
        """`holds` if all mean differences have the same sign, otherwise `changes`; empty if a
        difference is missing or all are 0.
        """
        signs = set()
        for rung in self.rungs:
            mean = rung.difference.mean
            if mean is None:
                return ""
            signs.add((mean > 0) - (mean < 0))
        if signs <= {0}:
            return ""
        return "holds" if len(signs) == 1 else "changes"

    @property
    def slopes(self) -> dict[int, float]:
        """Change of the difference for ten times the parameters, by seed; only seeds that have a
        score at every size.
        """
        x = []
        differences: dict[int, list[float]] = {}
        for rung in self.rungs:
            x.append(math.log10(rung.params))
            for seed, difference in rung.difference.by_seed.items():
                differences.setdefault(seed, []).append(difference)
        slopes = {}
        for seed, y in sorted(differences.items()):
            if len(y) == len(x) and len(set(x)) > 1:
                slopes[seed] = statistics.linear_regression(x, y).slope
        return slopes

    @property
    def slope(self) -> PairedTTest | None:
        """The mean slope with its interval over seeds; None with fewer than two seeds, or if all
        slopes are equal.
        """
        return paired_t_test(list(self.slopes.values()), self.level)

    def as_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        slope: dict[str, Any] | None = None
        if test := self.slope:
            slope = {"mean": test.mean, "low": test.low, "high": test.high, "p": test.p}
            if len(self.slopes) < self.n_seeds:
                slope["seeds"] = list(self.slopes)
        return {
            "row": self.name,
            "differences": [rung.difference.as_json(self.n_seeds) for rung in self.rungs],
            "ranks": [rung.rank for rung in self.rungs],
            "sign": self.signs or None,
            "slope": slope,
        }


@dataclass(frozen=True)
class Ladder:
    """The rows that every size of a study has, in one metric.

    sizes: number of parameters of base, by the name of the size.
    notes: about the intervals.
    """

    metric: Metric
    sizes: Mapping[str, int]
    rows: tuple[RowOverSizes, ...]
    notes: tuple[str, ...] = ()

    @property
    def has_differences(self) -> bool:
        """Whether some row has a score at some size, and the sizes differ."""
        has_scores = any(rung.difference.n for row in self.rows for rung in row.rungs)
        return has_scores and len(set(self.sizes.values())) > 1

    def tau(self, first: str, second: str) -> float | None:
        """Kendall's tau-b of the rows' mean differences at two sizes; None with fewer than two
        rows.
        """
        order = list(self.sizes)
        first_means = []
        second_means = []
        for row in self.rows:
            first_mean = row.rungs[order.index(first)].difference.mean
            second_mean = row.rungs[order.index(second)].difference.mean
            if first_mean is not None and second_mean is not None:
                first_means.append(first_mean)
                second_means.append(second_mean)
        return kendall_tau_b(first_means, second_means) if len(first_means) > 1 else None

    def as_json(self) -> dict[str, Any]:
        """The ladder as JSON values."""
        rows = list(map(RowOverSizes.as_json, self.rows))
        return {"metric": self.metric.name, "sizes": dict(self.sizes), "rows": rows}


def ladders(table: Table) -> list[Ladder]:
    """A ladder for each metric of the verdicts and for perplexity; none for a single size."""
    table = table.judged_part()
    if len(table.families) < 2:
        return []
    return [_ladder(table, metric) for metric in table.compared_metrics]


def _ladder(table: Table, metric: Metric) -> Ladder:
    rungs: dict[str, list[Rung]] = {}
    sizes = {}
    for base, rows in table.families:
        sizes[base.size] = base.recipe.params
        # With base's further seeds, as in the table of verdicts.
        differences = {row.label: row.deltas[metric.name] for row in rows}
        ranks = _ranks(differences, metric)
        for row in rows:
            label = row.label
            rung = Rung(base.recipe.params, differences[label], ranks.get(label))
            rungs.setdefault(row.name, []).append(rung)
    n_seeds = len(table.experiment.judged_seeds or table.experiment.seeds)
    common = []
    for name, row_rungs in rungs.items():
        if len(row_rungs) == len(sizes):
            common.append(RowOverSizes(name, tuple(row_rungs), table.level, n_seeds))
    legend = table.experiment.looks.legend_of_effects
    return Ladder(metric, sizes, tuple(common), (legend,) if legend else ())


def _ranks(differences: Mapping[str, Scores], metric: Metric) -> dict[str, int]:
    """Rank of each row among the rows and base, by the mean difference from base.

    Rows with equal differences share the better rank. Empty while a difference is missing, because
    the missing row may change every rank.
    """
    means: dict[str, float] = {}
    sign = 1 if metric.more_is_better else -1
    for label, difference in differences.items():
        mean = difference.mean
        if mean is None:
            return {}
        means[label] = sign * mean
    order = sorted([0.0, *means.values()], reverse=True)
    return {label: 1 + order.index(mean) for label, mean in means.items()}


def ladder_layout(ladder: Ladder) -> Layout:
    """The rows over model sizes as a table."""
    heads = ["row"]
    for size, params in ladder.sizes.items():
        heads.append(f"{size}\n({params / 1e6:.3g}M)")
    lines = [[*heads, "sign", "rank", "slope\n[95 %]"]]
    for row in ladder.rows:
        lines.append(_ladder_cells(row, ladder.metric))
    columns = []
    for head, *cells in zip(*lines, strict=True):
        columns.append(TextColumn(head, "\n" in head, tuple(cells)))
    return Layout(tuple(columns), tuple(_notes(ladder)))


def _ladder_cells(row: RowOverSizes, metric: Metric) -> list[str]:
    differences = []
    for rung in row.rungs:
        text = metric.difference_text(rung.difference.mean)
        differences.append(text + count_of(rung.difference.n, row.n_seeds))
    ranks = ", ".join(str(rung.rank or "?") for rung in row.rungs)
    test = row.slope
    interval = (test.low, test.high) if test else None
    slope = metric.difference_text(Scores(row.slopes).mean, interval, extra_digits=1)
    slope += count_of(len(row.slopes), row.n_seeds)
    return [row.name, *differences, row.signs, ranks, slope]


def _notes(ladder: Ladder) -> Iterator[str]:
    """Yield explanations of the table of a ladder, and the rank correlations of its sizes."""
    yield f"Δ{ladder.metric.title} from the base of each size; its parameters are in the head."
    yield (
        "sign: whether the mean differences of all sizes have one sign. rank: at each size by Δ, "
        "with base; 1 is the best."
    )
    yield (
        "slope: of Δ per tenfold parameters, least squares for each seed; interval: t over seeds, "
        "uncorrected."
    )
    yield from ladder.notes
    texts = []
    for size, following in itertools.pairwise(ladder.sizes):
        tau = ladder.tau(size, following)
        if tau is not None:
            texts.append(f"{size} to {following} {number(tau, 2)}")
    if texts:
        yield f"Order of the rows from one size to the next, Kendall's tau-b: {', '.join(texts)}."
