"""Variants of a part: how a study names one, its facts, and what computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import core_schema

from ablate.errors import Invalid, listed, meant_name, not_allowed
from ablate.fields import entries_of, value_text
from ablate.lazy import imported
from ablate.own.reference import (
    IMPORT_PATTERN,
    REFERENCE_PATTERN,
    Reference,
    parse_import,
    parse_reference,
)


@dataclass(frozen=True)
class Variant:
    """Base of the facts about a variant.

    build: what makes it, as `module:name`, as a study names a class of its own. It is imported when
        a model is made, because it loads torch. Empty: the family makes it itself.
    """

    build: str = ""

    def make(self, *args: Any, **keywords: Any) -> Any:
        """Import what makes it, and make it."""
        return imported(self.build)(*args, **keywords)


Entry = TypeVar("Entry", bound=Variant)


class Variants(dict[str, Entry]):
    """The variants of a part by name; for a class of a user's own, the facts of a plain one."""

    def __init__(self, plain: Entry, **named: Entry) -> None:
        super().__init__(named)
        self.plain = plain

    def __missing__(self, name: str) -> Entry:
        return self.plain


@dataclass(frozen=True)
class VariantName:
    """The values of a field: one of `names`, `module:Class` or `module:function`, or, where
    `example` is set, an import path like it. `fields`: variants that are another field, by value.
    """

    names: tuple[str, ...]
    example: str = ""
    is_function: bool = False
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)

    def check(self, value: Any) -> Any:
        """Return a valid value.

        Raises:
            Invalid: the value is neither one of the names nor a reference.
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
    """Names of the fields that accept a custom class."""
    names = []
    for name, info in section.model_fields.items():
        if any(isinstance(item, VariantName) for item in info.metadata):
            names.append(name)
    return frozenset(names)


def classes_of(config: BaseModel, section: type[BaseModel] | None = None) -> tuple[Reference, ...]:
    """The custom classes that a configuration refers to, or those in the fields of a section."""
    classes: dict[Reference | None, None] = {}  # in the order of the fields, each once
    fields = class_fields(section or type(config))
    for name, value in config:
        if name in fields:
            classes |= dict.fromkeys(map(parse_reference, entries_of(value)))
    return tuple(filter(None, classes))
