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
from ablate.study import Runs, Study
from ablate.table.looks import Looks
from ablate.table.verdicts import open_rows


@dataclass(frozen=True)
class Position:
    """The look that a study is at.

    runs: with the seeds up to this look.
    looks: the looks that have been judged, and the next one.
    """

    runs: Runs
    looks: Looks


def _is_over(run: RunResult) -> bool:
    """Whether a run is done, diverged or failed."""
    return run.state in ENDED


def position_of(planned: Runs, results: Results, retries: Retries = never) -> Position:
    """The look that a study is at, by its results.

    Args:
        planned: the runs of the study, with all seeds.
        results: root of the results.
        retries: which failed runs are repeated, so that their look cannot be judged yet.

    Raises:
        StoreError: a result is damaged.
    """
    runs = read_runs(planned, results) if planned.seeds.looks else []
    return position_of_runs(planned, runs, lambda run: has_ended(run, results, retries))


def position_of_runs(
    planned: Runs, runs: Sequence[RunResult], has_ended: Callable[[RunResult], bool] = _is_over
) -> Position:
    """The position of a study, from its runs.

    A study goes on past a look if every run has ended and some row is not settled. It stops only if
    every run is done or diverged: a failed run may still be made.
    """
    seeds = planned.seeds
    if not seeds.looks:
        return Position(planned, Looks.single_look(len(seeds.rows)))
    judged_names = set(planned.study.metrics.judged)
    looks = Looks(seeds.looks)
    experiment = experiment_of(planned, by_row(runs))
    for look in planned_looks(seeds.looks):
        if look.seeds > len(seeds.rows):  # of a part of the study, which ends before
            return Position(planned, replace(looks, next=look))
        until_look = planned.with_seeds(seeds.first(look.seeds))
        may_go_on = False
        for run in of_seeds(runs, until_look.seeds.rows):
            lacks_score = run.state == "done" and not run.scores.keys() >= judged_names
            if lacks_score or not has_ended(run):
                return Position(until_look, replace(looks, next=look))
            may_go_on |= run.state == "failed"
        judged = (*looks.judged, look)
        looks = Looks(seeds.looks, judged, open_rows(experiment, judged))
        if not looks.open_rows and not may_go_on:
            return Position(until_look, looks)
    return Position(planned, looks)


def earlier_judgments(planned: Runs, results: Results) -> list[Judgment]:
    """Other ways in which the study was judged before: versions that have a run of base in common
    with it. What an old record leaves open is taken as it is now.

    Raises:
        StoreError: the record is damaged.
    """
    record = Judgments.read(results.judged(planned.study.name)) or Judgments()
    present, earlier = _judgment(planned), []
    for version in record.versions:
        if not {*version.base_runs} & {*present.base_runs}:
            continue
        known = version.model_dump(exclude_none=True) | {"base_runs": present.base_runs}
        judgment = present.model_copy(update=known)
        if judgment != present and judgment not in earlier:
            earlier.append(judgment)
    return earlier


def error_of_verdicts(planned: Runs, results: Results) -> tuple[float, list[str], list[str]]:
    """Bound of the error of the study's verdicts, a line if it was judged with other seeds, metrics
    or margins before, and a line if this cannot be read.

    Each version of seeds and metrics adds LEVEL (Bonferroni's inequality). A single seed has no
    verdict, so it adds no error.
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
    return bound, [_changed(planned.study, earlier, bound)] if earlier else [], []


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


def record_judgment(planned: Runs, results: Results) -> None:
    """Record how the study is judged, once it has been judged.

    A part of a study is not recorded.
    """
    if planned.study.source.is_modified:
        return
    path, present = results.judged(planned.study.name), _judgment(planned)
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
    return len(planned.seeds.rows) > 1 and all(map(_is_over, runs))


def _judgment(planned: Runs) -> Judgment:
    metrics = planned.study.metrics
    return Judgment(
        plan=planned.seeds.plan,
        base_runs=tuple(run.id for run in planned.of(planned.base)),
        metrics=metrics.judged,
        margins=dict(metrics.margins),
    )
