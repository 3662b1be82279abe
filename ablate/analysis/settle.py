"""Choose each row's tuned configuration by the results of its tuning runs.

A pure function of the study and of finished runs: the same results give the same choice on any
machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.errors import Damaged, StoreError
from ablate.store import Results, RunFolder
from ablate.store.files import verify
from ablate.store.records import evaluation_at
from ablate.study import Row, Selection, Study, read_study
from ablate.study.study import changes


def open_study(path: Path, results: Results, selection: Selection | None = None) -> Study:
    """Read a study, with the choices that its tuning runs have made so far.

    Raises:
        StudyError: a fault in the study or in the selection's settings.
        UsageError: a fault in the selection's rows or seeds.
        StoreError: as for `settle`.
    """
    return settle(read_study(path, selection), results)


def settle(study: Study, results: Results) -> Study:
    """Give each row the configuration that its tuning runs choose; rows whose runs are not complete
    still wait.

    Raises:
        StoreError: a result cannot be read, or has lost its evaluations.
    """
    trials = study.tuning
    if trials is None:
        return study
    losses = {
        row.label: [loss_of(results.run(run.id)) for run in trials.runs_of(row)]
        for row in trials.rows
    }
    rows = [_chosen(study, row, losses) for row in study.rows]
    bases = {row.label: row for row in rows if row.is_base}
    return replace(
        study,
        rows=(
            rows[0],
            *(_compared(row, bases.get(row.base, rows[0]), rows[0]) for row in rows[1:]),
        ),
    )


def loss_of(folder: RunFolder) -> float | None:
    """Dev loss of a tuning run of its chosen weights, in nats per token; infinite if it diverged,
    None if missing.

    Raises:
        StoreError: the result cannot be read, or the evaluation is lost.
    """
    try:
        result = folder.read_result()
    except Damaged:
        return None  # the next `ablate run` makes it again
    if result is None:
        return None
    if result.outcome == "diverged":
        return math.inf
    try:
        verify(
            folder.metrics, result.metrics_sha256
        )  # a choice by a damaged number would train other runs
        perplexity = evaluation_at(folder.metrics, result.chosen_step)
    except Damaged:
        perplexity = None
    if perplexity is None:
        raise StoreError(
            f"{folder.metrics}: is damaged, or has lost its last evaluation; remove {folder.path} "
            f"to train the run "
            "again"
        )
    return math.log(perplexity)


def _chosen(study: Study, row: Row, losses: Mapping[str, Sequence[float | None]]) -> Row:
    """The row with its chosen configuration; as it was if a loss misses."""
    if row.tuning is None:
        return row
    means: list[float] = []
    for trial in study.trials_of(row):
        known = [loss for loss in losses[trial.label] if loss is not None]
        if len(known) < len(losses[trial.label]):
            return replace(row, tuning=replace(row.tuning, losses=()))
        means.append(math.fsum(known) / len(known))
    tuning = replace(row.tuning, losses=tuple(means))
    return replace(row, tuning=tuning, config=tuning.chosen.config if tuning.chosen else row.config)


def _compared(row: Row, base: Row, first: Row) -> Row:
    """The row with its changes from base; a tuned field counts only if the choice for both is made.

    The base of a further size has its changes from the first base.
    """
    base = first if row.is_base else base
    waiting = base.awaits_tuning or row.awaits_tuning
    tuned = {
        name
        for each in (row, base)
        if each.tuning and waiting
        for name in each.tuning.candidates[0].values
    }
    found = changes(row.config, base.config)
    return replace(row, changed={name: value for name, value in found.items() if name not in tuned})
