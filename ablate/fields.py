"""Base class of all settings, the facts about a field, and validation errors as faults."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from ablate.custom.reference import is_custom
from ablate.errors import Fault, Invalid, bare_letters, faults_in, listed, meant_name, not_allowed
from ablate.formatting import ellipsis, setting_text

_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+")  # not 1,5, which may also mean 1.5


class Section(BaseModel):
    """A frozen group of fields. Unknown names, wrong types, NaN and infinities are errors, and no
    value is converted. The text below a field is its meaning.
    """

    # Strict, because YAML has types: `dropout: "0.1"` is a mistake, and not 0.1. Validators are
    # built late, because a command uses only few of the classes.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    if not TYPE_CHECKING:  # a type checker knows the fields

        def __getattr__(self, name: str) -> Any:
            """Refuse an unknown name; a letter of the paper gets the field of this symbol as
            remedy.
            """
            if name.startswith("_"):
                return super().__getattr__(name)
            fields = type(self).model_fields
            named = [field for field, facts in facts_of(type(self)).items() if facts.symbol == name]
            meant = named[0] if named else meant_name(name, fields)
            problem = f'the configuration has no "{name}"'
            raise AttributeError(str(Fault(problem, meant=meant)))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The JSON Schema of the section, with the meanings as descriptions."""
        content = handler(schema)
        properties = handler.resolve_ref_schema(content).get("properties", {})
        for name, meaning in meanings_of(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = meaning
        return content


class TaskSettings(Section):
    """Base class of the fields of a row that only some tasks use. A task lists the classes that it
    uses.
    """


# Types of numbers for several fields. Because of the upper bounds, a typing mistake is an error in
# a study, and does not exhaust the memory.
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveShare = Annotated[float, Field(gt=0.0, le=1.0)]
ProperShare = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Amount = Annotated[int, Field(ge=1, le=100_000_000)]  # of tokens or of records
VocabularySize = Annotated[int, Field(ge=8, le=1_000_000)]
TextLength = Annotated[int, Field(ge=1, le=60_000)]  # in tokens

UNSET: Any = object()
SET: Any = object()


def only(*values: object) -> BeforeValidator:
    """A validator that refuses numbers where booleans are allowed, and booleans where numbers are.
    `Literal` accepts both, because True == 1.

    Args:
        values: all allowed values; True is the first of them if booleans are allowed.
    """

    def check(value: Any) -> Any:
        if isinstance(value, (int, float)) and isinstance(value, bool) != (values[0] is True):
            allowed = listed(map(setting_text, values))
            raise Invalid(not_allowed(value_text(value), allowed))
        return value

    return BeforeValidator(check)


@dataclass(frozen=True)
class Part:
    """An optional part of a run. Without the part, the fields that belong to it have no effect.

    name: name in messages.
    needs: the settings that choose the part: field -> values, or SET for any value that is true. A
        user's class also chooses it, because the class may read any field.
    parents: the larger parts that contain it; each of them must be there, too.
    condition: a further condition, as a function of a configuration.
    condition_fields: names of the fields that `condition` reads, for messages.
    absent: words of messages about a part that is not there.
    remedy: words of messages: what to do about its fields.
    """

    name: str
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    parents: tuple[Part, ...] = ()
    condition: Callable[[Any], bool] | None = None
    condition_fields: tuple[str, ...] = ()
    absent: str = "which is not chosen"
    remedy: str = "remove it"

    def missing(self, c: Any) -> Part | None:
        """The outermost missing part, of this one and its parents; None if none is missing."""
        for parent in self.parents:
            missing = parent.missing(c)
            if missing is not None:
                return missing
        return None if self._is_chosen(c) else self

    def _is_chosen(self, c: Any) -> bool:
        for name, values in self.needs.items():
            value = getattr(c, name)
            if values == (SET,):
                if not value:
                    return False
            elif value not in values and not is_custom(value):
                return False
        return self.condition is None or self.condition(c)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that decide whether the part is there."""
        return (*self.needs, *self.condition_fields)

    def __str__(self) -> str:
        """`it belongs to weight decay (weight_decay), which is not chosen`."""
        name = self.name
        if "=" not in name:
            name = f"{name} ({', '.join(self.fields)})"
        return f"it belongs to {name}, {self.absent}"


def choice(name: str, *values: str) -> Part:
    """The part that is there if the field `name` has one of these values."""
    return Part(f"{name}={listed(values)}", {name: values})


@dataclass(frozen=True)
class Facts:
    """Facts about a field of a run, beside its type, default, bounds and meaning.

    A field is declared once, in parts/ or config/: `name: Annotated[type, Facts(...)] = default`,
    with its meaning below. A field without facts is part of a run's id, has an effect in every
    model and with every task, and can be exported only at its default.

    symbol: letter of the paper that a study may write instead of the name.
    column: number of its column in the paper's Table 3; 0 for no column.
    head: head of this column in text; empty for the symbol or, without a symbol, the name.
    introduced: default when the field was added, if the default has changed since. Never edit it:
        the ids of old runs depend on it.
    in_id: whether it is part of a run's id; False if it changes how a run is trained, but not the
        result.
    part: optional part of the run that the field belongs to; without the part, the field has no
        effect.
    is_reset: whether the field gets its default where it has no effect, so that equal models have
        equal ids.
    chosen_on_dev: whether a study may choose its value by predictions for the dev split, without a
        further training.
    is_exported: whether exports accept all values, or have rules about it (export/target.py).
    per_layer: whether layers may have different values, so that a study may write a list, which is
        repeated over the layers of a stack.
    """

    symbol: str = ""
    column: int = 0
    head: str = ""
    introduced: Any = UNSET
    in_id: bool = True
    part: Part | None = None
    is_reset: bool = True
    chosen_on_dev: bool = False
    is_exported: bool = False
    per_layer: bool = False


class Aliases:
    """Names that PyTorch, nanoGPT and Hugging Face have for a field, if they are too different to
    be found by similarity. A message about an unknown field names the field with this alias.
    """

    def __init__(self, *names: str) -> None:
        self.names = names


CHOSEN_ON_DEV = Facts(chosen_on_dev=True)
EXPORTED = Facts(is_exported=True)
PER_LAYER = Facts(per_layer=True)
NOT_IN_ID = Facts(in_id=False)


def entries_of(value: Any) -> Any:
    """The entries of a pattern over the layers; for any other value, the value as only entry."""
    return value if isinstance(value, (list, tuple)) else (value,)


@cache
def facts_of(section: type[BaseModel]) -> dict[str, Facts]:
    """The facts of each field of a section, by name."""
    facts = {}
    for name, info in section.model_fields.items():
        facts[name] = Facts()
        for item in info.metadata:
            if isinstance(item, Facts):
                facts[name] = item
    return facts


@cache
def types_of(section: type[BaseModel]) -> dict[str, frozenset[type]]:
    """The types of the values of each field of a section, by name: `{int, NoneType}`."""
    types = {}
    for name, info in section.model_fields.items():
        types[name] = frozenset(_types_in(info.annotation))
    return types


def _types_in(annotation: Any) -> Iterator[type]:
    if get_origin(annotation) is Literal:
        yield from map(type, get_args(annotation))
    elif get_origin(annotation) is Annotated:
        yield from _types_in(get_args(annotation)[0])
    elif get_args(annotation):  # a union
        for part in get_args(annotation):
            yield from _types_in(part)
    elif isinstance(annotation, type):
        yield annotation


@cache
def fields_by_alias(section: type[BaseModel]) -> dict[str, str]:
    """The names of the fields of a section by the bare letters of their aliases."""
    fields: dict[str, str] = {}
    for name, info in section.model_fields.items():
        for item in info.metadata:
            if isinstance(item, Aliases):
                fields |= dict.fromkeys(map(bare_letters, item.names), name)
    return fields


@cache
def meanings_of(section: type[BaseModel]) -> dict[str, str]:
    """The text below each field of a section, by name, inherited fields included."""
    meanings: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, Section):
            meanings |= _texts_below_fields(cls)
    return meanings


def _texts_below_fields(cls: type[Section]) -> dict[str, str]:
    # Only the source has these texts, no object at run time. They are for errors and the JSON
    # Schema.
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):  # a class made without a file, as in a notebook
        return {}
    texts = {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    for statement, below in pairwise(definition.body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = " ".join(text.split())
    return texts


def field_faults(error: ValidationError, section: type[Section] | None = None) -> list[Fault]:
    """The faults in an error of validation. A fault of a rule about several fields has no subject.

    Args:
        error: an error of pydantic.
        section: the section, whose meanings are part of messages about missing fields.
    """
    faults = []
    for details in error.errors():
        name = str((*details["loc"], "")[0])
        if section and details["type"] == "missing":
            what = f"must be given ({meanings_of(section)[name]})"
            faults.append(Fault(what, (name,), name))
            continue
        for fault in value_faults(details):
            if details["type"] == "string_type" and section and name in meanings_of(section):
                # `train: 300` is meant as a size: say that the field names a text.
                fault = replace(fault, remedy=f"it gives the {meanings_of(section)[name]}")
            if _is_branch(details) and faults and faults[-1].fields == (name,):
                fault = replace(fault, allowed=f"{faults.pop().allowed} or {fault.allowed}")
            faults.append(replace(fault, fields=(name,), subject=name) if name else fault)
    return faults


def _is_branch(details: Any) -> bool:
    """Whether the error says that the value of a field is not of one of its types."""
    return len(details["loc"]) == 2 and isinstance(details["loc"][1], str)


def value_faults(details: Any) -> tuple[Fault, ...]:
    """The faults in an entry of pydantic's `errors()`."""
    kind, context, given = details["type"], details.get("ctx", {}), value_text(details["input"])
    if kind == "value_error":  # of a validator of this package
        return faults_in(context["error"])
    if kind == "missing":
        return (Fault("must be given"),)
    if kind == "literal_error":
        # pydantic has the allowed values only as text: 'post' or 'pre'.
        expected = context["expected"]
        meant = meant_name(details["input"], re.findall(r"'([^']*)'", expected))
        return (not_allowed(given, expected.replace("'", ""), meant=meant),)
    if kind == "too_short":
        needs = f"is not allowed: needs {context['min_length']} or more entries"
        return (Fault(needs, given=given),)
    if kind == "too_long":
        return (Fault(f"at most {context['max_length']} entries are allowed"),)
    if kind not in _ALLOWED:
        return (Fault(f"is not allowed: {details['msg']}", given=given),)
    allowed = _ALLOWED[kind].format(**context)
    return (not_allowed(given, allowed, _hint(kind, str(details["input"]).strip())),)


# The allowed values, by the type of pydantic's error.
_ALLOWED = {
    "bool_type": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "float_parsing": "a number",
    "int_from_float": "an integer, got a number with a fractional part",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "greater than or equal to {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "less than or equal to {le:g}",
}


def _hint(kind: str, given: str) -> str:
    """A hint such as `write 100000` where 100_000, 100k, 10% or yes is given; else ""."""
    if kind == "bool_type" and given.lower() in _BOOLEANS:
        return f"write {_BOOLEANS[given.lower()]}"
    is_int = kind in ("int_type", "int_from_float")
    if not is_int and kind != "float_type":
        return ""
    if is_int and _GROUPED.fullmatch(given):
        return f"write {given.replace(',', '')}"
    digits, unit = given, 1.0
    if given[-1:].lower() in _UNITS:
        digits, unit = given[:-1], _UNITS[given[-1].lower()]
    if not is_int:
        digits = digits.replace(",", ".")
    try:
        number = float(digits) * unit  # float() takes underscores between digits
    except ValueError:
        return ""
    # Above this bound floats are not exact: the hint would have other digits than the file.
    if is_int and number.is_integer() and abs(number) <= 2**53:
        return f"write {int(number)}"
    if not is_int and math.isfinite(number):
        return f"write {number:.12g}"
    return ""


_BOOLEANS = {
    **dict.fromkeys(("yes", "on", "true"), "true"),
    **dict.fromkeys(("no", "off", "false"), "false"),
}
_WORDS_OF_YAML_1_1 = ("yes", "no", "on", "off", "Yes", "No", "On", "Off")
_UNITS = {"k": 1e3, "m": 1e6, "%": 0.01}


def value_text(value: Any) -> str:
    """A value for an error message: strings in quotes, and at most 60 characters. A word that YAML
    1.1 reads as true or false has no quotes, which nobody writes.
    """
    if value is None or isinstance(value, bool):
        return setting_text(value, unset="null")
    if value in _WORDS_OF_YAML_1_1:
        return str(value)
    if isinstance(value, (dict, list)):  # as in YAML
        return ellipsis(json.dumps(value, ensure_ascii=False, default=str), 60)
    return ellipsis(f'"{value}"' if isinstance(value, str) else repr(value), 60)
