"""Choose the configurations of rows by the results of their trials.

The choice depends only on the study and its finished runs, so every machine makes the same choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ablate.analysis.trials import dev_runs_of, trial_rows, trials_of
from ablate.errors import Damaged, StoreError
from ablate.formatting import plural
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.files import verify
from ablate.store.records import Result, evaluation_at
from ablate.store.status import fault_in_result
from ablate.study import Row, Runs, Study, runs_of
from ablate.study.choice import TRIAL, Choice
from ablate.study.row import changes


def settle(study: Study, results: Results) -> Runs:
    """The runs of a study, with the configurations that trials have chosen so far. Rows whose
    trials are not complete still await their choice.

    Raises:
        StoreError: a result cannot be read, or a result of a trial has lost its evaluations.
    """
    return _settled(runs_of(study), results)


def with_all_rows(planned: Runs, results: Results) -> Runs:
    """The runs with all rows of the file, also the rows that `--rows` leaves out. Verdicts use the
    noise of all rows, so that they do not depend on the rows that a command selects.

    Raises:
        StoreError: as for `settle`.
    """
    study = planned.study
    if len(planned.rows) == len(study.whole.rows):
        return planned
    whole = _settled(Runs(study, study.whole.rows, study.seeds), results)
    return whole.with_seeds(planned.seeds)


def _settled(written: Runs, results: Results) -> Runs:
    """The runs with the configurations that trials have chosen so far."""
    tuned = replace(written, rows=_tuned_rows(written, results))
    return replace(tuned, rows=_decoded_rows(tuned, results))


def _tuned_rows(runs: Runs, results: Results) -> tuple[Row, ...]:
    """The rows with the values that trials have chosen for tuned fields."""
    trials = trials_of(runs)
    if trials is None:
        return runs.rows
    rows: list[Row] = []
    choices: dict[str, Choice] = {}  # by label of the row
    for row in runs.rows:
        if row.choice is not None:
            if row.choice.by_base:
                choice = replace(row.choice, losses=choices[row.base].losses)
            else:
                losses = _losses(trials, trial_rows(row), row.choice, results)
                choice = row.choice.with_losses(losses)
            choices[row.label] = choice
            config = choice.chosen.config if choice.chosen else row.config
            row = replace(row, choice=choice, config=config)
        rows.append(row)
    return _with_changes(rows)


def _decoded_rows(runs: Runs, results: Results) -> tuple[Row, ...]:
    """The rows with the decoding that is best for base on dev. As long as a run of base is not
    decoded with each candidate, all rows still await the choice.
    """
    dev_runs = dev_runs_of(runs)
    choice = runs.base.decoding_choice
    if dev_runs is None or choice is None:
        return runs.rows
    losses = []
    for scores in _losses(dev_runs, dev_runs.rows, choice, results):
        # Leave out seeds that diverged, because they did so for every candidate; unless all did.
        losses.append([score for score in scores if score != math.inf] or scores)
    choice = choice.with_losses(losses)
    rows = []
    for row in runs.rows:
        if row.decoding_choice is not None:
            choice_of_row = replace(row.decoding_choice, losses=choice.losses)
            values = {} if choice_of_row.chosen is None else choice_of_row.chosen.values
            config = row.config.model_copy(update=dict(values))
            row = replace(row, decoding_choice=choice_of_row, config=config)
        rows.append(row)
    return _with_changes(rows)


Losses = list[list[float | None]]  # for each candidate, a loss for each seed


def _losses(trials: Runs, rows: Sequence[Row], choice: Choice, results: Results) -> Losses:
    """The loss of each candidate with each seed, as for `Choice.losses`; infinite if the run
    diverged, None if it is missing.

    `rows` has the row of each candidate.

    Raises:
        StoreError: a result has lost its score.
    """
    losses: Losses = []
    for row in rows:
        losses.append([_loss(results.run(run.id), row, choice) for run in trials.of(row)])
    return losses


def _loss(folder: RunFolder, row: Row, choice: Choice) -> float | None:
    result = none_if_unreadable(folder.read_result)
    if result is None:
        return None
    if result.outcome == "diverged":
        return math.inf
    if choice.metric is None:
        return _dev_loss(folder, result)
    decoding = result.decodings.get(row.decoding)
    if decoding is None:
        return None
    score = decoding.scores.get(choice.metric.name)
    if score is None:
        raise StoreError(
            f"{folder.result}: has no {choice.metric.name} on dev; remove {folder.path} to train "
            f"the run again"
        )
    return -score.value if choice.metric.more_is_better else score.value


def _dev_loss(folder: RunFolder, result: Result) -> float:
    """The dev loss of the chosen checkpoint, in nats per token."""
    try:
        # A damaged loss could change the choice, and so train other runs.
        verify(folder.metrics, result.metrics_sha256)
        perplexity = evaluation_at(folder.metrics, result.chosen_step)
    except Damaged:
        perplexity = None
    if perplexity is None:
        raise StoreError(
            f"{folder.metrics}: is damaged, or has lost its last evaluation; remove {folder.path} "
            "to train the run again"
        )
    return math.log(perplexity)


def _with_changes(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with their changes from their bases, which depend on the chosen values."""
    bases = {row.label: row for row in rows if row.is_base}
    changed_rows = [rows[0]]
    for row in rows[1:]:
        # The base of a further size shows its changes from the first base.
        base = rows[0] if row.is_base else bases[row.base]
        changed_rows.append(replace(row, changed=_changes(row, base)))
    return tuple(changed_rows)


def _changes(row: Row, base: Row) -> dict[str, Any]:
    """The changes of a row from base, without tuned fields until the choices of both are made."""
    changed = changes(row.config, base.config)
    if base.awaits_choice or row.awaits_choice:
        for choice in filter(None, (row.choice, base.choice)):
            for name in choice.candidates[0].values:
                changed.pop(name, None)
    return changed


def trials_text(runs: Runs, trials: Runs) -> str:
    """A sentence about the runs that are executed before the runs of rows."""
    first = "Base is trained and decoded on dev"
    if trials.split == "test":
        rows = plural(sum(row.own_choice is not None for row in runs.rows), "row")
        first = f"{plural(len(trials.by_id), TRIAL)} for {rows}"
    return f"{first}, then the runs themselves."


def obstacle_text(trials: Runs | None, waiting: int, results: Results) -> str:
    """The reason why `waiting` runs cannot begin although no trial is left to execute."""
    cause = f"{TRIAL}s have failed"
    for run in trials or ():
        damage = fault_in_result(results.run(run.id))
        cause = str(damage) if damage else cause
    return f"{cause}; {plural(waiting, 'run')} cannot begin; see `ablate status`"
