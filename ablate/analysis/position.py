"""Where a study is: its current look, the runs that this needs, and the verdicts of earlier looks.

A study with a list of seeds has a single look, at all of them. It is judged from its first score
on, and there is nothing to say about its position.

A pure function of the results on disk, so that every process that works on a study finds the same
look. Stored are only seeds, metrics and margins with which the study was judged, so that a table
can tell if they were changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ablate.analysis.experiment import experiment_of
from ablate.analysis.missing import ENDED, Retries, has_ended, never
from ablate.analysis.results import RunResult, by_row, of_seeds, read_runs
from ablate.errors import StoreError
from ablate.formatting import enumeration, percent
from ablate.stats.looks import planned_looks
from ablate.stats.significance import LEVEL
from ablate.store import Results
from ablate.store.files import quarantine
from ablate.store.records import Judgment, Judgments
from ablate.study import Study
from ablate.table.looks import Standing
from ablate.table.verdicts import open_rows


@dataclass(frozen=True)
class Position:
    """The look that a study is at.

    study: with the seeds up to this look.
    standing: the looks that have been judged, and the next one.
    """

    study: Study
    standing: Standing


def _is_over(run: RunResult) -> bool:
    """Whether a run is done, diverged or failed."""
    return run.state in ENDED


def position_of(study: Study, results: Results, retries: Retries = never) -> Position:
    """The look that a study is at, by its results.

    Args:
        study: as read, or a part of it.
        results: root of the results.
        retries: which failed runs are repeated, so that their look cannot be judged yet.

    Raises:
        StoreError: a result is damaged.
    """
    runs = read_runs(study, results) if study.judged_at else []
    return position_of_runs(study, runs, lambda run: has_ended(run, results, retries))


def position_of_runs(
    study: Study, runs: Sequence[RunResult], has_ended: Callable[[RunResult], bool] = _is_over
) -> Position:
    """The position of a study, from its runs.

    A study goes on past a look if every run has ended and some row is not settled. It stops only if
    every run is done or diverged: a failed run may still be made.
    """
    if not study.judged_at:
        return Position(study, Standing.once(len(study.seeds)))
    position = Position(study, Standing(study.judged_at))
    experiment = experiment_of(study, by_row(runs))
    for look in planned_looks(study.judged_at):
        standing = position.standing
        if look.seeds > len(study.seeds):  # of a part of the study, which ends before
            return replace(position, standing=replace(standing, next=look))
        of_look = study.seeds[: look.seeds]
        first = replace(study, seeds=of_look, further_seeds=())
        may_go_on = False
        for run in of_seeds(runs, of_look):
            lacks_score = run.state == "done" and not run.scores.keys() >= {*study.judged}
            if lacks_score or not has_ended(run):
                return Position(first, replace(standing, next=look))
            may_go_on |= run.state == "failed"
        judged = (*standing.judged, look)
        standing = Standing(study.judged_at, judged, open_rows(experiment, judged))
        position = Position(study, standing)
        if not standing.open_rows and not may_go_on:
            return Position(first, standing)
    return position


def earlier_judgments(study: Study, results: Results) -> list[Judgment]:
    """Other ways in which the study was judged before: versions that have a run of base in common
    with it. What an old record leaves open is taken as it is now.

    Raises:
        StoreError: the record is damaged.
    """
    record = Judgments.read(results.judged(study.name)) or Judgments()
    present, earlier = _judgment(study), []
    for version in record.versions:
        if not {*version.base_runs} & {*present.base_runs}:
            continue
        known = version.model_dump(exclude_none=True) | {"base_runs": present.base_runs}
        judgment = present.model_copy(update=known)
        if judgment != present and judgment not in earlier:
            earlier.append(judgment)
    return earlier


def error_of_verdicts(study: Study, results: Results) -> tuple[float, list[str], list[str]]:
    """Bound of the error of the study's verdicts, a line if it was judged with other seeds, metrics
    or margins before, and a line if this cannot be read.

    Each version of seeds and metrics adds LEVEL (Bonferroni's inequality). A single seed has no
    verdict, so it adds no error.
    """
    if len(study.seeds) == 1:
        return LEVEL, [], []
    try:
        earlier = earlier_judgments(study, results)
    except StoreError as error:
        unknown = "it is not known whether seeds, metrics or margins were changed after a verdict"
        return LEVEL, [], [f"{error}; {unknown}"]
    versions = {(version.plan, version.metrics) for version in (*earlier, _judgment(study))}
    bound = min(1.0, LEVEL * len(versions))
    return bound, [_changed(study, earlier, bound)] if earlier else [], []


def _changed(study: Study, earlier: Sequence[Judgment], bound: float) -> str:
    text = f"The study was judged before: {'; '.join(map(_judgment_text, earlier))}. "
    if bound > LEVEL:
        text += f"The error of all its verdicts is at most {percent(bound)}, not {percent(LEVEL)}."
    else:
        text += '"As good as base" is a claim about a margin that was stated before the results.'
    if study.source.is_modified:
        text += f" This is a trial; the study's own verdicts: `ablate table {study.path}`."
    return text


def _judgment_text(judgment: Judgment) -> str:
    """`with 3 and 5 seeds by bleu, margin 0.5 bleu`."""
    text = f"with {enumeration(map(str, judgment.plan))} seeds"
    text += f" by {enumeration(judgment.metrics or ())}"
    margins = [f"{value:g} {metric}" for metric, value in (judgment.margins or {}).items()]
    return f"{text}, margin {enumeration(margins) or 'none'}"


def record_judgment(study: Study, results: Results) -> None:
    """Record how the study is judged, once it has been judged.

    A part of a study is not recorded.
    """
    if study.source.is_modified:
        return
    path, present = results.judged(study.name), _judgment(study)
    try:
        record = Judgments.read(path) or Judgments()
    except StoreError:
        quarantine(path)
        record = Judgments()
    if present not in record.versions and _is_judged(study, results):
        Judgments(versions=(*record.versions, present)).write(path)


def _is_judged(study: Study, results: Results) -> bool:
    if not any(family.rows for family in study.families):
        return False
    runs = read_runs(study, results)
    if study.judged_at:
        return bool(position_of_runs(study, runs).standing.judged)
    return len(study.seeds) > 1 and all(map(_is_over, runs))


def _judgment(study: Study) -> Judgment:
    return Judgment(
        plan=study.plan,
        base_runs=tuple(run.id for run in study.runs_of(study.base)),
        metrics=study.judged,
        margins=dict(study.margins),
    )
