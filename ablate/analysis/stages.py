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

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.current_look import read_current_look
from ablate.analysis.judgments import record_judgment
from ablate.analysis.missing import Retries, missing_runs, never
from ablate.analysis.missing_scores import score_missing
from ablate.analysis.tuning_runs import pending_tuning, tuning_runs_of, with_tuning_runs
from ablate.formatting import plural
from ablate.store import Results
from ablate.store.status import fault_in_result
from ablate.study import Run, Runs, Study
from ablate.study.choice import TUNING_RUN
from ablate.table.looks import Looks


@dataclass(frozen=True)
class Stage:
    """The state of a study, and the runs to execute now.

    planned: all runs of the rows, with all seeds.
    selected: the planned runs to execute up to the current look, limited by `Limit`.
    looks: the looks that have been judged, and the next look.
    tuning: tuning runs to execute first, because some rows wait for them; else None.
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
    tuning: Runs | None = None
    missing: tuple[str, ...] = ()
    missing_later: tuple[str, ...] = ()
    decides: bool = False
    skipped: frozenset[str] = frozenset()
    obstacle: str = ""

    @property
    def study(self) -> Study:
        """The study as the file and the options ask for it, without the choices of tuning runs."""
        return self.planned.study

    @property
    def possible(self) -> Runs:
        """All runs that the study may need: `planned`, or only `selected` after an early stop."""
        return self.selected if self.looks.stopped_early else self.planned

    @property
    def all_runs(self) -> list[Run]:
        """All runs of the study, each once: of this stage, of earlier and of later stages."""
        return with_tuning_runs(self.planned)

    @property
    def runs(self) -> Runs:
        """The runs of this stage, missing or not: the tuning runs, or the runs of the rows."""
        return self.selected if self.tuning is None else self.tuning

    @property
    def logged(self) -> Runs:
        """The runs that dashboards show. While base is decoded on dev, these are the runs of the
        rows, because a dashboard has no scores on dev beside scores on test.
        """
        return self.selected if self.runs.split == "dev" else self.runs

    @property
    def total_runs(self) -> int:
        """Number of runs that decides how many GPUs each run gets.

        It counts the runs of the whole study, so that a run gets the same number of GPUs if --rows
        or --seeds select a part of the study.
        """
        return self.study.whole.runs if self.tuning is None else len(self.tuning.by_id)

    @property
    def max_parallel_runs(self) -> int:
        """The largest number of runs to execute at the same time, in this stage or the next."""
        next_runs = len(self.missing_later)
        if self.tuning is not None:
            next_runs += sum(run.awaits_choice for run in self.selected)
        return max(len(self.missing), next_runs)

    @property
    def sentence(self) -> str:
        """What is executed now, in one line for the user; may be empty."""
        sentences = [self.looks.text]
        if self.tuning is not None:
            sentences.append(_tuning_sentence(self.selected, self.tuning))
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
    def runs_to_prepare(self) -> list[Run]:
        """The runs of this stage, after the tuning runs of its rows: also those that are done,
        whose text must be the text of the rows for which they have chosen values.
        """
        tuning = tuning_runs_of(self.selected)
        return list(((tuning.by_id if tuning else {}) | self.runs.by_id).values())

    @property
    def known_groups(self) -> list[Runs]:
        """The runs of this stage and of the next."""
        return [self.selected] if self.tuning is None else [self.tuning, self.selected]

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
    planned = runs_with_choices(study, results)
    current = read_current_look(planned, results, retries)
    stage = Stage(
        planned,
        current.runs,
        current.looks,
        decides=current.looks.next is not None,
        skipped=frozenset(skipped),
    )
    if limit is not None:
        within_limit = limit.select(stage.possible, results)
        selected = stage.selected.intersection(within_limit)
        stage = replace(stage, selected=selected, decides=stage.decides or limit.selects_again)
    return _with_missing(stage, results, retries)


def _with_missing(stage: Stage, results: Results, retries: Retries) -> Stage:
    """The stage with its missing runs: first the tuning runs, then the runs of rows that wait for
    no tuning run.
    """
    missing = tuple(missing_runs(stage.selected, results, retries))
    waiting = sum(run.awaits_choice for run in stage.selected)
    tuning = pending_tuning(stage.selected)
    missing_tuning: tuple[str, ...] = ()
    if tuning is not None:
        missing_tuning = tuple(missing_runs(tuning, results, retries))
    if set(missing_tuning) - stage.skipped:
        return replace(
            stage, tuning=tuning, missing=missing_tuning, missing_later=missing, decides=True
        )
    if set(missing) - stage.skipped:
        return replace(stage, missing=missing, decides=stage.decides or waiting > 0)
    if waiting and not missing_tuning:
        return replace(stage, obstacle=_obstacle(tuning, waiting, results))
    return stage


def _tuning_sentence(runs: Runs, tuning: Runs) -> str:
    """A sentence about the runs that are executed before the runs of rows."""
    if tuning.base.is_decoded:
        return "Base is trained and decoded on dev first, to choose the decoding of every row."
    rows = plural(sum(row.own_choice is not None for row in runs.rows), "row")
    return f"{plural(len(tuning.by_id), TUNING_RUN)} come first: they choose settings for {rows}."


def _obstacle(tuning: Runs | None, waiting: int, results: Results) -> str:
    """The reason why `waiting` runs cannot begin although no tuning run is left to execute."""
    faults = [fault_in_result(results.run(run.id)) for run in tuning or ()]
    causes = [str(fault) for fault in faults if fault is not None]
    cause = causes[-1] if causes else f"{TUNING_RUN}s have failed"
    return f"{cause}; {plural(waiting, 'run')} cannot begin; see `ablate status`"


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
        for fault in score_missing(runs_with_choices(study, results), results):
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
        if stage.looks.has_several:  # the verdicts of a look decide which runs follow
            planned = runs_with_choices(stage.study, results)
            faults = score_missing(planned, results)
            for fault in faults:
                log(fault)
            record_judgment(planned, results)
        stage = advance(stage, results, retries, limit)
        if faults:  # with the missing scores, the verdicts might have selected other runs
            break
    return stage
