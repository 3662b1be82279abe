"""Classes and functions that are imported when they are first asked for, so that a command loads
only what it uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

Value = TypeVar("Value")


def imported(path: str) -> Any:
    """Import what `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


class Imports(Mapping[str, Value]):
    """Classes and functions by name; each is imported when it is asked for."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        """Prepare; `paths` has the `module:name` of each."""
        self.paths = paths

    def __getitem__(self, name: str) -> Value:
        value: Value = imported(self.paths[name])
        return value

    def __contains__(self, name: object) -> bool:
        return name in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)
