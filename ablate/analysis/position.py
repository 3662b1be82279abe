"""Find the current look of a study, and record how the study was judged.

A study without looks is judged once, at all of its seeds, and its table shows verdicts from the
first score on.

The current look follows only from the results on disk, so that all processes that work on a study
find the same look. Only the seeds, metrics and margins with which the study was judged are stored,
so that a table can say if they were changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ablate.analysis.choices import with_all_rows
from ablate.analysis.experiment import experiment_of
from ablate.analysis.missing import ENDED, Retries, has_ended, never
from ablate.analysis.results import (
    RunResult,
    read_runs,
    runs_by_row,
    runs_with_seeds,
    with_rows_of,
)
from ablate.errors import StoreError
from ablate.formatting import enumeration, percent
from ablate.stats.looks import planned_looks
from ablate.stats.significance import LEVEL
from ablate.store import Results
from ablate.store.files import quarantine
from ablate.store.records import Judgment, Judgments
from ablate.study import Runs, Study
from ablate.table.looks import Looks
from ablate.table.verdicts import undecided_rows


@dataclass(frozen=True)
class Position:
    """The current look of a study.

    runs: the runs with the seeds up to this look.
    looks: the looks that have been judged, and the next look.
    """

    runs: Runs
    looks: Looks


def _is_done_or_failed(run: RunResult) -> bool:
    """Whether a run is done, diverged or failed."""
    return run.state in ENDED


def position_of(planned: Runs, results: Results, retries: Retries = never) -> Position:
    """Find the current look of a study from its results.

    Args:
        planned: the runs of the study, with all seeds.
        results: results root.
        retries: decides whether a failed run is repeated, so that its look cannot be judged yet.

    Raises:
        StoreError: a result is damaged.
    """
    runs: list[RunResult] = []
    if planned.seeds.looks:
        runs = read_runs(with_all_rows(planned, results), results)
    return position_of_runs(planned, runs, lambda run: has_ended(run, results, retries))


def position_of_runs(
    planned: Runs,
    runs: Sequence[RunResult],
    has_ended: Callable[[RunResult], bool] = _is_done_or_failed,
) -> Position:
    """Find the current look of a study from the results of its runs.

    A look is judged once all its runs have ended. The study goes on to the next look if some row is
    undecided, or if a run failed, because it may still be repeated.

    Args:
        planned: the runs of the study, with all seeds.
        runs: the results of all rows of the study. Rows that are not in `planned` contribute to the
            noise of seeds, and decide nothing.
        has_ended: whether a run needs no execution.
    """
    seeds = planned.seeds
    if not seeds.looks:
        return Position(planned, Looks.judged_once(len(seeds.rows)))
    judged_names = set(planned.study.metrics.judged)
    looks = Looks(seeds.looks)
    experiment = experiment_of(with_rows_of(planned, runs), runs_by_row(runs))
    selected = [run for run in runs if run.row.label in planned.by_label]
    for look in planned_looks(seeds.looks):
        if look.seeds > len(seeds.rows):  # --seeds or a budget selects fewer seeds
            return Position(planned, replace(looks, next=look))
        until_look = planned.with_seeds(seeds.first(look.seeds))
        has_failed_run = False
        for run in runs_with_seeds(selected, until_look.seeds.rows):
            lacks_score = run.state == "done" and not run.scores.keys() >= judged_names
            if lacks_score or not has_ended(run):
                return Position(until_look, replace(looks, next=look))
            if run.state == "failed":
                has_failed_run = True
        judged = (*looks.judged, look)
        undecided = [
            label for label in undecided_rows(experiment, judged) if label in planned.by_label
        ]
        looks = Looks(seeds.looks, judged, tuple(undecided))
        if not undecided and not has_failed_run:
            return Position(until_look, looks)
    return Position(planned, looks)


def earlier_judgments(planned: Runs, results: Results) -> list[Judgment]:
    """The earlier versions of the study, with other seeds, metrics or margins, that were judged.

    A recorded version counts if it has a run of base in common with the study. Fields that old
    records do not have are taken from the present version.

    Raises:
        StoreError: the record is damaged.
    """
    record = Judgments.read(results.judged(planned.study.name)) or Judgments()
    present = _judgment(planned)
    earlier: list[Judgment] = []
    for version in record.versions:
        if not {*version.base_runs} & {*present.base_runs}:
            continue
        recorded = version.model_dump(exclude_none=True) | {"base_runs": present.base_runs}
        judgment = present.model_copy(update=recorded)
        if judgment != present and judgment not in earlier:
            earlier.append(judgment)
    return earlier


def error_of_verdicts(planned: Runs, results: Results) -> tuple[float, list[str], list[str]]:
    """Bound the probability that any verdict of a study is false.

    Each version of seeds and metrics with which the study was judged adds LEVEL (Bonferroni's
    inequality). A study with one seed has no verdicts.

    Returns:
        The bound; a line if the study was judged before with other seeds, metrics or margins, else
        an empty list; a line if the record of judgments cannot be read, else an empty list.
    """
    if len(planned.seeds.rows) == 1:
        return LEVEL, [], []
    try:
        earlier = earlier_judgments(planned, results)
    except StoreError as error:
        unknown = "it is not known whether seeds, metrics or margins were changed after a verdict"
        return LEVEL, [], [f"{error}; {unknown}"]
    versions = {(version.plan, version.metrics) for version in (*earlier, _judgment(planned))}
    bound = min(1.0, LEVEL * len(versions))
    changed = [_changed_text(planned.study, earlier, bound)] if earlier else []
    return bound, changed, []


def _changed_text(study: Study, earlier: Sequence[Judgment], bound: float) -> str:
    text = f"The study was judged before: {'; '.join(map(_judgment_text, earlier))}. "
    if bound > LEVEL:
        text += f"The error of all its verdicts is at most {percent(bound)}, not {percent(LEVEL)}."
    else:
        text += '"As good as base" is a claim about a margin that was stated before the results.'
    if study.source.is_modified:
        text += " These rows were changed by options; the study's own verdicts: "
        text += f"`ablate table {study.path}`."
    return text


def _judgment_text(judgment: Judgment) -> str:
    """`with 3 and 5 seeds by bleu, margin 0.5 bleu`."""
    text = f"with {enumeration(map(str, judgment.plan))} seeds"
    text += f" by {enumeration(judgment.metrics or ())}"
    margins = [f"{value:g} {metric}" for metric, value in (judgment.margins or {}).items()]
    return f"{text}, margin {enumeration(margins) or 'none'}"


def record_judgment(planned: Runs, results: Results) -> None:
    """Record the seeds, metrics and margins of a study once it has been judged.

    A study that the command line modifies is not recorded.
    """
    if planned.study.source.is_modified:
        return
    path = results.judged(planned.study.name)
    present = _judgment(planned)
    try:
        record = Judgments.read(path) or Judgments()
    except StoreError:
        quarantine(path)
        record = Judgments()
    if present not in record.versions and _is_judged(planned, results):
        Judgments(versions=(*record.versions, present)).write(path)


def _is_judged(planned: Runs, results: Results) -> bool:
    if all(row.is_base for row in planned.rows):
        return False
    runs = read_runs(planned, results)
    if planned.seeds.looks:
        return bool(position_of_runs(planned, runs).looks.judged)
    return len(planned.seeds.rows) > 1 and all(map(_is_done_or_failed, runs))


def _judgment(planned: Runs) -> Judgment:
    metrics = planned.study.metrics
    return Judgment(
        plan=planned.seeds.plan,
        base_runs=tuple(run.id for run in planned.of(planned.base)),
        metrics=metrics.judged,
        margins=dict(metrics.margins),
    )
