"""The fields that a study writes, with their positions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from ablate.config import RowConfig
from ablate.config.model import LAYER_FIELDS
from ablate.config.presets import PRESETS
from ablate.config.resolve import SYMBOLS, field_names, standard_name
from ablate.errors import Fault, Mark, meant_name, nested, unknown_name
from ablate.fields import fields_by_alias
from ablate.study.error_list import MAX_ERRORS
from ablate.study.typed import KEY, Misplaced, mapping_of
from ablate.study.yaml_nodes import Node, Report

# Names in other libraries for several fields together; a field declares a name for itself.
_SEVERAL_FIELDS = {
    "layer_types": 'mixer" or "attention" with a list of values, such as "mixer: [lstm, attention]',
    **dict.fromkeys(("bias", "use_bias"), 'attention_bias" or "feed_forward_bias'),
}

# Words in names of fields that ablate does not have -> the field whose class could provide them.
_OF_CLASSES = {
    **dict.fromkeys(("qk", "kv", "attn", "attention", "softcap", "sink", "sinks"), "attention"),
    **dict.fromkeys(("rope", "position", "positions", "yarn"), "positional_encoding"),
    **dict.fromkeys(("norm", "layernorm", "rmsnorm"), "norm"),
    **dict.fromkeys(("activation", "act", "glu"), "activation"),
}

# Keys of a study that are often written among the fields -> their place.
_KEYS = {
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
        ("label", "require", "where", "generators", "resolution"),
        "a key of the group, beside its rows",
    ),
}
# Settings of a command and not of a study: the results do not depend on them.
OPTIONS_OF_RUN = {
    **dict.fromkeys(("device", "gpu", "gpus", "cuda"), "ablate run STUDY --device cuda"),
    **dict.fromkeys(("jobs", "workers"), "ablate run STUDY --jobs N"),
    **dict.fromkeys(("results", "output", "output_dir"), "ablate run STUDY --results DIR"),
    "budget": "ablate run STUDY --budget TIME",
    "offline": "ablate run STUDY --offline",
    "cluster": "ablate run STUDY --on PROFILE",
}  # fmt: skip


class Settings(dict[str, Node]):
    """Values by field name or symbol, as the study writes them, and where it does."""

    mark = Mark("")

    def lists(self) -> list[list[Node]]:
        """The list of values of each field."""
        return [node.value for node in self.values()]

    @classmethod
    def from_file(cls, value: Any) -> Settings:
        """The fields of a mapping, each with a value; none if nothing is written.

        Raises:
            Misplaced: with every unknown or repeated field, and every value of the wrong kind.
        """
        return cls._checked(value, _single_value_faults)

    @classmethod
    def lists_from_file(cls, value: Any) -> Settings:
        """The fields of a mapping, each with a list of values; raises Misplaced likewise."""
        return cls._checked(value, _list_faults)

    @classmethod
    def _checked(cls, value: Any, check: Callable[[str, Node], Iterable[Fault]]) -> Settings:
        settings = cls()
        if value is None:
            return settings
        value = mapping_of(value, "fields, such as {d_model: 64}")
        # Nearest names take time, and a file may have more of them than are reported.
        faults = list(islice(name_faults(value.node), MAX_ERRORS))
        misnamed = {fault.path[0] for fault in faults}
        for key, _, node in value.node.items():
            if key in misnamed:
                continue
            settings[key] = node
            faults += nested(key, check(key, node))
        if faults:
            raise Misplaced(*faults, depth=1)
        settings.mark = value.node.mark
        return settings


REFERENCE = "reference"  # stands for `$ref`, which pydantic takes for a model of its own


def schema_reference(definition: str) -> dict[str, str]:
    """The JSON Schema of a definition that only the fields' table knows."""
    return {REFERENCE: f"#/definitions/{definition}"}


def required_alone(names: Iterable[str]) -> list[Any]:
    """JSON Schemas that each require one of these keys."""
    return [{"required": [name]} for name in names]


def _type(read: Callable[[Any], Settings], definition: str, besides: dict[str, Any]) -> Any:
    schema = WithJsonSchema(
        {next(iter(besides)): [schema_reference(definition), *besides.values()]}
    )
    return Annotated[Settings, PlainValidator(read), schema]


Values = _type(Settings.from_file, "settings", {"anyOf": {"type": "null"}})
Fields = _type(Settings.from_file, "settings", {"allOf": {"minProperties": 1}})
Lists = _type(Settings.lists_from_file, "lists", {"allOf": {"minProperties": 1}})


def name_faults(fields: Node) -> Iterable[Fault]:
    """Unknown names, and each field that is given by name and by symbol."""
    written: dict[str, str] = {}  # standard name -> name or symbol in the study
    for key, _, _ in fields.items():
        name = "preset" if key == "preset" else standard_name(key)
        if name is None:
            yield unknown_field(key).nested(key, KEY)
        elif name in written:
            what = f'"{key}" and "{written[name]}" are the same field'
            yield Fault(what, (name,), path=(key, KEY))
        else:
            written[name] = key


