"""Read a study file: collect every error with its position, then resolve each row against base.

In the order of reading: sections with `--set`, name, task, data, seeds, metrics, base, rows. Then
the rows are checked against the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ablate.config.data import CorpusConfig
from ablate.errors import Fault, Mark, as_fault
from ablate.study.error_list import ErrorList
from ablate.study.metrics import check_judge, check_margins, check_metrics
from ablate.study.own_classes import OwnClasses
from ablate.study.row_reader import RowReader
from ablate.study.runs import Row
from ablate.study.sections import read_data, read_task, with_overrides
from ablate.study.select import MAX_RUNS, Selection, select
from ablate.study.settings import merge, with_causes, written_mark
from ablate.study.settings_reader import SettingsReader
from ablate.study.study import Source, Study, Whole
from ablate.study.study_file import StudyFile
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Node, Report, parse_yaml, read_file
from ablate.tasks import Task


def read_study(path: Path, selection: Selection | None = None) -> Study:
    """Read a study file and apply the command line's `--set`, `--rows` and `--seeds`.

    Raises:
        StudyError: the file or `--set` has errors; it holds all of them.
        UsageError: `--rows` or `--seeds` selects an unknown row or invalid seeds.
    """
    selection = selection or Selection()
    text = read_file(path)
    root = parse_yaml(text, str(path))
    study = _read(path, root, text, selection)
    families = {family.base.label: family.total for family in study.families}
    total = sum(len(study.seeds_of(row)) for row in study.rows)
    whole = Whole(families, total, study.whole.dropped)
    return select(replace(study, whole=whole), selection)


def _read(path: Path, root: Node, text: str, selection: Selection) -> Study:
    errors = ErrorList(path)
    report = errors.report
    classes = OwnClasses(path.parent, report)
    root = with_overrides(root, selection.overrides, selection.data_folder, report)
    file, valid = read_model(StudyFile, root, "the study", report)
    if file is None:
        raise errors.as_error()
    sections = valid.fields()
    if "study" not in root.value:
        report(root.mark, 'the study has no name; add "study: NAME"')
    if "data" not in root.value:
        report(
            root.mark, 'the study needs a "data" section, such as {corpus: toy, vocab_size: 350}'
        )
    task, task_name = read_task(sections.get("task"), classes, report)
    data = None
    metrics: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    margins: dict[str, float] = {}
    if task:
        # The class of the task knows the fields of `data`.
        if "data" in sections:
            with classes.faults_of_task(task_name):
                data = read_data(sections["data"], task, path.parent, report)
        metrics = check_metrics(file.metrics, sections.get("metrics"), task, report)
        judge = check_judge(file.judge, sections.get("judge"), task, metrics, report)
        margins = check_margins(file.margin, sections.get("margin"), task, metrics, judge, report)
    settings = SettingsReader(task, data, metrics, classes, report)
    before = len(errors)
    base = settings.read(file.base, {})
    base_is_valid = len(errors) == before and valid.value.get("base") is root.value.get("base")
    reader = RowReader(file, settings, data, errors)
    rows = reader.read(base)
    reader.check_overridden(selection.overrides)
    if task and data and base_is_valid:
        with classes.faults_of_task(task_name):
            _check_task(task, metrics, data, rows, reader.written, sections, report)
    if not errors:
        _check_seeds(rows, file, sections, report)
    # Settings are resolved up to here although some are invalid, so that all errors are found.
    if errors or task is None or data is None:
        raise errors.as_error()
    return Study(
        file.study,
        path,
        data,
        tuple(rows),
        file.seed_plan.of_rows,
        metrics,
        judge=judge,
        margins=margins,
        task=task,
        task_name=task_name,
        source=Source(
            text=text,
            notes=tuple(reader.notes()),
            data_mark=sections["data"].mark,
            classes=classes.sources,
            fixed_seeds=file.seed_plan.fixed,
        ),
        whole=Whole(dropped=reader.dropped),
        trial_seeds=file.trial_seeds,
        designs=tuple(reader.designs),
        judged_at=file.seed_plan.judged_at,
        further_seeds=file.seed_plan.of_base,
    )


def _check_task(
    task: Task,
    metrics: Sequence[str],
    data: CorpusConfig,
    rows: Sequence[Row],
    written: Mapping[str, Mapping[str, Node]],
    sections: Mapping[str, Node],
    report: Report,
) -> None:
    """Report the rows that do not fit the task, its data and the metrics, at a field that is named.

    A row differs from base by the fields that it writes, so these come first; then those of base
    and of `data`.
    """
    # fault -> the first row with it, and where no field has it: base concerns every row
    faults: dict[Fault, tuple[str, Mark]] = {}
    of_metrics = sections.get("metrics", sections["data"]).mark
    for row in rows:
        for fault in task.check(data, row.config):
            faults.setdefault(as_fault(fault), (row.label, sections["data"].mark))
        for fault in task.check_metrics(metrics, data, row.config):
            faults.setdefault(as_fault(fault), (row.label, of_metrics))
    of_base = written[rows[0].label]
    of_data = {f"data.{name}": node for name, node in sections["data"].fields().items()}
    for fault, (label, section) in faults.items():
        mark = written_mark(fault, [written[label], of_base, of_data], section)
        fault = with_causes(fault, {**merge(of_base, written[label]), **of_data})
        report(mark, fault.of(f'row "{label}"'))


def _check_seeds(
    rows: Sequence[Row], file: StudyFile, sections: Mapping[str, Node], report: Report
) -> None:
    """Report seeds that need a row to judge if there is none, and too many runs."""
    bases, plan = sum(row.is_base for row in rows), file.seed_plan
    if bases == len(rows) and plan.purpose:
        remedy = "list the seeds instead, as in [1, 2, 3]"
        mark = plan.mark or sections["seeds"].mark
        report(mark, f"{plan.purpose}: the study has no row to judge; {remedy}")
    runs = len(rows) * len(plan.of_rows) + bases * len(plan.of_base)
    if runs > MAX_RUNS:
        report(
            sections["seeds"].mark, f"makes {runs:,} runs; a study can have at most {MAX_RUNS:,}"
        )
