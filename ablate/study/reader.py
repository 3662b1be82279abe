"""Read a study file: collect every error with its position, then resolve each row against base.

In the order of reading: sections with `--set`, name, task, data, seeds, metrics, base, rows. Then
the rows are checked against the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.config.data import CorpusConfig
from ablate.errors import Fault, Mark, UsageError, as_fault
from ablate.study.class_sources import ClassSources
from ablate.study.error_list import ErrorList
from ablate.study.metrics import read_metrics
from ablate.study.row import Row
from ablate.study.row_reader import RowReader
from ablate.study.sections import read_data, read_task, with_overrides
from ablate.study.seeds import Looks, Seeds, SeedsOfBase
from ablate.study.select import (
    MAX_RUNS,
    Selection,
    notes_on_seeds,
    select_rows,
    select_seeds,
)
from ablate.study.settings import merge, with_causes, written_mark
from ablate.study.settings_reader import SettingsReader
from ablate.study.study import Source, Study, StudyMetrics, Whole
from ablate.study.study_file import StudyFile
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Node, Report, parse_yaml, read_file
from ablate.tasks import Task


def read_study(path: Path, selection: Selection | None = None) -> Study:
    """Read a study file, and select a part of it by the command line's `--set`, `--rows` and
    `--seeds`.

    Raises:
        StudyError: the file or `--set` has errors; it holds all of them.
        UsageError: `--rows` or `--seeds` selects an unknown row or invalid seeds.
    """
    selection = selection or Selection()
    text = read_file(path)
    root = parse_yaml(text, str(path))
    errors = ErrorList(path)
    report = errors.report
    classes = ClassSources(path.parent, report)
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
    data, metrics = None, StudyMetrics((), (), {})
    if task:
        # The class of the task knows the fields of `data`.
        if "data" in sections:
            with classes.faults_of_task(task_name):
                data = read_data(sections["data"], task, path.parent, report)
        metrics = read_metrics(file, sections, task, report)
    settings = SettingsReader(task, data, metrics.shown, classes, report)
    n_errors = len(errors)
    base = settings.read(file.base, {})
    base_is_valid = len(errors) == n_errors and valid.value.get("base") is root.value.get("base")
    reader = RowReader(file, settings, data, errors)
    rows = tuple(reader.read(base))
    reader.check_overridden(selection.overrides)
    if task and data and base_is_valid:
        with classes.faults_of_task(task_name):
            _check_task(task, metrics.shown, data, rows, reader.written, sections, report)
    if not errors:
        _check_seeds(rows, file, sections, report)
    # Settings are resolved up to here although some are invalid, so that all errors are found.
    if errors or task is None or data is None:
        raise errors.as_error()
    whole = Whole(rows, file.all_seeds, reader.dropped)
    selected = select_rows(file.study, rows, selection.rows)
    seeds = _selected_seeds(file, selection.seeds, len(selected))
    source = Source(
        text,
        notes=(*reader.notes(), *notes_on_seeds(selection.seeds)),
        data_mark=sections["data"].mark,
        classes=classes.sources,
        # A selection of all that there is changes nothing.
        is_modified=(selected, seeds) != (rows, whole.seeds) or selection.has_settings,
    )
    return Study(
        file.study,
        selection.origin or path,
        data,
        selected,
        seeds,
        metrics,
        task,
        task_name,
        tuple(reader.designs),
        whole,
        source,
    )


def _selected_seeds(file: StudyFile, text: str | None, n_rows: int) -> Seeds:
    """The seeds of `--seeds` in the place of the study's, which looks determine.

    Raises:
        UsageError: as `select_seeds` does, and for a study with looks.
    """
    if text is not None and isinstance(file.seeds, Looks):
        mark = file.seeds.node("looks").mark
        message = "the study is judged at looks, which determine its seeds; remove --seeds"
        raise UsageError(Fault(f"{mark}: {message}", place=Mark("--seeds")))
    return select_seeds(file.all_seeds, text, n_rows)


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

    A row differs from base by the fields that it writes, so these come first, then the fields of
    base, then those of `data`.
    """
    # fault -> the first row with it, and where no field has it: base concerns every row
    faults: dict[Fault, tuple[str, Mark]] = {}
    metrics_mark = sections.get("metrics", sections["data"]).mark
    for row in rows:
        for fault in task.check(data, row.config):
            faults.setdefault(as_fault(fault), (row.label, sections["data"].mark))
        for fault in task.check_metrics(metrics, data, row.config):
            faults.setdefault(as_fault(fault), (row.label, metrics_mark))
    base_fields = written[rows[0].label]
    data_fields = {f"data.{name}": node for name, node in sections["data"].fields().items()}
    for fault, (label, section) in faults.items():
        mark = written_mark(fault, [written[label], base_fields, data_fields], section)
        fault = with_causes(fault, {**merge(base_fields, written[label]), **data_fields})
        report(mark, fault.about(f'row "{label}"'))


def _check_seeds(
    rows: Sequence[Row], file: StudyFile, sections: Mapping[str, Node], report: Report
) -> None:
    """Report seeds that need a row to judge if there is none, and too many runs."""
    bases, seeds = sum(row.is_base for row in rows), file.all_seeds
    purpose = ""
    if isinstance(file.seeds, Looks):
        purpose, mark = "looks", file.seeds.node("looks").mark
    elif isinstance(file.seeds, SeedsOfBase):
        purpose, mark = "more seeds for base", sections["seeds"].mark
    if purpose and bases == len(rows):
        remedy = "list the seeds instead, as in [1, 2, 3]"
        report(mark, f"{purpose}: the study has no row to judge; {remedy}")
    runs = len(rows) * len(seeds.rows) + bases * len(seeds.further)
    if runs > MAX_RUNS:
        report(
            sections["seeds"].mark, f"makes {runs:,} runs; a study can have at most {MAX_RUNS:,}"
        )
