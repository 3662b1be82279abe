"""Choose the configuration of each row with a choice by the results of its trials.

A pure function of the study and of finished runs: the same results give the same choice on any
machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ablate.errors import Damaged, StoreError
from ablate.formatting import plural
from ablate.store import Results, RunFolder, if_readable
from ablate.store.files import verify
from ablate.store.records import Result, evaluation_at
from ablate.store.status import damage_of
from ablate.study import Row, Runs, Selection, Study, read_study
from ablate.study.choice import TRIAL, Choice
from ablate.study.study import changes


def open_study(path: Path, results: Results, selection: Selection | None = None) -> Study:
    """Read a study, with the choices that its trials have made so far.

    Raises:
        StudyError: a fault in the study or in the selection's settings.
        UsageError: a fault in the selection's rows or seeds.
        StoreError: as for `settle`.
    """
    return settle(read_study(path, selection), results)


def settle(study: Study, results: Results) -> Study:
    """Give each row the configuration that its trials choose; rows whose trials are not complete
    still wait.

    Raises:
        StoreError: a result cannot be read, or has lost its evaluations.
    """
    return _with_decoding(_with_choices(study, results), results)


def _with_choices(study: Study, results: Results) -> Study:
    trials = study.trials
    if trials is None:
        return study
    rows, choices = [], dict[str, Choice]()
    for row in study.rows:
        if row.choice is not None:
            if row.is_chosen_as_base:
                choice = replace(row.choice, losses=choices[row.base].losses)
            else:
                losses = _losses(trials, study.trial_rows(row), row.choice, results)
                choice = row.choice.with_losses(losses)
            choices[row.label] = choice
            config = choice.chosen.config if choice.chosen else row.config
            row = replace(row, choice=choice, config=config)
        rows.append(row)
    return _with_rows(study, rows)


def _with_decoding(study: Study, results: Results) -> Study:
    """Give each row the decoding that is the best for base on dev; all still wait if one of base's
    runs is not decoded.
    """
    on_dev, choice = study.on_dev, study.base.decoding_choice
    if on_dev is None or choice is None:
        return study
    losses = []
    for scores in _losses(on_dev, on_dev.rows, choice, results):
        # A seed that diverged did so for every candidate.
        losses.append([score for score in scores if score != math.inf] or scores)
    choice = choice.with_losses(losses)
    rows = []
    for row in study.rows:
        if row.decoding_choice is not None:
            of_row = replace(row.decoding_choice, losses=choice.losses)
            values = {} if of_row.chosen is None else of_row.chosen.values
            config = row.config.model_copy(update=dict(values))
            row = replace(row, decoding_choice=of_row, config=config)
        rows.append(row)
    return _with_rows(study, rows)


Losses = list[list[float | None]]  # of each candidate, by seed


def _losses(trials: Runs, rows: Sequence[Row], choice: Choice, results: Results) -> Losses:
    """The losses of candidates, as `Choice.losses` has them; infinite if a run diverged, None if it
    is missing.

    Raises:
        StoreError: a result has lost its score.
    """
    losses: Losses = []
    for row in rows:
        losses.append([_loss(results.run(run.id), row, choice) for run in trials.of(row)])
    return losses


def _loss(folder: RunFolder, row: Row, choice: Choice) -> float | None:
    result = if_readable(folder.read_result)
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
    """That of the chosen weights, in nats per token."""
    try:
        # A choice by a damaged number would train other runs.
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


def _with_rows(study: Study, rows: Sequence[Row]) -> Study:
    """The study with these rows, compared with their bases."""
    study = replace(study, rows=tuple(rows))
    compared = [study.base]
    for row in study.rows[1:]:
        # The base of a further size has its changes from the first base.
        compared.append(_compared(row, study.base if row.is_base else study.base_of(row)))
    return replace(study, rows=tuple(compared))


def _compared(row: Row, base: Row) -> Row:
    """The row with its changes from base; a chosen field counts only if the choice for both is
    made.
    """
    changed = changes(row.config, base.config)
    if base.awaits_choice or row.awaits_choice:
        for choice in filter(None, (row.choice, base.choice)):
            for name in choice.candidates[0].values:
                changed.pop(name, None)
    return replace(row, changed=changed)


def trials_text(study: Study, trials: Runs) -> str:
    """One sentence: what is executed first."""
    first = "Base is trained and decoded on dev"
    if trials.split == "test":
        rows = plural(sum(row.own_choice is not None for row in study.rows), "row")
        first = f"{plural(len(trials.by_id), TRIAL)} for {rows}"
    return f"{first}, then the runs themselves."


def obstacle_text(trials: Runs | None, waiting: int, results: Results) -> str:
    """Why some runs have to wait although no trial can be executed."""
    cause = f"{TRIAL}s have failed"
    for run in trials or ():
        damage = damage_of(results.run(run.id))
        cause = str(damage) if damage else cause
    return f"{cause}; {plural(waiting, 'run')} cannot begin; see `ablate status`"
