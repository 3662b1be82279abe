"""Settings: the values of fields that a study writes, with their positions in the file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from ablate.config import RowConfig
from ablate.config.model import LAYER_FIELDS
from ablate.config.presets import PRESETS
from ablate.config.resolve import SYMBOLS, field_names, standard_name
from ablate.errors import Fault, Mark, bare_letters, nested_faults, unknown_name
from ablate.fields import fields_by_alias
from ablate.formatting import setting_text
from ablate.study.error_list import MAX_ERRORS
from ablate.study.typed import KEY, Misplaced, mapping_of
from ablate.study.yaml_nodes import Node, Report

# Names in other libraries that correspond to several fields. A name for a single field is declared
# with the field.
_SEVERAL_FIELDS = {
    "layertypes": 'mixer" or "attention" with a list of values, such as "mixer: [lstm, attention]',
    **dict.fromkeys(("bias", "usebias"), 'attention_bias" or "feed_forward_bias'),
}

# Words in names of unknown fields -> the field whose own class could implement them.
_CLASS_FIELDS_BY_WORD = {
    **dict.fromkeys(("qk", "kv", "attn", "attention", "softcap", "sink", "sinks"), "attention"),
    **dict.fromkeys(("rope", "position", "positions", "yarn"), "positional_encoding"),
    **dict.fromkeys(("norm", "layernorm", "rmsnorm"), "norm"),
    **dict.fromkeys(("activation", "act", "glu"), "activation"),
}

# Keys of a study that are often written among the fields -> where they belong.
_PLACES_OF_KEYS = {
    **dict.fromkeys(
        ("task", "data", "seeds", "metrics", "judge", "margin", "sizes", "rows"),
        "a section of the study",
    ),
    **dict.fromkeys(
        ("corpus", "train", "dev", "test", "folder", "tokenizer", "documents", "direction"),
        "a key of data, which all rows share",
    ),
    "seed": "`seeds: [1, 2, 3]`, a section of the study",
    **dict.fromkeys(("match", "tune"), "a section of the study or a key of a group"),
    **dict.fromkeys(
        ("label", "require", "where", "resolution"),
        "a key of the group, beside its rows",
    ),
}
# Options of the command line that are often written in a study -> how to give them. They are not
# part of a study, because the results do not depend on them.
RUN_OPTIONS = {
    **dict.fromkeys(("device", "gpu", "gpus", "cuda"), "ablate run STUDY --device cuda"),
    **dict.fromkeys(("jobs", "workers"), "ablate run STUDY --jobs N"),
    **dict.fromkeys(("results", "output", "output_dir"), "ablate run STUDY --results DIR"),
    "budget": "ablate run STUDY --budget TIME",
    "offline": "ablate run STUDY --offline",
    "cluster": "ablate run STUDY --on PROFILE",
}  # fmt: skip


class Settings(dict[str, Node]):
    """Values by field name or symbol, as the study writes them.

    mark: position of the mapping in the file.
    """

    mark = Mark("")

    def lists(self) -> list[list[Node]]:
        """The list of values of each field."""
        return [node.value for node in self.values()]

    @classmethod
    def from_file(cls, value: Any, *, lists: bool = False) -> Settings:
        """Read a mapping of fields, each with one value or with a list of values; None is an empty
        mapping.

        Raises:
            Misplaced: fields are unknown or repeated, or values have the wrong kind; it has all
                faults.
        """
        faults_of = _list_faults if lists else _single_value_faults
        settings = cls()
        if value is None:
            return settings
        value = mapping_of(value, "fields, such as {d_model: 64}")
        # Finding the nearest name takes time, and a file may have more faults than are reported.
        faults = list(islice(name_faults(value.node), MAX_ERRORS))
        misnamed = {fault.path[0] for fault in faults}
        for key, _, node in value.node.items():
            if key in misnamed:
                continue
            settings[key] = node
            faults += nested_faults(key, faults_of(key, node))
        if faults:
            raise Misplaced(*faults, depth=1)
        settings.mark = value.node.mark
        return settings


# Stands for `$ref` until `schema` replaces it, because pydantic resolves every `$ref` itself.
REFERENCE = "reference"


def schema_reference(definition: str) -> dict[str, str]:
    """The JSON Schema that refers to a definition which `schema` adds, such as `settings`."""
    return {REFERENCE: f"#/definitions/{definition}"}


def one_required(names: Iterable[str]) -> list[Any]:
    """JSON Schemas that each require one of these keys, for `oneOf` and `anyOf`."""
    return [{"required": [name]} for name in names]


def _settings_type(read: Callable[[Any], Settings], schema: dict[str, Any]) -> Any:
    return Annotated[Settings, PlainValidator(read), WithJsonSchema(schema)]


_NOT_EMPTY = {"minProperties": 1}
# Pydantic types of mappings of fields. `Values` may be empty.
Values = _settings_type(
    Settings.from_file, {"anyOf": [schema_reference("settings"), {"type": "null"}]}
)
Fields = _settings_type(Settings.from_file, {"allOf": [schema_reference("settings"), _NOT_EMPTY]})
Lists = _settings_type(
    partial(Settings.from_file, lists=True), {"allOf": [schema_reference("lists"), _NOT_EMPTY]}
)


def name_faults(fields: Node) -> Iterable[Fault]:
    """Yield a fault for each unknown name, and for each field that is given twice, by name and by
    symbol.
    """
    written: dict[str, str] = {}  # standard name -> name or symbol in the study
    for key, _, _ in fields.items():
        name = "preset" if key == "preset" else standard_name(key)
        if name is None:
            yield unknown_field(key).nested(key, KEY)
        elif name in written:
            problem = f'"{key}" and "{written[name]}" are the same field'
            yield Fault(problem, (name,), path=(key, KEY))
        else:
            written[name] = key


def unknown_field(key: str) -> Fault:
    """The fault of an unknown field, with a remedy or the nearest name. The list of all names would
    be too long.
    """
    names = (*field_names(), *SYMBOLS, "preset")
    remedy = _remedy_of_known_key(key, names)
    if remedy:
        return unknown_name("field", key, (), remedy)
    unknown = unknown_name("field", key, names, _list_of_fields(key))
    alias = fields_by_alias(RowConfig).get(bare_letters(key))
    return replace(unknown, meant=alias) if alias else unknown


def _remedy_of_known_key(key: str, names: Collection[str]) -> str:
    """The remedy for a key that is not a field but has a known meaning; "" for other keys."""
    if key.partition(":")[0] in names:
        return "a colon needs a space after it"
    if key.isdecimal():
        return "a number has no comma: 1,000 is written 1000"
    if bare_letters(key) in _SEVERAL_FIELDS:
        return f'did you mean "{_SEVERAL_FIELDS[bare_letters(key)]}"?'
    if key in RUN_OPTIONS:
        return f"it is an option of the command line: {RUN_OPTIONS[key]}"
    if key in _PLACES_OF_KEYS:
        return f"it is {_PLACES_OF_KEYS[key]}, and not a field"
    return ""


def _list_of_fields(key: str) -> str:
    """The remedy for an unknown field: where fields are listed, and the kind of own class that
    could implement it.
    """
    fields = "`ablate init --schema` lists the fields"
    for word in key.split("_"):
        if word in _CLASS_FIELDS_BY_WORD:
            field = _CLASS_FIELDS_BY_WORD[word]
            return f"{fields}; a class of your own could have it: {field}: module:Class"
    return fields


def value_faults(key: str, node: Node, remedy: str = "") -> Iterator[Fault]:
    """Yield a fault for a value that no field accepts: a mapping, a list for a field that has no
    patterns, a text with a NUL character, or an unknown preset.

    `remedy` is the remedy for a list or a mapping.
    """
    if isinstance(node.value, list) and standard_name(key) in LAYER_FIELDS:
        for index, entry in enumerate(node.value):
            if isinstance(entry.value, list):
                yield Fault(f'"{key}" takes no pattern within its pattern', path=(index,))
            else:
                yield from nested_faults(index, value_faults(key, entry))
    elif isinstance(node.value, (dict, list)):
        yield Fault(f'"{key}" takes a single value; got {node.kind}', remedy=remedy)
    elif isinstance(node.value, str) and "\0" in node.value:
        yield Fault(f'"{key}" holds a NUL character: {node.kind}')
    elif key == "preset" and node.value not in PRESETS:
        yield unknown_name("preset", str(node.value), PRESETS)


def _single_value_faults(key: str, node: Node) -> Iterator[Fault]:
    remedy = ""
    if isinstance(node.value, list) and node.value:
        remedy = f"to compare values, write each: {{{key}: [...]}} in a group of rows"
    yield from value_faults(key, node, remedy)


def _list_faults(key: str, node: Node) -> Iterator[Fault]:
    if not isinstance(node.value, list) or not node.value:
        is_single = not isinstance(node.value, (dict, list)) and node.value is not None
        remedy = f"write {key}: [{setting_text(node.value)}]" if is_single else ""
        yield Fault(f'"{key}" needs a list of values; got {node.kind}', remedy=remedy)
        return
    for index, value in enumerate(node.value):
        yield from nested_faults(index, value_faults(key, value))


def merge(base: Mapping[str, Node], written: Mapping[str, Node]) -> dict[str, Node]:
    """The settings of base, followed by the settings of the row, which override them. The order
    counts: a preset of the row also overrides earlier fields of base.
    """
    inherited = {name: node for name, node in base.items() if name not in written}
    return {**inherited, **written}


def node_of(field: str, settings: Mapping[str, Node]) -> Node | None:
    """The node that sets a field: its value, or a preset with a value for it; the last of them, as
    it overrides the others. None if no node sets it.
    """
    found = None
    for name, node in settings.items():
        if name == field or (name == "preset" and field in PRESETS.get(str(node.value), {})):
            found = node
    return found


def written_mark(fault: Fault, mappings: Iterable[Mapping[str, Node]], mark: Mark) -> Mark:
    """Position of the first field of a fault that the file writes; else `mark`.

    Args:
        fault: a fault of several fields.
        mappings: settings by standard name; all fields of the fault are looked up in the first
            mapping, then in the next.
        mark: position if the file writes no field of the fault.
    """
    for settings in mappings:
        for field in fault.fields:
            node = node_of(field, settings)
            if node is not None and not node.mark.is_option:
                return node.mark
    return mark


def with_causes(fault: Fault, settings: Mapping[str, Node]) -> Fault:
    """A fault of settings in a file, with the options of the command line that set its fields."""
    nodes = [node_of(field, settings) for field in fault.fields]
    options = [node.mark for node in nodes if node is not None and node.mark.is_option]
    return replace(fault, causes=tuple(dict.fromkeys(options)))


def report_fields(
    faults: Iterable[Fault],
    settings: Mapping[str, Node],
    mark: Mark,
    report: Report,
    written: Mapping[str, Node] | None = None,
    symbols: Mapping[Mark, str] | None = None,
) -> None:
    """Report faults at the positions of their fields.

    A fault whose subject is a field is reported at this field; else at the first of its fields that
    is in `written`.

    Args:
        faults: faults whose fields have standard names.
        settings: all settings of the configuration, by standard name.
        mark: position if the study does not write the field.
        report: records a fault with its position.
        written: the settings of the row only, by standard name.
        symbols: the symbol of each field that the study writes by its symbol, by position.
    """
    for fault in faults:
        if fault.subject in settings:
            position = settings[fault.subject].mark
            fault = replace(fault, subject=(symbols or {}).get(position, fault.subject))
        elif fault.subject in fault.fields:
            position = mark
        else:
            position = written_mark(fault, [written or {}], mark)
        report(position, fault if position.is_option else with_causes(fault, settings))
