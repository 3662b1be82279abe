"""Choose the configurations of rows by the results of their tuning runs.

The choice depends only on the study and its finished runs, so every machine makes the same choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ablate.analysis.tuning_runs import dev_runs_of, tuning_rows, tuning_runs_of
from ablate.errors import Damaged, StoreError
from ablate.stats.metrics import Metric
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.files import verify
from ablate.store.metrics_log import evaluation_at
from ablate.store.records import Result
from ablate.study import Row, Runs, Study, runs_of
from ablate.study.choice import Choice
from ablate.study.row import changes

Losses = list[list[float | None]]  # for each candidate, a loss for each seed


def runs_with_choices(study: Study, results: Results) -> Runs:
    """The runs of a study, with the configurations that tuning runs have chosen so far. A row whose
    tuning runs are not complete keeps its configuration as written, and awaits its choice.

    Raises:
        StoreError: a result cannot be read, or a tuning run has lost its evaluations.
    """
    return _with_choices(runs_of(study), results)


def with_all_rows(planned: Runs, results: Results) -> Runs:
    """The runs with all rows of the file, also the rows that `--rows` leaves out. Verdicts use the
    noise of all rows, so that they do not depend on the rows that a command selects.

    Raises:
        StoreError: as for `runs_with_choices`.
    """
    study = planned.study
    if len(planned.rows) == len(study.whole.rows):
        return planned
    whole = _with_choices(Runs(study, study.whole.rows, study.seeds), results)
    return whole.with_seeds(planned.seeds)


def _with_choices(runs: Runs, results: Results) -> Runs:
    """The runs with the configurations that tuning runs have chosen so far."""
    runs = replace(runs, rows=_with_tuned_values(runs, results))
    return replace(runs, rows=_with_chosen_decoding(runs, results))


def _with_tuned_values(runs: Runs, results: Results) -> tuple[Row, ...]:
    """All rows; a tuned row has the values that its tuning runs have chosen."""
    tuning = tuning_runs_of(runs)
    if tuning is None:
        return runs.rows
    rows: list[Row] = []
    choices: dict[str, Choice] = {}  # by label of the row
    for row in runs.rows:
        if row.choice is not None:
            if row.choice.by_base:  # base stands before its rows
                choice = replace(row.choice, losses=choices[row.base].losses)
            else:
                losses = _losses(tuning, tuning_rows(row), results)
                choice = row.choice.with_losses(losses)
            choices[row.label] = choice
            config = choice.chosen.config if choice.chosen else row.config
            row = replace(row, choice=choice, config=config)
        rows.append(row)
    return _with_changes(rows)


def _with_chosen_decoding(runs: Runs, results: Results) -> tuple[Row, ...]:
    """All rows, with the decoding that is best for base on dev. As long as a run of base is not
    decoded with each candidate, all rows still await the choice.
    """
    dev_runs = dev_runs_of(runs)
    choice = runs.base.decoding_choice
    if dev_runs is None or choice is None:
        return runs.rows
    losses: Losses = []
    for candidate_losses in _losses(dev_runs, dev_runs.rows, results, choice.metric):
        # A seed that diverged did so for every candidate, so it is left out; unless all seeds did.
        finite = [loss for loss in candidate_losses if loss != math.inf]
        losses.append(finite if finite else candidate_losses)
    choice_of_base = choice.with_losses(losses)
    rows = []
    for row in runs.rows:
        if row.decoding_choice is not None:
            choice = replace(row.decoding_choice, losses=choice_of_base.losses)
            config = row.config
            if choice.chosen is not None:
                config = config.model_copy(update=dict(choice.chosen.values))
            row = replace(row, decoding_choice=choice, config=config)
        rows.append(row)
    return _with_changes(rows)


def _losses(
    runs: Runs, candidates: Sequence[Row], results: Results, metric: Metric | None = None
) -> Losses:
    """The loss of each candidate with each seed, as for `Choice.losses`; infinite if the run
    diverged, None if it is missing. `metric` is the metric of the decoded dev split; None for the
    dev loss of the training.

    Raises:
        StoreError: a result has lost its score.
    """
    losses: Losses = []
    for row in candidates:
        losses.append([_loss(results.run(run.id), row, metric) for run in runs.of(row)])
    return losses


def _loss(folder: RunFolder, row: Row, metric: Metric | None) -> float | None:
    result = none_if_unreadable(folder.read_result)
    if result is None:
        return None
    if result.outcome == "diverged":
        return math.inf
    if metric is None:
        return _dev_loss(folder, result)
    decoding = result.decodings.get(row.decoding)
    if decoding is None:
        return None
    score = decoding.scores.get(metric.name)
    if score is None:
        raise StoreError(
            f"{folder.result}: has no {metric.name} on dev; remove {folder.path} to train "
            f"the run again"
        )
    return -score.value if metric.more_is_better else score.value


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
            for name in choice.fields:
                changed.pop(name, None)
    return changed
