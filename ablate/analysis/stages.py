"""The next stage of a study: the runs to execute now, found from its results.

Code that executes or follows a study loops over its stages:

    stage = next_stage(study, results)
    while stage.missing:
        execute(stage)
        stage = advance(stage, results)

The next stage depends only on files, so several launchers with one results root agree. `advance`
reads the results again only if they can change which runs follow.
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
    """The state of a study, and the runs to execute now.

    planned: all runs of the rows, with all seeds.
    selected: the planned runs to execute up to the current look, limited by `Limit`.
    looks: the looks that have been judged, and the next look.
    trials: trials to execute first, because some rows wait for them; else None.
    missing: ids of the runs to execute now, in order; empty if nothing is left to execute.
    missing_later: ids of the missing runs of `selected` that start after the runs of `missing`.
    decides: whether the results of the missing runs decide which runs follow.
    skipped: ids of the missing runs that this process does not execute, because another launcher
        holds them or a budget ended before they began.
    obstacle: why runs of a finished study are missing; empty if none are missing.
    """

    planned: Runs
    selected: Runs
    looks: Looks
    trials: Runs | None = None
    missing: tuple[str, ...] = ()
    missing_later: tuple[str, ...] = ()
    decides: bool = False
    skipped: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def study(self) -> Study:
        """The study as the file and the options ask for it, without choices that trials made."""
        return self.planned.study

    @property
    def possible(self) -> Runs:
        """All runs that the study may need: `planned`, or only `selected` after an early stop."""
        return self.selected if self.looks.stopped_early else self.planned

    @property
    def runs(self) -> Runs:
        """The runs of this stage, missing or not: the trials, or the runs of the rows."""
        return self.selected if self.trials is None else self.trials

    @property
    def total_runs(self) -> int:
        """Number of runs that decides how many GPUs each run gets.

        It counts the runs of the whole study, so that a run gets the same number of GPUs if --rows
        or --seeds select a part of the study.
        """
        return self.study.whole.runs if self.trials is None else len(self.trials.by_id)

    @property
    def max_parallel_runs(self) -> int:
        """The largest number of runs to execute at the same time, in this stage or the next."""
        next_runs = len(self.missing_later)
        if self.trials is not None:
            next_runs += sum(run.awaits_choice for run in self.selected)
        return max(len(self.missing), next_runs)

    @property
    def sentence(self) -> str:
        """What is executed now, in one line for the user; may be empty."""
        sentences = [self.looks.text]
        if self.trials is not None:
            sentences.append(trials_text(self.selected, self.trials))
        return " ".join(filter(None, sentences))

    @property
    def details(self) -> Mapping[str, Any]:
        """The looks as JSON values; empty without looks."""
        return self.looks.as_json()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do, for this launcher or another."""
        return not self.missing and not self.skipped

    @property
    def known_groups(self) -> list[Runs]:
        """The runs of this stage and of the next."""
        return [self.selected] if self.trials is None else [self.trials, self.selected]

    @property
    def known_runs(self) -> list[Run]:
        """The missing runs of this stage and of later stages whose configurations are known."""
        runs = self.selected.by_id | self.runs.by_id
        return [runs[id] for id in dict.fromkeys((*self.missing, *self.missing_later))]


class Limit(Protocol):
    """Selects the runs of a study that are executed, as a budget does."""

    @property
    def selects_again(self) -> bool:
        """Whether more runs may be selected once the runs selected now have results."""

    def select(self, runs: Runs, results: Results) -> Runs:
        """Select the part of the runs to execute."""


def next_stage(
    study: Study,
    results: Results,
    retries: Retries = never,
    skipped: Collection[str] = (),
    limit: Limit | None = None,
) -> Stage:
    """Find the next stage of a study.

    Args:
        study: the study.
        results: results root.
        retries: decides whether a failed run is repeated.
        skipped: ids of missing runs that the caller does not execute.
        limit: selects the runs to execute; None for all.

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
        skipped=frozenset(skipped),
    )
    if limit is not None:
        within_limit = limit.select(stage.possible, results)
        selected = stage.selected.intersection(within_limit)
        stage = replace(stage, selected=selected, decides=stage.decides or limit.selects_again)
    return _with_missing(stage, results, retries)


def _with_missing(stage: Stage, results: Results, retries: Retries) -> Stage:
    """The stage with its missing runs: trials first, then the runs of rows that wait for none."""
    missing = tuple(missing_runs(stage.selected, results, retries))
    waiting = sum(run.awaits_choice for run in stage.selected)
    trials = pending_trials(stage.selected)
    missing_trials: tuple[str, ...] = ()
    if trials is not None:
        missing_trials = tuple(missing_runs(trials, results, retries))
    if set(missing_trials) - stage.skipped:
        return replace(
            stage, trials=trials, missing=missing_trials, missing_later=missing, decides=True
        )
    if set(missing) - stage.skipped:
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
    """Find the stage at which a command begins.

    Finished runs may lack the scores of a metric that was added to the study. A study with looks
    needs these scores to find its stage, so they are computed first. `log` receives a line for each
    score that cannot be computed; the other arguments are those of `next_stage`.
    """
    if study.seeds.looks:
        for fault in score_missing(settle(study, results), results):
            log(fault)
    return next_stage(study, results, retries, limit=limit)


def advance(
    stage: Stage, results: Results, retries: Retries = never, limit: Limit | None = None
) -> Stage:
    """Find the stage after `stage`, whose runs have been executed. Runs that are still missing are
    skipped from now on.

    Raises:
        StoreError: a result cannot be read.
    """
    skipped = stage.skipped.union(missing_runs(stage.runs, results, retries))
    if not stage.decides:
        return replace(stage, missing=(), skipped=skipped)
    return next_stage(stage.study, results, retries, skipped, limit)


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
        stage: the first stage.
        results: results root.
        execute: executes the runs of a stage, and returns when each run has ended or is skipped.
        log: receives the sentence of each stage, and a line for each score that cannot be computed.
        retries: decides whether a failed run is repeated.
        limit: selects the runs to execute; None for all.

    Returns:
        The last stage. Its `missing` is empty, unless a look could not be judged because a score
        could not be computed.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal stopped the process; all progress is saved.
    """
    while stage.missing:
        if stage.sentence:
            log(stage.sentence)
        execute(stage)
        faults: list[str] = []
        if stage.looks.has_looks:  # the verdicts of a look decide which runs follow
            planned = settle(stage.study, results)
            faults = score_missing(planned, results)
            for fault in faults:
                log(fault)
            record_judgment(planned, results)
        stage = advance(stage, results, retries, limit)
        if faults:  # with the missing scores, the verdicts might have selected other runs
            break
    return stage
