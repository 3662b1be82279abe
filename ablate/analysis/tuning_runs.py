"""Make the runs that choose configurations before the rows are trained: the tuning runs of tuned
rows, and the decodings of base on dev. No verdict uses them.
"""

from __future__ import annotations

from dataclasses import replace

from ablate.study.row import Row
from ablate.study.runs import Run, Runs
from ablate.study.seeds import Seeds


def tuning_runs_of(runs: Runs) -> Runs | None:
    """The tuning runs of some rows, with a row for each candidate; None without tuned rows."""
    candidates: list[Row] = []
    for row in runs.rows:
        candidates += tuning_rows(row)
    if not candidates:
        return None
    return Runs(runs.study, tuple(candidates), Seeds(runs.study.seeds.tuning))


def tuning_rows(row: Row) -> list[Row]:
    """A row for each candidate of a row; its base is the first candidate. Empty without a choice
    among candidates.
    """
    rows: list[Row] = []
    if row.own_choice is None:
        return rows
    base = f"{row.label}: {row.own_choice.candidates[0].label}"
    for candidate in row.own_choice.candidates:
        tuning_row = Row(
            label=f"{row.label}: {candidate.label}",
            group=row.label,
            config=candidate.trained,
            evaluated=None,
            changed=dict(candidate.values),
            base=base,
        )
        rows.append(tuning_row)
    return rows


def dev_runs_of(runs: Runs) -> Runs | None:
    """The runs of base, decoded on dev with each candidate for the decoding; None without
    candidates, or until base is tuned.

    They have only the seeds of the first look, so that the choice stays when more seeds are
    trained.
    """
    base = runs.base
    choice = base.decoding_choice
    if choice is None or base.awaits_values:
        return None
    rows = []
    for tuning_row in tuning_rows(replace(base, choice=choice)):
        config = base.config.model_copy(update=tuning_row.changed)
        rows.append(replace(tuning_row, config=config, evaluated=f"dev {base.evaluated}"))
    seeds = runs.study.seeds
    return Runs(runs.study, tuple(rows), Seeds(seeds.rows[: seeds.plan[0]]), "dev")


def pending_tuning(runs: Runs) -> Runs | None:
    """The tuning runs that must be complete before some rows can be trained; after them, the runs
    of base on dev if the decoding is not chosen yet; else None.
    """
    if any(row.awaits_values for row in runs.rows):
        return tuning_runs_of(runs)
    return dev_runs_of(runs) if runs.base.awaits_decoding else None


def with_tuning_runs(runs: Runs) -> list[Run]:
    """All runs, each once: first the runs that choose configurations, then the runs of the rows."""
    by_id: dict[str, Run] = {}
    for group in (tuning_runs_of(runs), dev_runs_of(runs), runs):
        for run in group or ():
            by_id.setdefault(run.id, run)
    return list(by_id.values())
