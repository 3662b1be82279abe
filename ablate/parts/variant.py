"""Variants of a part, by the name that a study writes: their facts, and what computes them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar


@dataclass(frozen=True)
class Variant:
    """Base of the facts about a variant.

    build: what makes it, as `module:name`, as a study names a class of its own. It is imported when
        a model is made, because it loads torch. Empty: the family makes it itself.
    """

    build: str = ""

    def make(self, *args: Any, **keywords: Any) -> Any:
        """Import what makes it, and make it."""
        module, _, name = self.build.partition(":")
        return getattr(import_module(module), name)(*args, **keywords)


Entry = TypeVar("Entry", bound=Variant)


class Variants(dict[str, Entry]):
    """The variants of a part by name; for a class of a user's own, the facts of a plain one."""

    def __init__(self, plain: Entry, **named: Entry) -> None:
        super().__init__(named)
        self.plain = plain

    def __missing__(self, name: str) -> Entry:
        return self.plain
