"""Read the sections `task` and `data` of a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from ablate.config.data import CorpusConfig
from ablate.config.identity import DEFAULT_TASK
from ablate.config.resolve import standard_name
from ablate.custom.reference import parse_reference
from ablate.errors import Fault, Invalid, StudyError, faults_in, unknown_name
from ablate.fields import field_faults, value_text
from ablate.paths import home_path
from ablate.study.class_sources import ClassSources
from ablate.study.settings import report_fields, value_faults
from ablate.study.yaml_nodes import Node, Report
from ablate.tasks import TASKS, Task, load_task


def read_task(node: Node | None, classes: ClassSources, report: Report) -> tuple[Task | None, str]:
    """Read the task and its name: a built-in task, or a reference to a class that is pinned to its
    source. (None, "") after an error, which is reported.
    """
    if node is None:
        return TASKS[DEFAULT_TASK], DEFAULT_TASK
    name = node.value
    if isinstance(name, str) and name in TASKS:
        return TASKS[name], name
    written = parse_reference(name) if isinstance(name, str) else None
    if written is None:
        written_name = name if isinstance(name, str) else value_text(node.to_python())
        unknown = unknown_name("task", written_name, TASKS)
        remedy = f"{unknown.remedy}, or a class of your own as module:Class"
        report(node.mark, replace(unknown, remedy=remedy))
        # Read the rest of the file for the task that is probably meant.
        meant = unknown.meant
        return (TASKS[meant], meant) if meant else (None, "")
    reference = classes.pin_reference(written, node.mark)
    if reference is None:
        return None, ""
    try:
        return load_task(reference, classes.sources[str(reference.digest)]), str(reference)
    except StudyError as error:
        for fault in error.faults:
            report(node.mark, str(fault))  # the text has the line in the file of the class
        return None, ""


def read_data(section: Node, task: Task, folder: Path, report: Report) -> CorpusConfig | None:
    """Read the fields of `data`; None after an error, which is reported. An error in `data.folder`
    leaves the folder empty.
    """
    settings = {}
    for key, mark, node in section.items():
        if key not in task.data_config.model_fields:
            report(mark, _unknown_field(key, task))
            continue
        fault = next(value_faults(key, node), None)
        if fault:
            report(node.mark, fault)
        else:
            settings[key] = node
    try:
        data = task.resolve_data({key: value.value for key, value in settings.items()})
    except ValidationError as error:
        mark = section.mark
        # Name `corpus`, too: it determines which other fields are needed.
        faults = [
            replace(fault, fields=(*fault.fields, "corpus"))
            for fault in field_faults(error, task.data_config)
            if fault.subject in settings or fault.subject not in section.value
        ]
    except ValueError as error:
        mark = settings.get("corpus", section).mark
        faults = list(faults_in(error))
    else:
        if not data.folder:
            return data
        return data.model_copy(update={"folder": _path(settings["folder"], folder, report)})
    report_fields(faults, settings, mark, report, written=settings)
    return None


def _unknown_field(key: str, task: Task) -> Fault:
    """The fault of a key that the section `data` does not have."""
    if standard_name(key) is None:
        return unknown_name("data field", key, task.data_config.model_fields)
    remedy = f"it is a field of base: base: {{{key}: VALUE}}"
    return Fault(f'unknown data field "{key}"', remedy=remedy)


def _path(folder: Node, study_folder: Path, report: Report) -> str:
    """Path of `data.folder`: relative to the study file if the file writes it, or to the current
    folder if an option gives it. Empty after an error, which is reported.
    """
    try:
        path = home_path(folder.value)
        if "://" in folder.value:
            raise Invalid(f"{folder.value}: write addresses in train, dev and test instead")
    except ValueError as error:
        for fault in faults_in(error):
            report(folder.mark, fault.about("folder"))
        return ""
    return str(path if folder.mark.is_option else study_folder / path)
