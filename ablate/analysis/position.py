"""Where a study is: its current look, the runs that this needs, and the verdicts of earlier looks.

A study with a list of seeds has a single look, at all of them. It is judged from its first score
on, and there is nothing to say about its position.

A pure function of the results on disk, so that every process that works on a study finds the same
look. Stored are only seeds, metrics and margins with which the study was judged, so that a table
can tell if they were changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate.analysis.missing import ENDED, Retries, has_ended, never
from ablate.analysis.results import RunResult, by_row, of_seeds, paired_scores, read_runs
from ablate.errors import StoreError
from ablate.formatting import enumeration, first_few, percent, plural
from ablate.stats.comparison import PairedScores
from ablate.stats.judge import verdicts_before, verdicts_over_looks
from ablate.stats.looks import Look, looks_of
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict
from ablate.store import Results
from ablate.store.files import quarantine
from ablate.store.records import Judgment, Judgments
from ablate.study import Study


@dataclass(frozen=True)
class Position:
    """The look that a study is at.

    study: with the seeds up to this look.
    judged: the looks that have been judged, because all of their runs have ended.
    open_rows: labels of the rows that are not settled at the last of them.
    next: the look whose runs are missing; None if no further look follows.
    """

    study: Study
    judged: tuple[Look, ...] = ()
    open_rows: tuple[str, ...] = ()
    next: Look | None = None

    @property
    def look(self) -> Look | None:
        """The look of the verdicts; None before the first one."""
        return self.judged[-1] if self.judged else None

    @property
    def level(self) -> float:
        """The level of the verdicts, in all metrics together."""
        return self.look.level if self.look else LEVEL

    @property
    def seen(self) -> frozenset[int]:
        """The seeds whose scores the verdicts have seen."""
        if self.look is None:
            return frozenset()
        return frozenset((*self.study.seeds[: self.look.seeds], *self.study.further_seeds))

    @property
    def stopped_early(self) -> bool:
        """Whether a look before the last one has settled every row."""
        if not self.judged or self.open_rows:
            return False
        return self.judged[-1].seeds < self.judged[-1].plan[-1]

    @property
    def text(self) -> str:
        """One line: the last look that was judged, what it has settled, and what follows; empty for
        a single look.
        """
        if not self.study.judged_at:
            return ""
        if not self.judged:
            assert self.next is not None
            return f"L{self.next.text[1:]}: no row is judged before all of its runs have ended."
        look = f"L{self.judged[-1].text[1:]}"
        if self.stopped_early:
            return f"{look}: every row is decided, and the study stops here."
        state, follows = "every row is decided", "this was the last look"
        if count := len(self.open_rows):
            are = "is" if count == 1 else "are"
            state = f"{plural(count, 'row')} {are} undecided ({first_few(self.open_rows)})"
        if self.next:
            follows = f"the study goes on with {self.next.seeds} seeds"
        return f"{look}: {state}; {follows}."

    def sentences(self, error: float) -> Iterator[str]:
        """Yield where the study is, and the error that its looks have spent of that of all."""
        if not self.study.judged_at:
            return
        yield self.text
        if self.look:
            yield (
                f"Error spent: {percent(self.look.spent)} of {percent(error)}, of which "
                f"{percent(self.look.level)} at this look."
            )

    def legend(self, error: float, kept: Iterable[str]) -> Iterator[str]:
        """Yield the look of a table's verdicts.

        Args:
            error: bound of the error of all verdicts.
            kept: labels of the rows whose verdict is of an earlier look.
        """
        if self.look is None or self.look.is_only:
            return
        text = (
            f"Judged at {self.look.text}, at the level {self.look.level:.3g}; all looks together "
            f"spend {error:.3g}. p values are multiplied by {LEVEL / self.look.level:.3g}."
        )
        if labels := ", ".join(kept):
            text += f" The verdict of an earlier look stays: {labels}."
        yield text

    def note(self) -> Iterator[str]:
        """Yield seeds and level of effects and slopes; nothing for a single look."""
        if self.look is not None and not self.look.is_only:
            yield (
                f"At {self.look.text}, at the level {self.look.level:.3g} that this look spends: "
                f"intervals of at least {100 * (1 - self.look.level):.3g} %, p times "
                f"{LEVEL / self.look.level:.3g}."
            )

    def as_json(self) -> dict[str, Any]:
        """The looks for scripts: those planned, and those judged with the error that they spend;
        empty for a single look.
        """
        if not self.study.judged_at:
            return {}
        looks = {
            "plan": list(self.study.judged_at),
            "judged": list(map(Look.as_json, self.judged)),
            "not_settled": list(self.open_rows) if self.judged else None,
            "stopped_early": self.stopped_early,
        }
        return {"looks": looks}


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
        return Position(study, looks_of(study.plan))
    position = Position(study)
    for look in looks_of(study.judged_at):
        if look.seeds > len(study.seeds):  # of a part of the study, which ends before
            return replace(position, next=look)
        of_look = study.seeds[: look.seeds]
        first = replace(study, seeds=of_look, further_seeds=())
        may_go_on = False
        for run in of_seeds(runs, of_look):
            lacks_score = run.state == "done" and not run.scores.keys() >= {*study.judged}
            if lacks_score or not has_ended(run):
                return replace(position, study=first, next=look)
            may_go_on |= run.state == "failed"
        judged = (*position.judged, look)
        position = Position(study, judged, _open_rows(study, runs, judged))
        if not position.open_rows and not may_go_on:
            return replace(position, study=first)
    return position


def _open_rows(study: Study, runs: Sequence[RunResult], judged: Sequence[Look]) -> tuple[str, ...]:
    """Labels of the rows that are not settled at the last of the looks in each metric that verdicts
    are by, or that lack a run.
    """
    of_rows = by_row(runs)
    is_open = dict.fromkeys(study.by_label, False)
    for run in of_seeds(runs, study.seeds[: judged[-1].seeds]):
        is_open[run.row.label] |= run.state == "failed" and not run.row.is_base
    rows = [row for row in study.rows if not row.is_base]
    pairs = [(of_rows[row.base], of_rows[row.label]) for row in rows]
    for metric in study.judged:
        judgments = verdicts_of_rows(study, metric, pairs, study.tests, judged)
        for row, verdict in zip(rows, judgments, strict=True):
            is_open[row.label] |= not verdict.is_settled
    return tuple(label for label, is_undecided in is_open.items() if is_undecided)


def verdicts_of_rows(
    study: Study,
    metric: str,
    pairs: Sequence[tuple[Sequence[RunResult], Sequence[RunResult]]],
    family: int,
    looks: Sequence[Look],
) -> list[Verdict]:
    """Verdicts of rows, each compared with its base.

    Args:
        study: of the rows.
        metric: its name.
        pairs: runs of the base of each row, and of the row.
        family: number of rows that Holm's correction covers.
        looks: that have been judged.
    """
    measured = study.task.metrics[metric]
    rule: dict[str, Any] = {"family": family, "margin": study.margins.get(metric)}
    rule["share"] = study.share_of_level(metric)

    rows = [runs[0].row for _, runs in pairs]
    labels = [row.label for row in rows]
    repeated = study.repeated(rows)
    different = {}
    for label, pair in zip(labels, pairs, strict=True):
        if label not in repeated:
            different[label] = pair

    def scores(seeds: Sequence[int]) -> list[PairedScores]:
        further, paired = study.further_seeds, []
        for base, runs in different.values():
            paired.append(paired_scores(measured, runs, base, seeds, further))
        return paired

    if looks:
        at_looks = [(look, scores(study.seeds[: look.seeds])) for look in looks]
        judged = verdicts_over_looks(measured, at_looks, **rule)[-1]
    else:
        judged = verdicts_before(measured, scores(study.seeds), looks_of(study.plan)[0])
    of_labels = dict(zip(different, judged, strict=True))
    return [of_labels[repeated.get(label, label)] for label in labels]


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
    if study.is_modified:
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
    if study.is_modified:
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
        return bool(position_of_runs(study, runs).judged)
    return len(study.seeds) > 1 and all(map(_is_over, runs))


def _judgment(study: Study) -> Judgment:
    return Judgment(
        plan=study.plan,
        base_runs=tuple(run.id for run in study.runs_of(study.base)),
        metrics=study.judged,
        margins=dict(study.margins),
    )
