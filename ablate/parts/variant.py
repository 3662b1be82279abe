"""Variants of a part: their names in a study, facts about each, and the class that computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import core_schema

from ablate.custom.reference import (
    IMPORT_PATTERN,
    REFERENCE_PATTERN,
    ImportPath,
    Reference,
    parse_import,
    parse_reference,
)
from ablate.errors import Invalid, listed, meant_name, not_allowed
from ablate.fields import entries_of, value_text
from ablate.lazy import imported


@dataclass(frozen=True)
class Variant:
    """Base class of the facts about a variant.

    build: class or function that makes the module of the variant, as `module:name`. It is imported
        only when a model is built, because it loads torch. Empty for a user's class, and for
        self-attention, which `ModelBuilder` makes.
    """

    build: str = ""

    def make(self, *args: Any, **keywords: Any) -> Any:
        """Import the class or function, and call it with these arguments."""
        return imported(self.build)(*args, **keywords)


Entry = TypeVar("Entry", bound=Variant)


class Variants(dict[str, Entry]):
    """The facts about each built-in variant by name. Any other name names a user's class.

    custom: the facts that are assumed about a user's class.
    """

    def __init__(self, custom: Entry, **built_in: Entry) -> None:
        super().__init__(built_in)
        self.custom = custom

    def __missing__(self, name: str) -> Entry:
        return self.custom


@dataclass(frozen=True)
class VariantName:
    """Annotation of a field that names a variant, a user's class or a user's function.

    names: the built-in variants.
    example: import path of a class of an installed package, for messages; empty if the field takes
        no such path.
    is_function: whether the field takes `module:function` instead of `module:Class`.
    fields: variants that are set by another field: name of the variant -> name of the field.
    """

    names: tuple[str, ...]
    example: str = ""
    is_function: bool = False
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)

    def check(self, value: Any) -> Any:
        """Return a valid value.

        Raises:
            Invalid: the value is neither a built-in variant nor a reference to a class or function.
        """
        if value in self.names or parse_reference(value):
            return value
        if self.example and (installed := parse_import(value)):
            return str(installed)
        own = "function" if self.is_function else "Class"
        allowed = f"{listed(self.names)}, or a {own.lower()} of your own as module:{own}"
        if self.example:
            allowed += f", or an installed one as {self.example}"
        meant, remedy = meant_name(value, self.names), ""
        if isinstance(value, str) and value in self.fields:
            meant, remedy = "", f'did you mean the field "{self.fields[value]}"?'
        raise Invalid(not_allowed(value_text(value), allowed, remedy, meant))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: Any
    ) -> dict[str, Any]:
        allowed = [
            {"enum": list(self.names)},
            {"type": "string", "pattern": f"^{REFERENCE_PATTERN}$"},
        ]
        if self.example:
            allowed.append({"type": "string", "pattern": f"^{IMPORT_PATTERN}$"})
        return {"anyOf": allowed}


@cache
def class_fields(section: type[BaseModel]) -> frozenset[str]:
    """Names of the fields that accept a user's class."""
    names = []
    for name, info in section.model_fields.items():
        if any(isinstance(item, VariantName) for item in info.metadata):
            names.append(name)
    return frozenset(names)


def classes_of(config: BaseModel, section: type[BaseModel] | None = None) -> tuple[Reference, ...]:
    """The users' classes in a configuration, or only in the fields of a section: each once, in the
    order of the fields.
    """
    return tuple(filter(None, dict.fromkeys(map(parse_reference, _class_values(config, section)))))


def named_classes(config: BaseModel) -> tuple[Reference | ImportPath, ...]:
    """The users' classes in a configuration, then the classes of installed packages that it names
    by their import paths.
    """
    installed = map(parse_import, _class_values(config))
    return (*classes_of(config), *filter(None, installed))


def _class_values(config: BaseModel, section: type[BaseModel] | None = None) -> Iterator[object]:
    """Yield the values of the fields that accept a user's class."""
    fields = class_fields(section or type(config))
    for name, value in config:
        if name in fields:
            yield from entries_of(value)
