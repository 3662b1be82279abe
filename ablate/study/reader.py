"""Read a study file: collect all errors with their positions, and resolve each row against base.

The sections are read in this order: task, data, metrics, base, sizes and rows. Then the rows are
checked against the task and its data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ablate.config.data import CorpusConfig
from ablate.errors import Fault, Mark, as_fault, wrong_option
from ablate.study.class_sources import ClassSources
from ablate.study.error_list import ErrorList
from ablate.study.metrics import check_vocabularies, read_metrics
from ablate.study.overrides import with_overrides
from ablate.study.row import Row
from ablate.study.row_reader import RowReader
from ablate.study.seeds import Seeds, SeedsOfBase, SeedsWithLooks
from ablate.study.select import MAX_RUNS, Selection, notes_on_seeds, select_rows, select_seeds
from ablate.study.settings import merge, with_causes, written_mark
from ablate.study.settings_reader import SettingsReader
from ablate.study.sizes import check_overridden, read_sizes
from ablate.study.study import Source, Study, StudyMetrics, Whole
from ablate.study.study_file import StudyFile
from ablate.study.task_and_data import read_data, read_task
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Node, Report, parse_yaml, read_file
from ablate.tasks import Task


def read_study(path: Path, selection: Selection | None = None) -> Study:
    """Read a study file with the options `--set`, `--rows` and `--seeds` of the command line.

    Raises:
        StudyError: the file or `--set` has errors; the exception has all of them.
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
        direction = "" if "task" in root.value else "direction: en-de, "  # of a translation
        remedy = (
            "write data: {corpus: toy, vocab_size: 350}, or for text of your own "
            f"data: {{corpus: files, {direction}train: FILE, dev: FILE, test: FILE}}"
        )
        report(root.mark, Fault('the study has no section "data"', remedy=remedy))
    task, task_name = read_task(sections.get("task"), classes, report)
    data = None
    metrics = StudyMetrics((), (), {})
    if task:
        # The class of the task knows the fields of `data`.
        if "data" in sections:
            with classes.faults_of_task(task_name):
                data = read_data(sections["data"], task, path.parent, report)
        metrics = read_metrics(file, sections, task, report)
    settings = SettingsReader(task, data, metrics.shown, classes, report)
    n_errors = len(errors)
    base_is_whole = valid.value.get("base") is root.value.get("base")
    base = settings.read(file.base, {}, is_whole=base_is_whole)
    base_is_valid = base_is_whole and len(errors) == n_errors
    sizes = read_sizes(file, base, settings, report)
    reader = RowReader(file, base, sizes, settings, data, errors)
    rows = tuple(reader.read())
    check_overridden(file, sizes, selection.overrides, report)
    if task and data and base_is_valid:
        with classes.faults_of_task(task_name):
            _check_task(task, metrics.shown, data, rows, reader.written, sections, report)
        check_vocabularies(metrics.judged, task, data, rows, reader.written, report)
    if not errors:
        _check_seeds(rows, file, sections, report)
    # Only now, so that all errors are found.
    if errors or task is None or data is None:
        raise errors.as_error()
    whole = Whole(rows, file.all_seeds, reader.dropped)
    selected = select_rows(rows, selection.rows)
    seeds = _selected_seeds(file, selection.seeds, len(selected))
    source = Source(
        text,
        notes=(
            *reader.notes.lines(),
            *_empty_rows(sections),
            *_notes_on_test(data),
            *notes_on_seeds(selection.seeds),
        ),
        data=sections["data"],
        classes=classes.sources,
        # A selection of all rows and seeds is no modification.
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


def _empty_rows(sections: Mapping[str, Node]) -> Iterator[str]:
    """Yield a note if the section `rows` is there without a group; `{}` is surely meant."""
    if "rows" in sections and sections["rows"].value is None:
        yield str(Fault("rows has no group: only base is trained", place=sections["rows"].mark))


def _notes_on_test(data: CorpusConfig) -> Iterator[str]:
    """Yield a note on a test split that is the training or the dev split."""
    if data.tests_on_training_text:
        yield "data.test is data.train, so scores do not show the quality on new text"
    elif data.tests_on_dev and data.test == data.dev:
        yield (
            "data.test is data.dev, so scores are better than on new text if anything is chosen "
            "by dev"
        )


def _selected_seeds(file: StudyFile, text: str | None, n_rows: int) -> Seeds:
    """The seeds of `--seeds`; all seeds of the study without the option.

    Raises:
        UsageError: as `select_seeds`, and if the study has looks, which determine its seeds.
    """
    if text is not None and isinstance(file.seeds, SeedsWithLooks):
        problem = f"the study is judged at looks ({file.seeds.node('looks').mark})"
        remedy = "looks determine the seeds, so remove --seeds"
        raise wrong_option("--seeds", Fault(problem, remedy=remedy))
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
    """Report the faults of rows that do not fit the task, its data or the metrics.

    A fault is reported once, for the first row that has it, at a field that it names: a field that
    the row writes, else a field of base, else a field of `data`.
    """
    # fault -> the first row that has it, and the position if no named field is written
    faults: dict[Fault, tuple[str, Mark]] = {}
    metrics_mark = sections.get("metrics", sections["data"]).mark
    for row in rows:
        for fault in task.check(data, row.config):
            faults.setdefault(as_fault(fault), (row.label, sections["data"].mark))
        for fault in task.check_metrics(metrics, data, row.config):
            faults.setdefault(as_fault(fault), (row.label, metrics_mark))
    base_fields = written[rows[0].label]
    data_fields = {f"data.{name}": node for name, node in sections["data"].fields().items()}
    for fault, (label, section_mark) in faults.items():
        mark = written_mark(fault, [written[label], base_fields, data_fields], section_mark)
        fault = with_causes(fault, {**merge(base_fields, written[label]), **data_fields})
        report(mark, fault.about(f'row "{label}"'))


def _check_seeds(
    rows: Sequence[Row], file: StudyFile, sections: Mapping[str, Node], report: Report
) -> None:
    """Report looks or more seeds for base in a study that has only base, and too many runs."""
    seeds = file.all_seeds
    bases = sum(row.is_base for row in rows)
    if bases == len(rows):
        problem = "the study has no row to judge; list the seeds instead, as in [1, 2, 3]"
        if isinstance(file.seeds, SeedsWithLooks):
            report(file.seeds.node("looks").mark, f"looks: {problem}")
        elif isinstance(file.seeds, SeedsOfBase):
            report(sections["seeds"].mark, f"more seeds for base: {problem}")
    runs = len(rows) * len(seeds.rows) + bases * len(seeds.further)
    if runs > MAX_RUNS:
        report(
            sections["seeds"].mark, f"makes {runs:,} runs; a study can have at most {MAX_RUNS:,}"
        )
