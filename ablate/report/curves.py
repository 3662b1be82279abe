"""Learning curves: what the dev side's perplexity was at each evaluation, of every run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.report.table import Table
from ablate.store import Results, RunFolder


@dataclass(frozen=True)
class Curve:
    """A row's perplexity by step, of each seed that has any."""

    row: str
    group: str
    by_seed: Mapping[int, tuple[tuple[int, float], ...]]

    @property
    def mean(self) -> tuple[tuple[int, float], ...]:
        """The geometric mean over seeds, that is of the loss, at the steps that every seed here has."""
        if not self.by_seed:
            return ()
        found = [dict(points) for points in self.by_seed.values()]
        steps = sorted(set.intersection(*(set(points) for points in found)))
        return tuple((step, math.exp(sum(math.log(one[step]) for one in found) / len(found))) for step in steps)


def curves_of(table: Table, results: Results) -> list[Curve]:
    """A curve for each row that has a training of its own; rows that only decode otherwise share another's."""
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
    """(step, perplexity on the dev side) of a run, as far as its log goes."""
    try:
        lines = folder.metrics.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    points = []
    for line in lines:
        try:
            entry: Any = json.loads(line)
        except ValueError:  # a line that is being written
            continue
        value = entry.get("dev_perplexity") if isinstance(entry, dict) else None
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            points.append((int(entry["step"]), float(value)))
    return tuple(points)
