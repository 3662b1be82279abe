"""The learning curves of a study, from the metrics logs of its runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from ablate.analysis.experiment import flops_per_step, lengths_of
from ablate.analysis.outcome import Outcome
from ablate.analysis.results import log_of
from ablate.errors import StoreError
from ablate.store import Results
from ablate.store.records import MetricsLine
from ablate.study import Row
from ablate.table.curves import Curve


def curves_of(outcome: Outcome, results: Results) -> list[Curve]:
    """The curve of each row. Rows that differ from an earlier row only in decoding are left out,
    because they share its runs.
    """
    curves: list[Curve] = []
    seen: set[str] = set()
    for row in outcome.planned.rows:
        ids = {run.run.id for run in outcome.by_label[row.label]}
        if not ids <= seen:
            curves.append(curve_of(outcome, row, results))
        seen |= ids
    return curves


def curve_of(outcome: Outcome, row: Row, results: Results) -> Curve:
    """The learning curve of one row."""
    config = row.config
    by_seed: dict[int, tuple[tuple[int, float], ...]] = {}
    training_points: dict[int, list[tuple[int, float]]] = {}
    costs: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    runs = outcome.by_label[row.label]
    diverged = {run.run.seed for run in runs if run.state == "diverged"}
    trained = {run.run.seed for run in runs if run.state == "done" or run.lacks_decoding}
    flops = flops_per_step(outcome.planned, row, lengths_of(runs, results))
    for run in runs:
        seed = run.run.seed
        log: list[MetricsLine] = []
        # The curve lacks this seed if the log is damaged, which the table reports.
        with suppress(StoreError):
            log = log_of(results.run(run.run.id), run.result)
        points = evaluations(log)
        if not points:
            continue
        by_seed[seed] = points
        training_points[seed] = []
        for line in log:
            step = line.step
            costs["tokens", seed][step] = line.tokens
            costs["flops", seed][step] = config.mean_steps(step) * flops
            if line.loss is not None:
                training_points[seed].append((step, math.exp(line.loss)))
    curve = Curve(
        row.label,
        row.group,
        by_seed,
        costs,
        base=row.base,
        vocab_size=outcome.planned.data_of(row).vocab_size,
        diverged=frozenset(diverged),
        unfinished=frozenset(run.run.seed for run in runs) - diverged - trained,
    )
    # The curve of the training loss can be compared with the dev curve only if both are computed in
    # the same way: without label smoothing and dropout, which dev does not have.
    if not outcome.study.data.repeats_items or config.label_smoothing or config.dropout:
        return curve
    return replace(curve, training=replace(curve, by_seed=training_points))


def evaluations(log: Iterable[MetricsLine]) -> tuple[tuple[int, float], ...]:
    """(step, dev perplexity) of each evaluation in a metrics log whose perplexity is finite."""
    points = []
    for line in log:
        if line.dev_perplexity is not None and 0 < line.dev_perplexity < math.inf:
            points.append((line.step, line.dev_perplexity))
    return tuple(points)
