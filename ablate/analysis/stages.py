"""The next stage of a study, by its results: what to execute now, and why.

Everything that executes or follows a study loops alike:

    stage = next_stage(study, results)
    while stage.missing:
        execute(stage)
        stage = advance(stage, results)

The answer follows from the files alone, so that several launchers with one results root agree.
It is computed anew only where the results of a stage decide what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ablate.analysis.missing import Retries, missing_runs, never
from ablate.analysis.missing_scores import score_missing
from ablate.analysis.position import position_of, record_judgment
from ablate.analysis.settle import obstacle_text, settle, trials_text
from ablate.store import Results
from ablate.study import Run, Runs, Study


@dataclass(frozen=True)
class Stage:
    """Where a study is, and what is to be executed now.

    study: with the choices that trials have made.
    rows: runs of the rows, with the seeds so far.
    possible: runs of the rows, with the seeds that may still follow.
    sentence: for people; empty if there is nothing to say.
    details: the same for scripts.
    trials: runs that are executed first, because some rows wait for them; else None.
    missing: ids of the runs to execute now, in this order; none if the study is finished.
    missing_later: ids of the missing runs of `rows` that wait for these, as far as they are known.
    at_once: the most runs that can be executed at the same time, in this stage or the next.
    decides: whether the results of the runs decide which runs follow.
    left: ids of the missing runs that this process leaves to others, which hold them.
    obstacle: of a finished study: why runs are missing even so; empty if none is.
    """

    study: Study
    rows: Runs
    possible: Runs
    sentence: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    trials: Runs | None = None
    missing: tuple[str, ...] = ()
    missing_later: tuple[str, ...] = ()
    at_once: int = 0
    decides: bool = False
    left: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def runs(self) -> Runs:
        """The runs of this stage, missing or not: the trials, or those of the rows."""
        return self.rows if self.trials is None else self.trials

    @property
    def total_runs(self) -> int:
        """Number of runs, as they are shared out to devices: --rows and --seeds do not matter."""
        return self.study.whole.runs if self.trials is None else len(self.trials.by_id)

    @property
    def is_over(self) -> bool:
        """Whether no launcher has something to do."""
        return not self.missing and not self.left

    @property
    def known_runs(self) -> list[Run]:
        """The missing runs of this stage and of later ones, as far as they are known."""
        runs = self.rows.by_id | self.runs.by_id
        return [runs[id] for id in dict.fromkeys((*self.missing, *self.missing_later))]


class Limit(Protocol):
    """Narrows what is executed of a study, as a budget does."""

    @property
    def is_open(self) -> bool:
        """Whether more may follow, by the results of what was left."""

    def within(self, study: Study, runs: Runs, results: Results) -> Runs:
        """The part of the study's runs that is executed."""


def next_stage(
    study: Study,
    results: Results,
    retries: Retries = never,
    left_to_others: Collection[str] = (),
    limit: Limit | None = None,
) -> Stage:
    """The next stage of a study.

    Args:
        study: as read.
        results: root of the results.
        retries: which failed runs are repeated.
        left_to_others: runs that the caller leaves to other launchers, which hold them.
        limit: narrows what is executed.

    Raises:
        StoreError: a result cannot be read.
    """
    study, left = settle(study, results), frozenset(left_to_others)
    position = position_of(study, results, retries)
    rows = position.study.runs()
    possible = rows if position.standing.stopped_early else study.runs()
    decides = position.standing.next is not None
    if limit is not None:
        possible = limit.within(study, possible, results)
        rows = rows.common(possible)
        decides = decides or limit.is_open
    stage = Stage(
        study,
        rows,
        possible,
        sentence=position.standing.text,
        details=position.standing.as_json(),
        decides=decides,
        left=left,
    )
    return _with_missing(stage, results, retries)


def _with_missing(stage: Stage, results: Results, retries: Retries) -> Stage:
    """The stage with its missing runs: trials first, then the rows that wait for none."""
    study, rows = stage.study, stage.rows
    of_rows, waiting = missing_runs(rows, results, retries), sum(run.awaits_choice for run in rows)
    trials = study.pending_trials(rows.rows)
    of_trials = missing_runs(trials, results, retries) if trials else []
    if trials is not None and set(of_trials) - stage.left:
        return replace(
            stage,
            sentence=f"{stage.sentence} {trials_text(study, trials)}".strip(),
            trials=trials,
            missing=tuple(of_trials),
            missing_later=tuple(of_rows),
            at_once=max(len(of_trials), len(of_rows) + waiting),
            decides=True,
        )
    if set(of_rows) - stage.left:
        decides = stage.decides or waiting > 0
        return replace(stage, missing=tuple(of_rows), at_once=len(of_rows), decides=decides)
    if waiting and not of_trials:
        return replace(stage, obstacle=obstacle_text(trials, waiting, results))
    return stage


def first_stage(
    study: Study,
    results: Results,
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Limit | None = None,
) -> Stage:
    """The next stage of a study whose finished runs may lack a score, because a metric is new.

    `log` receives a line for each score that cannot be made; the rest is as for `next_stage`.
    """
    if study.judged_at:
        for fault in score_missing(study, results):
            log(fault)
    return next_stage(study, results, retries, limit=limit)


def advance(
    stage: Stage, results: Results, retries: Retries = never, limit: Limit | None = None
) -> Stage:
    """What is next after each run of a stage has ended, or is left to others.

    Raises:
        StoreError: a result cannot be read.
    """
    left = stage.left.union(missing_runs(stage.runs, results, retries))
    if not stage.decides:
        return replace(stage, missing=(), at_once=0, left=left)
    return next_stage(stage.study, results, retries, left, limit)


def execute_stages(
    stage: Stage,
    results: Results,
    execute: Callable[[Stage], object],
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Limit | None = None,
) -> Stage:
    """Execute a stage and those that follow it.

    Args:
        stage: the first one.
        results: root of the results.
        execute: launches the runs of a stage, and returns when each of them has ended, or is left
            to others.
        log: receives the sentence of each stage, and a line for each score that cannot be made.
        retries: which failed runs are repeated.
        limit: narrows what is executed.

    Returns:
        Where the study is then; runs are missing only if scores that decide what follows are.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    while stage.missing:
        if stage.sentence:
            log(stage.sentence)
        execute(stage)
        faults: list[str] = []
        if stage.details:  # what follows depends on scores
            faults = score_missing(stage.study, results)
            for fault in faults:
                log(fault)
            record_judgment(stage.study, results)
        stage = advance(stage, results, retries, limit)
        if faults:  # another process could see another verdict
            break
    return stage
