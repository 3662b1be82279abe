"""The next stage of a study, by its results: what to execute now, and why.

Everything that executes or follows a study loops alike:

    while (stage := next_stage(study, results)).runs:
        execute(stage)

The answer follows from the files alone, so that several launchers with one results root agree.
What a study asks for beyond its rows is a rule here: a rule narrows the study to the part that
counts now. `RULES` has those that the study file states; `--budget` is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
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

    settled: the study with the choices that trials have made.
    with_all_seeds: its part that may still be executed.
    study: the part that counts now, with the seeds so far.
    sentence: for people; empty if there is nothing to say.
    details: the same for scripts.
    trials: those that are executed now, because some rows of `study` wait for them; else None.
    runs: ids of the missing runs, in the order of execution; none if the study is finished.
    later_runs: ids of missing runs of `study` that are known already and belong to a later stage.
    at_once: the most runs that can be executed at the same time, in this stage or the next.
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
    obstacle: str = ""

    @property
    def part(self) -> Study:
        """The part with the runs: trials, or the rows."""
        return self.study if self.trials is None else self.trials

    @property
    def known_runs(self) -> list[Run]:
        """The missing runs of this stage and of later ones, as far as they are known."""
        runs = {run.id: run for run in (*self.study.runs(), *self.part.runs())}
        return [runs[id] for id in dict.fromkeys((*self.runs, *self.later_runs))]


Rule = Callable[[Stage, Results, Retries], Stage]


def choices(stage: Stage, results: Results, retries: Retries) -> Stage:
    """Rule of choices: each row gets the configuration that its trials choose."""
    study = settle(stage.study, results)
    return replace(stage, settled=study, with_all_seeds=study, study=study)


def seeds_so_far(stage: Stage, results: Results, retries: Retries) -> Stage:
    """Rule of `seeds`: those beyond a number at which the study is judged are for one with an open
    row there.
    """
    position = position_of(stage.study, results, retries)
    return replace(
        stage,
        with_all_seeds=position.study if position.stopped_early else stage.with_all_seeds,
        study=position.study,
        sentence=f"{stage.sentence} {position.text}".strip(),
        details={**stage.details, **position.as_json()},
    )


RULES: tuple[Rule, ...] = (choices, seeds_so_far)


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
    stage = Stage(study, study, study)
    for rule in filter(None, (RULES[0], limit, *RULES[1:])):
        stage = rule(stage, results, retries)
    study, waiting = stage.study, sum(run.awaits_choice for run in stage.study.runs())
    rows = missing_runs(study, results, retries)
    trials = study.pending_trials
    if trials is not None:
        runs = missing_runs(trials, results, retries)
        if set(runs) - set(left_to_others):
            return replace(
                stage,
                sentence=f"{stage.sentence} {trials_text(study, trials)}".strip(),
                trials=trials,
                runs=tuple(runs),
                later_runs=tuple(rows),
                at_once=max(len(runs), len(rows) + waiting),
            )
    if set(rows) - set(left_to_others):
        return replace(stage, runs=tuple(rows), at_once=len(rows))
    if waiting:
        return replace(stage, obstacle=obstacle_text(trials, waiting, results))
    return stage


def stages(
    study: Study, results: Results, retries: Retries = never, limit: Rule | None = None
) -> Iterator[Stage]:
    """Yield the stages of a study, each after the caller is done with the one before.

    Runs that are missing even then are left to other launchers, which hold them.
    """
    left: set[str] = set()
    while (stage := next_stage(study, results, retries, left, limit)).runs:
        yield stage
        left.update(missing_runs(stage.part, results, retries))


def execute_stages(
    study: Study,
    results: Results,
    execute: Callable[[Stage], object],
    log: Callable[[str], None],
    retries: Retries = never,
    limit: Rule | None = None,
) -> None:
    """Execute a study stage by stage.

    Args:
        study: to execute.
        results: root of the results.
        execute: launches the runs of a stage, and returns when each of them has ended, or is left
            to others.
        log: receives the sentence of each stage, and a line for each score that cannot be made.
        retries: which failed runs are repeated.
        limit: a further rule, such as a budget.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    begun = next_stage(study, results, retries, limit=limit)
    if begun.details:  # a metric may be new, so that finished runs lack their score
        for fault in score_missing(begun.study, results):
            log(fault)
    for stage in stages(study, results, retries, limit):
        if stage.sentence:
            log(stage.sentence)
        execute(stage)
        if stage.details:  # what follows depends on scores
            faults = score_missing(stage.study, results)
            for fault in faults:
                log(fault)
            record_judgment(stage.settled, results)
            if faults:  # another process could see another verdict
                return
