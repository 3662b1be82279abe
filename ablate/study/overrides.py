"""Replace fields of a study file by `--set`, before anything is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.config.resolve import standard_name
from ablate.errors import Fault, Invalid, Mark, StudyError, listed
from ablate.study.study_file import StudyFile
from ablate.study.typed import keys_of
from ablate.study.yaml_nodes import Node, Report, parse_yaml, plain_scalar


def with_overrides(
    root: Node, overrides: Sequence[str], data_folder: str | None, report: Report
) -> Node:
    """The file with the values of `--set`, and with an absolute path in the place of `data.folder`
    if a program gives one.

    Faults of `--set` are reported.

    Raises:
        StudyError: the file is not a mapping.
    """
    if not isinstance(root.value, dict):
        rule = f"a study must be a mapping of {listed(keys_of(StudyFile))}"
        raise root.mark.error(f"{rule}; got {root.kind}")
    sections = dict(root.value)
    first: dict[str, str] = {}  # field, under its standard name -> its first `--set`
    for text in overrides:
        mark = override_mark(text)
        try:
            key, node = _parse_override(text, mark)
            _set_field(sections, key, node)
            _refuse_repeated(first, key, text)
        except Invalid as error:
            for fault in error.faults:
                report(mark, fault)
    if data_folder is not None:
        _set_field(sections, "data.folder", Node(data_folder, Mark("folder of the data")))
    return Node(sections, root.mark)


def override_mark(text: str) -> Mark:
    """The place of faults of a `--set`: the option itself."""
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


def _refuse_repeated(first: dict[str, str], key: str, text: str) -> None:
    """Refuse a field that an earlier `--set` has given, under its name or its symbol.

    Raises:
        Invalid: `first` has the field. Otherwise the field is added to it.
    """
    section, _, name = key.rpartition(".")
    field = f"data.{name}" if section == "data" else standard_name(name) or name
    if field in first:
        problem = f"{field} is already given by --set {first[field][:80]}"
        raise Invalid(Fault(problem, remedy="give one of the two values"))
    first[field] = text


def _set_field(sections: dict[str, tuple[Mark, Node]], key: str, node: Node) -> None:
    """Replace a field of `data` or of `base`.

    Raises:
        Invalid: the field is of another section.
    """
    section, _, name = key.rpartition(".")
    section = section or "base"
    if section not in ("data", "base"):
        raise Invalid(f'"{section}" cannot be set; --set takes FIELD and data.FIELD')
    if section not in sections:
        sections[section] = (node.mark, Node({}, node.mark))
    mark, written = sections[section]
    fields = {} if written.value is None else written.value
    if not isinstance(fields, dict):
        return  # the section is not a mapping, which is reported when it is read
    if section == "base":
        fields = _without_field(fields, name)
    sections[section] = (mark, Node({**fields, name: (node.mark, node)}, written.mark))


def _without_field(fields: dict[str, tuple[Mark, Node]], name: str) -> dict[str, tuple[Mark, Node]]:
    """The fields of base without a field, which may be written by its name or by its symbol."""
    field = standard_name(name)
    if field is None:
        return fields
    return {key: value for key, value in fields.items() if standard_name(key) != field}
