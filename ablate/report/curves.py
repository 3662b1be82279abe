"""Learning curves: the dev perplexity of every run at each evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ablate.report.table import Table
from ablate.store import Results, RunFolder
from ablate.store.records import read_metrics


@dataclass(frozen=True)
class Curve:
    """A row's dev perplexity by step, for each seed with an evaluation."""

    row: str
    group: str
    by_seed: Mapping[int, tuple[tuple[int, float], ...]]

    @property
    def mean(self) -> tuple[tuple[int, float], ...]:
        """The geometric mean over seeds (the mean of the loss), at the steps that every seed has."""
        if not self.by_seed:
            return ()
        found = [dict(points) for points in self.by_seed.values()]
        steps = sorted(set.intersection(*(set(points) for points in found)))
        return tuple((step, math.exp(sum(math.log(one[step]) for one in found) / len(found))) for step in steps)


def curves_of(table: Table, results: Results) -> list[Curve]:
    """A curve for each row, except for rows that differ only in decoding: they share another row's training."""
    curves: list[Curve] = []
    seen: set[str] = set()
    for row in table.rows:
        runs = table.study.runs_of(row.row)
        if {run.id for run in runs} <= seen:
            continue
        seen |= {run.id for run in runs}
        found = {run.seed: evaluations(results.run(run.id)) for run in runs}
        curves.append(Curve(row.row.label, row.row.group, {seed: points for seed, points in found.items() if points}))
    return curves


def evaluations(folder: RunFolder) -> tuple[tuple[int, float], ...]:
    """(step, dev perplexity) of each evaluation in a run's metrics log."""
    return tuple(
        (line.step, line.dev_perplexity)
        for line in read_metrics(folder.metrics)
        if line.dev_perplexity is not None and math.isfinite(line.dev_perplexity) and line.dev_perplexity > 0
    )
