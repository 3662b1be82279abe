"""The next stage of a study, by its results: what to execute now, and why.

Whoever executes or follows a study loops:

    stage = next_stage(study, results)
    while stage.missing:
        execute(stage)
        stage = advance(stage, results)

The answer follows from the files alone, so that several launchers with one results root agree.
It is computed anew only where the results of a stage decide what follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ablate.analysis.missing import Retries, missing_runs, never
from ablate.analysis.missing_scores import score_missing
from ablate.analysis.position import position_of, record_judgment
from ablate.analysis.settle import obstacle_text, settle, trials_text
from ablate.analysis.trials import pending_trials
from ablate.store import Results
from ablate.study import Run, Runs, Study
from ablate.table.looks import Looks


@dataclass(frozen=True)
class Stage:
    """Where a study is, and the runs to execute now.

    planned: runs of the rows, with all seeds.
    rows: these runs as far as they are executed: with the seeds so far, and within the limit.
    looks: the looks that have been judged, and the next one.
    trials: runs that are executed first, because some rows wait for them; else None.
    missing: ids of the runs to execute now, in this order; none if the study is finished.
    missing_later: ids of the missing runs of `rows` that wait for these, as far as they are known.
    decides: whether the results of the runs decide which runs follow.
    left: ids of the missing runs that this process leaves to others, which hold them.
    obstacle: of a finished study: why runs are missing even so; empty if none is.
    """

    planned: Runs
    rows: Runs
    looks: Looks
    trials: Runs | None = None
    missing: tuple[str, ...] = ()
    missing_later: tuple[str, ...] = ()
    decides: bool = False
    left: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def study(self) -> Study:
        """The study as asked."""
        return self.planned.study

    @property
    def possible(self) -> Runs:
        """The runs of the rows with the seeds that may still follow."""
        return self.rows if self.looks.stopped_early else self.planned

    @property
    def runs(self) -> Runs:
        """The runs of this stage, missing or not: the trials, or the runs of the rows."""
        return self.rows if self.trials is None else self.trials

    @property
    def total_runs(self) -> int:
        """Number of runs, as they are shared out to devices: --rows and --seeds do not matter."""
        return self.study.whole.runs if self.trials is None else len(self.trials.by_id)

    @property
    def at_once(self) -> int:
        """The most runs that can be executed at the same time, in this stage or the next."""
        following = len(self.missing_later)
        if self.trials is not None:
            following += sum(run.awaits_choice for run in self.rows)
        return max(len(self.missing), following)

    @property
    def sentence(self) -> str:
        """One line for people; empty if there is nothing to say."""
        sentences = [self.looks.text]
        if self.trials is not None:
            sentences.append(trials_text(self.rows, self.trials))
        return " ".join(filter(None, sentences))

    @property
    def details(self) -> Mapping[str, Any]:
        """The looks for scripts; empty without looks."""
        return self.looks.as_json()

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
    """Selects the runs of a study that are executed, as a budget does."""

    @property
    def is_open(self) -> bool:
        """Whether more may follow, by the results of what was left."""

    def within(self, runs: Runs, results: Results) -> Runs:
        """The part of the runs that is executed."""


def next_stage(
    study: Study,
    results: Results,
    retries: Retries = never,
    left_to_others: Collection[str] = (),
    limit: Limit | None = None,
) -> Stage:
    """The next stage of a study.

    Args:
        study: as asked.
        results: root of the results.
        retries: which failed runs are repeated.
        left_to_others: runs that the caller leaves to other launchers, which hold them.
        limit: selects the runs that are executed.

    Raises:
        StoreError: a result cannot be read.
    """
    planned = settle(study, results)
    position = position_of(planned, results, retries)
    stage = Stage(
        planned,
        position.runs,
        position.looks,
        decides=position.looks.next is not None,
        left=frozenset(left_to_others),
    )
    if limit is not None:
        rows = stage.rows.common(limit.within(stage.possible, results))
        stage = replace(stage, rows=rows, decides=stage.decides or limit.is_open)
    return _with_missing(stage, results, retries)


def _with_missing(stage: Stage, results: Results, retries: Retries) -> Stage:
    """The stage with its missing runs: trials first, then the rows that wait for none."""
    missing = tuple(missing_runs(stage.rows, results, retries))
    waiting = sum(run.awaits_choice for run in stage.rows)
    trials = pending_trials(stage.rows)
    missing_trials: tuple[str, ...] = ()
    if trials is not None:
        missing_trials = tuple(missing_runs(trials, results, retries))
    if not stage.left.issuperset(missing_trials):
        return replace(
            stage, trials=trials, missing=missing_trials, missing_later=missing, decides=True
        )
    if not stage.left.issuperset(missing):
        return replace(stage, missing=missing, decides=stage.decides or waiting > 0)
    if waiting and not missing_trials:
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
    if study.seeds.looks:
        for fault in score_missing(settle(study, results), results):
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
        return replace(stage, missing=(), left=left)
    return next_stage(stage.study, results, retries, left, limit)


def execute_stages(
    stage: Stage,
    results: Results,
    execute: Callable[[Stage], object],
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Limit | None = None,
) -> Stage:
    """Execute a stage and the stages that follow it.

    Args:
        stage: the first one.
        results: root of the results.
        execute: launches the runs of a stage, and returns when each of them has ended, or is left
            to others.
        log: receives the sentence of each stage, and a line for each score that cannot be made.
        retries: which failed runs are repeated.
        limit: selects the runs that are executed.

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
        if stage.looks.has_looks:  # what follows depends on scores
            planned = settle(stage.study, results)
            faults = score_missing(planned, results)
            for fault in faults:
                log(fault)
            record_judgment(planned, results)
        stage = advance(stage, results, retries, limit)
        if faults:  # another process could see another verdict
            break
    return stage
