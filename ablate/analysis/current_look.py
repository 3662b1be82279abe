"""Find the current look of a study: the interim analysis for which runs are executed now.

It follows only from the results on disk, so all processes that work on a study find the same look.
A study without looks is judged once, at all of its seeds; its only look is judged from the first
score on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ablate.analysis.choices import with_all_rows
from ablate.analysis.experiment import experiment_of
from ablate.analysis.missing import ENDED, Retries, failed_runs_to_repeat, never
from ablate.analysis.results import RunResult, read_runs, runs_by_row, runs_with_seeds, with_rows_of
from ablate.store import Results
from ablate.study import Runs
from ablate.table.looks import Looks
from ablate.table.verdicts import undecided_rows


@dataclass(frozen=True)
class CurrentLook:
    """The current look of a study.

    runs: the runs with the seeds up to this look.
    looks: the looks that have been judged, and the next look.
    """

    runs: Runs
    looks: Looks


def read_current_look(planned: Runs, results: Results, retries: Retries = never) -> CurrentLook:
    """Find the current look of a study from the files of its runs. A failed run that `retries`
    repeats is not judged yet.

    Raises:
        StoreError: a result is damaged.
    """
    if not planned.seeds.looks:  # the look does not depend on results
        return find_current_look(planned, [])
    runs = read_runs(with_all_rows(planned, results), results)
    return find_current_look(planned, runs, failed_runs_to_repeat(runs, results, retries))


def find_current_look(
    planned: Runs, runs: Sequence[RunResult], to_repeat: Collection[str] = ()
) -> CurrentLook:
    """Find the current look of a study from the results of its runs.

    A look is judged once all its runs have ended. The study goes on to the next look if some row is
    undecided, or if a run of base failed, because a command may still repeat it.

    Args:
        planned: the runs of the study, with all seeds.
        runs: the results of all rows of the study. Rows that are not in `planned` contribute to the
            noise of seeds, and decide nothing.
        to_repeat: ids of the failed runs that will be repeated.
    """
    seeds = planned.seeds
    if not seeds.looks:
        return CurrentLook(planned, Looks.judged_once(len(seeds.rows)))
    experiment = experiment_of(with_rows_of(planned, runs), runs_by_row(runs))
    selected = [run for run in runs if run.row.label in planned.by_label]
    judged_metrics = planned.study.metrics.judged
    missing = [run for run in selected if _is_missing(run, judged_metrics, to_repeat)]
    failed_of_base = [run for run in selected if run.state == "failed" and run.row.is_base]
    looks = Looks(seeds.looks)
    for look in looks.planned:
        if look.seeds > len(seeds.rows):  # --seeds or a budget selects only seeds of this look
            return CurrentLook(planned, replace(looks, next=look))
        until_look = planned.with_seeds(seeds.first(look.seeds))
        if runs_with_seeds(missing, until_look.seeds.rows):
            return CurrentLook(until_look, replace(looks, next=look))
        looks = Looks(seeds.looks, (*looks.judged, look))
        undecided = undecided_rows(replace(experiment, looks=looks))
        undecided = tuple(label for label in undecided if label in planned.by_label)
        looks = replace(looks, undecided_rows=undecided)
        if not undecided and not runs_with_seeds(failed_of_base, until_look.seeds.rows):
            return CurrentLook(until_look, looks)
    return CurrentLook(planned, looks)


def _is_missing(
    run: RunResult, judged_metrics: Collection[str], to_repeat: Collection[str]
) -> bool:
    """Whether a run has not ended, will be repeated, or lacks the score of a judged metric."""
    if run.state == "done":
        return any(metric not in run.scores for metric in judged_metrics)
    if run.state == "failed":
        return run.run.id in to_repeat
    return run.state not in ENDED