def unknown_field(key: str) -> Fault:
    """The fault of an unknown field, with the nearest name: all are too many to be listed."""
    names = (*field_names(), *SYMBOLS, "preset")
    meant, remedy = "", _other_place(key, names)
    if not remedy:
        meant = fields_by_alias(RowConfig).get(key.lower()) or meant_name(key, names)
    if not remedy and not meant:
        remedy = _list_of_fields(key)
    problem = f'unknown field "{key[:60]}"'
    return Fault(problem, remedy=remedy, code="unknown-name", meant=meant)


def _other_place(key: str, names: Collection[str]) -> str:
    """What to do with a key that is no field, but known; "" if it is not."""
    if key.partition(":")[0] in names:
        return "a colon needs a space after it"
    if key.isdecimal():
        return "a number has no comma: 1,000 is written 1000"
    if key.lower() in _SEVERAL_FIELDS:
        return f'did you mean "{_SEVERAL_FIELDS[key.lower()]}"?'
    if key in OPTIONS_OF_RUN:
        return f"it is an option of the command line: {OPTIONS_OF_RUN[key]}"
    if key in _KEYS:
        return f"it is {_KEYS[key]}, and not a field"
    return ""


def _list_of_fields(key: str) -> str:
    """Where fields are listed, and the class that may have a field with this name."""
    fields = "`ablate init --schema` lists the fields"
    for word in key.split("_"):
        if word in _OF_CLASSES:
            own = f"a class of your own could have it: {_OF_CLASSES[word]}: module:Class"
            return f"{fields}; {own}"
    return fields


def value_faults(key: str, node: Node, remedy: str = "") -> Iterator[Fault]:
    """What no field takes: lists but patterns, mappings, a NUL character, an unknown preset.

    `remedy` is for a list or a mapping.
    """
    if isinstance(node.value, list) and standard_name(key) in LAYER_FIELDS:
        for index, entry in enumerate(node.value):
            if isinstance(entry.value, list):
                yield Fault(f'"{key}" takes no pattern within its pattern', path=(index,))
            else:
                yield from nested(index, value_faults(key, entry))
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
        yield Fault(f'"{key}" needs a list of values; got {node.kind}')
        return
    for index, value in enumerate(node.value):
        yield from nested(index, value_faults(key, value))


def merge(base: Mapping[str, Node], written: Mapping[str, Node]) -> dict[str, Node]:
    """Base's settings followed by the row's, so that a preset in the row overrides base's."""
    inherited = {name: node for name, node in base.items() if name not in written}
    return {**inherited, **written}


def node_of(field: str, settings: Mapping[str, Node]) -> Node | None:
    """What sets a field: its value, or the preset that has one for it; the last one counts."""
    found = None
    for name, node in settings.items():
        if name == field or (name == "preset" and field in PRESETS.get(str(node.value), {})):
            found = node
    return found


def written_mark(fault: Fault, places: Iterable[Mapping[str, Node]], mark: Mark) -> Mark:
    """Position of the first field of a fault that the file writes; else `mark`.

    Args:
        fault: concerns several fields.
        places: settings by standard name; all fields are looked up in the first, then in the next.
        mark: position if the file writes none of them.
    """
    for place in places:
        for field in fault.fields:
            node = node_of(field, place)
            if node is not None and node.mark.line:  # a value of --set has none
                return node.mark
    return mark


def with_causes(fault: Fault, settings: Mapping[str, Node]) -> Fault:
    """A fault of settings in a file, with the options of the command line that set its fields."""
    nodes = [node_of(field, settings) for field in fault.fields]
    options = [node.mark for node in nodes if node is not None and not node.mark.line]
    return replace(fault, causes=tuple(dict.fromkeys(options)))


def report_fields(
    faults: Iterable[Fault],
    settings: Mapping[str, Node],
    mark: Mark,
    report: Report,
    written: Mapping[str, Node] | None = None,
    symbols: Mapping[Mark, str] | None = None,
) -> None:
    """Report faults: each at its subject, if that is a field, else at the first of its fields.

    Args:
        faults: with fields by standard name.
        settings: all that hold, by standard name.
        mark: position for fields that the study does not write.
        report: receives position and fault.
        written: a fault of several fields is reported at the first of these that it names.
        symbols: of fields, by position, where the study writes a symbol.
    """
    for fault in faults:
        if fault.subject in settings:
            position = settings[fault.subject].mark
            fault = replace(fault, subject=(symbols or {}).get(position, fault.subject))
        elif fault.subject in fault.fields:
            position = mark
        else:
            position = written_mark(fault, [written or {}], mark)
        report(position, with_causes(fault, settings) if position.line else fault)
