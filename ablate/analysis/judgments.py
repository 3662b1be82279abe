"""Record how a study was judged, and say if it was judged otherwise before.

A false verdict is more probable if a researcher has seen a verdict, adds seeds, changes a metric or
removes rows, for which Holm's correction then no longer counts, and judges again. Therefore the
seeds, metrics, margins and rows of each judgment are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.analysis.current_look import find_current_look
from ablate.analysis.missing import ENDED
from ablate.analysis.results import read_runs
from ablate.config.identity import run_ids
from ablate.errors import StoreError
from ablate.formatting import enumeration, percent, plural
from ablate.stats.significance import LEVEL
from ablate.store import Results
from ablate.store.files import quarantine
from ablate.store.records import Judgment, Judgments
from ablate.study import Row, Runs, Study


@dataclass(frozen=True)
class ErrorBound:
    """A bound of the probability that any verdict of a study is false.

    error_rate: the bound, from 0 to 1.
    remark: sentences about the earlier judgments with other seeds, metrics or margins, or with
        further rows; empty if there are none.
    fault: line about a record of judgments that cannot be read; else empty.
    """

    error_rate: float = LEVEL
    remark: str = ""
    fault: str = ""


def error_bound(planned: Runs, results: Results) -> ErrorBound:
    """Bound the probability that any verdict of a study is false.

    Each version of seeds, metrics and removed rows with which the study was judged adds LEVEL
    (Bonferroni's inequality). A changed margin or a new row adds nothing, and a study with one seed
    has no verdicts.
    """
    if len(planned.seeds.rows) == 1:
        return ErrorBound()
    try:
        earlier = earlier_judgments(planned, results)
    except StoreError as error:
        unknown = "it is not known whether the study was changed after a verdict"
        return ErrorBound(fault=f"{error}; {unknown}")
    if not earlier:
        return ErrorBound()
    judgments = (*earlier, _judgment(planned).model_copy(update={"rows": ()}))
    versions = {(made.seeds_per_look, made.metrics, made.rows) for made in judgments}
    error_rate = min(1.0, LEVEL * len(versions))
    return ErrorBound(error_rate, _remark(planned.study, results, earlier, error_rate))


def _remark(study: Study, results: Results, earlier: Sequence[Judgment], error_rate: float) -> str:
    text = (
        f"Earlier versions of the study have verdicts: {'; '.join(map(_judgment_text, earlier))}. "
    )
    if error_rate > LEVEL:
        text += "If no row differs from base, the probability of at least one false verdict in "
        text += f"all versions together is at most {percent(error_rate)}, not {percent(LEVEL)}."
    else:
        text += '"As good as base" is a claim about a margin that was stated before the results.'
    if study.source.is_modified:
        command = f"`{results.command('table', study.path)}`"
        text += f" This is a selection by --set, --rows or --seeds; {command} judges the study."
    return text


def _judgment_text(judgment: Judgment) -> str:
    """`by bleu, with 3 and 5 seeds, with a margin of 0.5 bleu`."""
    text = f"by {enumeration(judgment.metrics or ())}"
    text += f", with {enumeration(map(str, judgment.seeds_per_look))} seeds"
    margins = [f"{value:g} {metric}" for metric, value in (judgment.margins or {}).items()]
    text += f", with a margin of {enumeration(margins)}" if margins else ", without a margin"
    if judgment.rows:
        rows = plural(len(judgment.rows), "row")
        text += f", with {rows} changed (settings or code) or removed since then"
    return text


def earlier_judgments(planned: Runs, results: Results) -> list[Judgment]:
    """The judgments of earlier versions of the study, with other seeds, metrics or margins, or with
    rows that were removed since; `rows` has only these. A recorded judgment is of an earlier
    version if it has a run of base in common with the study.

    Raises:
        StoreError: the record is damaged.
    """
    record = Judgments.read(results.judged(planned.study.name)) or Judgments()
    if not record.versions:
        return []
    judgment = _judgment(planned)
    rows = {*(judgment.rows or ())}
    present = judgment.model_copy(update={"rows": ()})
    earlier: list[Judgment] = []
    for version in record.versions:
        if not {*version.base_runs} & {*present.base_runs}:
            continue
        # Options may change rows for one command, and do not remove them from the study.
        former_rows = () if planned.study.source.is_modified else version.rows or ()
        removed = tuple(row for row in former_rows if row not in rows)
        # Other runs of base are no difference, nor are metrics and margins, which old records lack.
        recorded = version.model_dump(exclude_none=True)
        recorded |= {"base_runs": present.base_runs, "rows": removed}
        judgment = present.model_copy(update=recorded)
        if judgment != present and judgment not in earlier:
            earlier.append(judgment)
    return earlier


def record_judgment(planned: Runs, results: Results) -> None:
    """Record the seeds, metrics, margins and rows of a study once it has been judged.

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
    """Whether a table of the study has verdicts. Like the table, it counts failed runs as ended,
    although a command may repeat them.
    """
    if all(row.is_base for row in planned.rows):
        return False
    runs = read_runs(planned, results)
    if planned.seeds.looks:
        return bool(find_current_look(planned, runs).looks.judged)
    return len(planned.seeds.rows) > 1 and all(run.state in ENDED for run in runs)


def _judgment(planned: Runs) -> Judgment:
    metrics = planned.study.metrics
    return Judgment(
        seeds_per_look=planned.seeds.plan,
        base_runs=tuple(run.id for run in planned.of(planned.base)),
        metrics=metrics.judged,
        margins=dict(metrics.margins),
        rows=tuple(
            _row_hash(planned.study, row) for row in planned.study.whole.rows if not row.is_base
        ),
    )


def _row_hash(study: Study, row: Row) -> str:
    """Hash of the settings of a row, which a new label does not change."""
    (id,) = run_ids(study.data, row.config, (0,), study.task_name).values()
    return f"{id} {row.decoding}"
