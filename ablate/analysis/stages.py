"""The next stage of a study, by its results: what to execute now, and why.

Everything that executes or follows a study loops alike:

    stage = next_stage(study, results)
    while stage.runs:
        execute(stage)
        stage = advance(stage, results)

The answer follows from the files alone, so that several launchers with one results root agree.
It is computed anew only where the results of a stage decide what follows it.
What a study asks for beyond its rows is a rule here: a rule narrows the study to the part that
counts now. `--budget` is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.analysis.missing import Retries, missing_runs, never
from ablate.analysis.missing_scores import score_missing
from ablate.analysis.position import position_of, record_judgment
from ablate.analysis.settle import obstacle_text, settle, trials_text
from ablate.store import Results
from ablate.study import Run, Study


@dataclass(frozen=True)
class Stage:
    """Where a study is, and what is to be executed now.

    settled: the whole study, with the choices that trials have made.
    with_all_seeds: its part that may still be executed.
    study: the part that counts now, with the seeds so far.
    sentence: for people; empty if there is nothing to say.
    details: the same for scripts.
    trials: those that are executed now, because some rows of `study` wait for them; else None.
    runs: ids of the missing runs, in the order of execution; none if the study is finished.
    later_runs: ids of missing runs of `study` that are known already and belong to a later stage.
    at_once: the most runs that can be executed at the same time, in this stage or the next.
    decides: whether the results of the runs decide which runs follow.
    left: ids of the missing runs that this process leaves to others, which hold them.
    obstacle: of a finished study: why runs are missing even so; empty if none is.
    """

    settled: Study
    with_all_seeds: Study
    study: Study
    sentence: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    trials: Study | None = None
    runs: tuple[str, ...] = ()
    later_runs: tuple[str, ...] = ()
    at_once: int = 0
    decides: bool = False
    left: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def part(self) -> Study:
        """The part with the runs: trials, or the rows."""
        return self.study if self.trials is None else self.trials

    @property
    def is_over(self) -> bool:
        """Whether no launcher has something to do."""
        return not self.runs and not self.left

    @property
    def known_runs(self) -> list[Run]:
        """The missing runs of this stage and of later ones, as far as they are known."""
        runs = {run.id: run for run in (*self.study.runs(), *self.part.runs())}
        return [runs[id] for id in dict.fromkeys((*self.runs, *self.later_runs))]


Rule = Callable[[Stage, Results, Retries], Stage]


def seeds_so_far(stage: Stage, results: Results, retries: Retries) -> Stage:
    """Rule of `seeds`: those beyond a number at which the study is judged are for one with an open
    row there.
    """
    position = position_of(stage.study, results, retries)
    return replace(
        stage,
        with_all_seeds=position.study if position.standing.stopped_early else stage.with_all_seeds,
        study=position.study,
        sentence=f"{stage.sentence} {position.standing.text}".strip(),
        details=position.standing.as_json(),
        decides=stage.decides or position.standing.next is not None,
    )


def next_stage(
    study: Study,
    results: Results,
    retries: Retries = never,
    left_to_others: Collection[str] = (),
    limit: Rule | None = None,
) -> Stage:
    """The next stage of a study.

    Args:
        study: as read.
        results: root of the results.
        retries: which failed runs are repeated.
        left_to_others: runs that the caller leaves to other launchers, which hold them.
        limit: a further rule, such as a budget.

    Raises:
        StoreError: a result cannot be read.
    """
    study, left = settle(study, results), frozenset(left_to_others)
    stage = Stage(study, study, study, left=left)
    for rule in filter(None, (limit, seeds_so_far)):
        stage = rule(stage, results, retries)
    study, waiting = stage.study, sum(run.awaits_choice for run in stage.study.runs())
    rows = missing_runs(study, results, retries)
    trials = study.pending_trials
    of_trials = missing_runs(trials, results, retries) if trials else []
    if trials is not None and set(of_trials) - left:
        return replace(
            stage,
            sentence=f"{stage.sentence} {trials_text(study, trials)}".strip(),
            trials=trials,
            runs=tuple(of_trials),
            later_runs=tuple(rows),
            at_once=max(len(of_trials), len(rows) + waiting),
            decides=True,
        )
    if set(rows) - left:
        decides = stage.decides or waiting > 0
        return replace(stage, runs=tuple(rows), at_once=len(rows), decides=decides)
    if waiting and not of_trials:
        return replace(stage, obstacle=obstacle_text(trials, waiting, results))
    return stage


def first_stage(
    study: Study,
    results: Results,
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Rule | None = None,
) -> Stage:
    """The next stage of a study whose finished runs may lack a score, because a metric is new.

    `log` receives a line for each score that cannot be made; the rest is as for `next_stage`.
    """
    if study.judged_at:
        for fault in score_missing(study, results):
            log(fault)
    return next_stage(study, results, retries, limit=limit)


def advance(
    stage: Stage, results: Results, retries: Retries = never, limit: Rule | None = None
) -> Stage:
    """What is next after each run of a stage has ended, or is left to others.

    Raises:
        StoreError: a result cannot be read.
    """
    left = stage.left.union(missing_runs(stage.part, results, retries))
    if not stage.decides:
        return replace(stage, runs=(), later_runs=(), at_once=0, left=left)
    return next_stage(stage.settled, results, retries, left, limit)


def execute_stages(
    stage: Stage,
    results: Results,
    execute: Callable[[Stage], object],
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Rule | None = None,
) -> Stage:
    """Execute a stage and those that follow it.

    Args:
        stage: the first one.
        results: root of the results.
        execute: launches the runs of a stage, and returns when each of them has ended, or is left
            to others.
        log: receives the sentence of each stage, and a line for each score that cannot be made.
        retries: which failed runs are repeated.
        limit: a further rule, such as a budget.

    Returns:
        Where the study is then; without runs, unless scores that decide what follows are missing.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    while stage.runs:
        if stage.sentence:
            log(stage.sentence)
        execute(stage)
        faults: list[str] = []
        if stage.details:  # what follows depends on scores
            faults = score_missing(stage.study, results)
            for fault in faults:
                log(fault)
            record_judgment(stage.settled, results)
        stage = advance(stage, results, retries, limit)
        if faults:  # another process could see another verdict
            break
    return stage
