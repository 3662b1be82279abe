"""Apply `--set` to a study file, and read its sections `task` and `data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from ablate.config.data import CorpusConfig
from ablate.config.identity import DEFAULT_TASK
from ablate.config.resolve import standard_name
from ablate.errors import Fault, Invalid, Mark, StudyError, faults_in, listed, unknown_name
from ablate.fields import field_faults
from ablate.own.reference import parse_reference
from ablate.paths import home_path
from ablate.study.class_sources import ClassSources
from ablate.study.settings import report_fields, value_faults
from ablate.study.study_file import StudyFile
from ablate.study.typed import keys_of
from ablate.study.yaml_nodes import Node, Report, parse_yaml, plain_scalar
from ablate.tasks import TASKS, Task, load_task

GIVEN_FOLDER = Mark("folder of the data")  # position of `Selection.data_folder`


def with_overrides(
    root: Node, overrides: Sequence[str], data_folder: str | None, report: Report
) -> Node:
    """Set the values of `--set`, and the folder of the data if a program gives it.

    Faults of `--set` are reported.

    Args:
        root: the file.
        overrides: texts of `--set`.
        data_folder: replaces `data.folder`; None to keep it.
        report: records a fault with its position.

    Raises:
        StudyError: the file is not a mapping.
    """
    if not isinstance(root.value, dict):
        rule = f"a study must be a mapping of {listed(keys_of(StudyFile))}"
        raise root.mark.error(f"{rule}; got {root.kind}")
    sections = dict(root.value)
    for text in overrides:
        mark = override_mark(text)
        try:
            _override(sections, *_parse_override(text, mark))
        except Invalid as error:
            for fault in error.faults:
                report(mark, fault)
    if data_folder is not None:
        _override(sections, "data.folder", Node(data_folder, GIVEN_FOLDER))
    return Node(sections, root.mark)


def override_mark(text: str) -> Mark:
    """The position of errors of a `--set`."""
    return Mark(f"--set {text[:80]}")


def _parse_override(text: str, mark: Mark) -> tuple[str, Node]:
    """Parse the FIELD=VALUE of `--set` into the field and its value.

    VALUE is a plain text or number: `/x/my #1 data` has no comment, and `a: b` is not a mapping.
    Only a VALUE that begins with a quote or a bracket is read as YAML.

    Raises:
        Invalid: the text is not of this form, or VALUE is not YAML.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not (key and equals and value):
        raise Invalid("is not of the form FIELD=VALUE, such as train_steps=200")
    if value[0] not in "\"'[{":
        return key, Node(plain_scalar(value), mark)
    try:
        node = parse_yaml(value, "VALUE")
    except StudyError as error:
        # Drop the position: VALUE has a single line.
        (fault,) = error.faults
        raise Invalid(replace(fault, place=None, subject="")) from None
    return key, Node(node.value, mark)


def _override(sections: dict[str, tuple[Mark, Node]], key: str, node: Node) -> None:
    """Replace a field of `data` or of `base` by `--set`, before anything is checked.

    Raises:
        Invalid: the field is of another section.
    """
    section, _, name = key.rpartition(".")
    section = section or "base"
    if section not in ("data", "base"):
        raise Invalid(f'"{section}" cannot be set; --set takes FIELD and data.FIELD')
    mark, old = sections.get(section, (node.mark, Node({}, node.mark)))
    if old.value is not None and not isinstance(old.value, dict):
        return  # an error that is reported at the section itself
    fields = dict(old.value or {})
    if section == "base":  # the same field may be written by its symbol
        same = standard_name(name)
        for written in list(fields):
            if same is not None and standard_name(written) == same:
                del fields[written]
    fields[name] = (node.mark, node)
    sections[section] = (mark, Node(fields, old.mark))


def read_task(node: Node | None, classes: ClassSources, report: Report) -> tuple[Task | None, str]:
    """Read the task and its name: a built-in task, or a reference to a class that is pinned to its
    source. (None, "") after an error, which is reported.
    """
    if node is None:
        return TASKS[DEFAULT_TASK], DEFAULT_TASK
    name = node.value
    if isinstance(name, str) and name in TASKS:
        return TASKS[name], name
    if not isinstance(name, str) or parse_reference(name) is None:
        report(node.mark, unknown_name("task", str(node.to_python()), TASKS))
        # Read the rest of the file for the task that is probably meant.
        nearest = get_close_matches(str(name), TASKS, n=1)
        return (TASKS[nearest[0]], nearest[0]) if nearest else (None, "")
    pinned = classes.pin(node)
    reference = parse_reference(pinned.value) if pinned else None
    if reference is None:
        return None, ""
    try:
        return load_task(reference, classes.sources[str(reference.digest)]), str(reference)
    except StudyError as error:
        for fault in error.faults:
            report(node.mark, str(fault))  # the text has the line in the file of the class
        return None, ""


def read_data(section: Node, task: Task, folder: Path, report: Report) -> CorpusConfig | None:
    """Read the fields of `data`; None after an error, which is reported.

    Args:
        section: the section `data`.
        task: the task of the study.
        folder: folder of the study file.
        report: records a fault with its position.
    """
    settings = {}
    for key, mark, node in section.items():
        fault = next(value_faults(key, node), None)
        if key not in task.data_config.model_fields:
            unknown = unknown_name("data field", key, task.data_config.model_fields)
            if standard_name(key) is not None:
                remedy = f"it is a field of base: base: {{{key}: VALUE}}"
                unknown = Fault(f'unknown data field "{key}"', remedy=remedy)
            report(mark, unknown)
        elif fault:
            report(node.mark, fault)
        else:
            settings[key] = node
    try:
        data = task.resolve_data({key: value.value for key, value in settings.items()})
        if not data.folder:
            return data
        path = _data_folder(settings["folder"], folder, report)
        return data.model_copy(update={"folder": path})
    except ValidationError as error:
        faults = field_faults(error, task.data_config)
        # The corpus determines which other fields are needed.
        faults = [replace(fault, fields=(*fault.fields, "corpus")) for fault in faults]
        report_fields(faults, settings, section.mark, report, settings)
    except ValueError as error:
        mark = settings.get("corpus", section).mark
        report_fields(faults_in(error), settings, mark, report, settings)
    return None


def _data_folder(folder: Node, beside: Path, report: Report) -> str:
    """Path of `data.folder`: relative to the study file if the file writes it, or to the current
    folder if `--set` or a program gives it.
    """
    if folder.mark == GIVEN_FOLDER:
        return str(folder.value)
    try:
        path = home_path(folder.value)
        if "://" in folder.value:
            raise Invalid(f"{folder.value}: write addresses in train, dev and test instead")
    except ValueError as error:
        for fault in faults_in(error):
            report(folder.mark, fault.about("folder"))
        return ""
    # A mark without a line belongs to --set.
    return str(beside / path if folder.mark.line else path)
