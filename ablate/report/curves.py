"""Learning curves: the dev perplexity of every run at each evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.report.table import Table, TableRow
from ablate.store import Results, RunFolder
from ablate.store.records import read_metrics


@dataclass(frozen=True)
class Curve:
    """Dev perplexity of a row.

    by_seed: (step, perplexity) of each evaluation; only seeds with one.
    """

    row: str
    group: str
    by_seed: Mapping[int, tuple[tuple[int, float], ...]]

    @property
    def mean(self) -> tuple[tuple[int, float], ...]:
        """Geometric mean over seeds, which is the mean of the loss, at the steps that all seeds have."""
        if not self.by_seed:
            return ()
        seeds = [dict(points) for points in self.by_seed.values()]
        # Only common steps: a mean over fewer seeds would jump where a seed ends.
        steps = sorted(set.intersection(*(set(points) for points in seeds)))
        return tuple((step, math.exp(sum(math.log(one[step]) for one in seeds) / len(seeds))) for step in steps)


def curves_of(table: Table, results: Results) -> list[Curve]:
    """The curve of each row, without rows that share the training of an earlier one because only decoding differs."""
    curves: list[Curve] = []
    seen: set[str] = set()
    for row in table.rows:
        runs = table.study.runs_of(row.row)
        if {run.id for run in runs} <= seen:
            continue
        seen |= {run.id for run in runs}
        curves.append(curve_of(table, row, results))
    return curves


def curve_of(table: Table, row: TableRow, results: Results) -> Curve:
    """The learning curve of one row."""
    by_seed = {run.seed: evaluations(results.run(run.id)) for run in table.study.runs_of(row.row)}
    return Curve(row.row.label, row.row.group, {seed: points for seed, points in by_seed.items() if points})


def evaluations(folder: RunFolder) -> tuple[tuple[int, float], ...]:
    """(step, dev perplexity) of each evaluation in a run's metrics log."""
    return tuple(
        (line.step, line.dev_perplexity)
        for line in read_metrics(folder.metrics)
        if line.dev_perplexity is not None and math.isfinite(line.dev_perplexity) and line.dev_perplexity > 0
    )
