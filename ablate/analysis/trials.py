"""The runs that choose configurations, before the runs of the rows: trials, and base on dev.

No verdict uses them.
"""

from __future__ import annotations

from dataclasses import replace

from ablate.study.row import Row
from ablate.study.runs import Run, Runs
from ablate.study.seeds import Seeds


def trials_of(runs: Runs) -> Runs | None:
    """The trials of some rows, with a row for each candidate; None without any."""
    candidates: list[Row] = []
    for row in runs.rows:
        candidates += trial_rows(row)
    if not candidates:
        return None
    return Runs(runs.study, tuple(candidates), Seeds(runs.study.seeds.trials))


def trial_rows(row: Row) -> list[Row]:
    """The rows of a row's trials: one for each candidate."""
    trials: list[Row] = []
    if row.own_choice is None:
        return trials
    base = f"{row.label}: {row.own_choice.candidates[0].label}"
    for candidate in row.own_choice.candidates:
        label, values = f"{row.label}: {candidate.label}", dict(candidate.values)
        trials.append(Row(label, row.label, candidate.trial, None, values, base=base))
    return trials


def dev_runs_of(runs: Runs) -> Runs | None:
    """Base's own runs, decoded on dev with each candidate of the decoding; None without any.

    Only with the seeds of the first verdicts: the choice must not move when more are trained.
    """
    base, choice = runs.base, runs.base.decoding_choice
    if choice is None or base.awaits_values:
        return None
    rows = []
    for trial in trial_rows(replace(base, choice=choice)):
        config = base.config.model_copy(update=trial.changed)
        rows.append(replace(trial, config=config, evaluated=f"dev {base.evaluated}"))
    seeds = runs.study.seeds
    return Runs(runs.study, tuple(rows), Seeds(seeds.rows[: seeds.plan[0]]), "dev")


def pending_trials(runs: Runs) -> Runs | None:
    """The trials that some rows wait for; then base on dev, if decoding is not chosen."""
    if any(row.awaits_values for row in runs.rows):
        return trials_of(runs)
    return dev_runs_of(runs) if runs.base.awaits_decoding else None


def with_trials(runs: Runs) -> list[Run]:
    """Every run once: first the runs that choose, then the runs of the rows."""
    by_id: dict[str, Run] = {}
    for part in (trials_of(runs), dev_runs_of(runs), runs):
        if part is not None:
            for run in part:
                by_id.setdefault(run.id, run)
    return list(by_id.values())
