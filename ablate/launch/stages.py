"""Execute a study in stages: tuning runs, then the rows whose values they have chosen, look by
look.
"""

from __future__ import annotations

from collections.abc import Callable

from ablate.analysis.looks import IsOver, has_ended, position_of, record_judgment
from ablate.analysis.missing_scores import score_missing
from ablate.analysis.settle import settle
from ablate.launch.launch import Launch
from ablate.store import Results
from ablate.study import Study


def launch_stages(
    study: Study,
    results: Results,
    execute: Callable[[Study], Launch],
    log: Callable[[str], None],
    is_over: IsOver = has_ended,
) -> Launch:
    """Execute a study in stages: its tuning runs, then the rows whose values they have chosen, look
    by look.

    Choices follow from the results on disk, so that several launchers of one results root agree. If
    others hold the last tuning runs, the rows that are chosen already go first.

    Args:
        study: to execute, with the choices made so far.
        results: root of the results.
        execute: launches a part of the study, and returns when each of its runs has ended, or is
            left to others.
        log: receives a line after each look.
        is_over: whether a run has ended for all launchers.

    Returns:
        The outcome of the last part.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    while True:
        if study.pending_tuning is not None:
            execute(study.pending_tuning)
            study = settle(study, results)
        outcome = launch_looks(study, results, execute, log, is_over)
        waiting, study = _waiting(study), settle(study, results)
        if _waiting(study) == waiting:
            return outcome


def _waiting(study: Study) -> set[str]:
    """Labels of the rows whose tuning runs are missing."""
    return {row.label for row in study.rows if row.awaits_tuning}


def launch_looks(
    study: Study,
    results: Results,
    execute: Callable[[Study], Launch],
    log: Callable[[str], None],
    is_over: IsOver = has_ended,
) -> Launch:
    """Execute a study; one with looks up to the first look that settles every row.

    The look follows from the results on disk, so that several launchers of one results root agree.
    No run of a look starts before all runs of the look before have ended.

    Args:
        study: to execute.
        results: root of the results.
        execute: launches a part of the study, and returns when each of its runs has ended, or is
            left to others.
        log: receives a line after each look that another one follows; the table says the outcome of
            the last.
        is_over: whether a run has ended for all launchers.

    Returns:
        The outcome of the last part.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    if study.looks is None:
        return execute(study)
    before = position_of(study, results, is_over)
    while True:
        outcome = execute(before.study)
        faults = score_missing(before.study, results)
        for fault in faults:
            log(fault)
        after = position_of(study, results, is_over)
        record_judgment(study, results)
        # A missing score could let another launcher see another verdict.
        if faults or len(after.study.seeds) <= len(before.study.seeds):
            return outcome
        log(after.text)
        before = after
