"""A user's own variant of a mechanism: `mypackage.mymodule:MyAttention` in a study.

The module's source is found and hashed here without being imported, so that planning stays fast and a
run's identity changes with its code. In a resolved configuration the reference is pinned: it carries
the hash of the source, `mypackage.mymodule:MyAttention@3f2a91c0d7e4`.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import core_schema

from ablate.config.section import shown
from ablate.errors import did_you_mean, listed

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_PATTERN = rf"({_WORD}(?:\.{_WORD})*):({_WORD})(?:@([0-9a-f]{{12}}))?"
_REFERENCE = re.compile(_PATTERN)


@dataclass(frozen=True)
class Reference:
    """A class in a module. `digest`: of the module's source, 12 hexadecimal digits; None until it is pinned."""

    module: str
    name: str
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.module}:{self.name}" + (f"@{self.digest}" if self.digest else "")

    @property
    def file(self) -> str:
        """The name under which a run keeps the source."""
        assert self.digest is not None
        return f"{self.digest}.py"


def reference(value: object) -> Reference | None:
    """The reference that a field's value is; None where it is a name of ours."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return Reference(match[1], match[2], match[3]) if match else None


def references(config: BaseModel) -> tuple[Reference, ...]:
    """The user's own variants in a configuration."""
    found = (reference(value) for value in config.model_dump().values())
    return tuple(own for own in found if own is not None)


def takes_own(section: type[BaseModel]) -> frozenset[str]:
    """The fields that take a class of the user's own."""
    fields = section.model_fields.items()
    return frozenset(name for name, field in fields if any(isinstance(mark, Variants) for mark in field.metadata))


def unpinned(value: str) -> str:
    """The value as a study writes it."""
    found = reference(value)
    return f"{found.module}:{found.name}" if found else value


def digest(source: bytes) -> str:
    """What pins a source."""
    return hashlib.sha256(source).hexdigest()[:12]


def pin(found: Reference, folder: Path) -> tuple[Reference, bytes]:
    """The reference with its source's hash, and the source: beside the study, else where Python finds modules.

    Raises:
        ValueError: there is no such module or class, or its source is not the one that it was pinned to.
    """
    source = _source(found.module, [str(folder), str(Path.cwd()), *sys.path])
    try:
        names = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{found}: module {found.module} is not Python: {error}") from None
    if found.name not in names:
        has = f"it has {listed(names)}{did_you_mean(found.name, names)}" if names else "it has none"
        raise ValueError(f"{found}: module {found.module} has no class {found.name}; {has}")
    now = digest(source)
    if found.digest not in (None, now):
        raise ValueError(f"{found}: the source of {found.module} is now {now}")
    return Reference(found.module, found.name, now), source


def _source(module: str, path: Sequence[str]) -> bytes:
    """The source of a module, found part by part so that no package is imported on the way."""
    PathFinder.invalidate_caches()  # a file may be newer than what is remembered of its folder
    places: Sequence[str] | None = path
    for depth, word in enumerate(module.split("."), 1):
        spec = PathFinder.find_spec(word, places) if places else None
        if spec is None and depth == 1:  # editable installs may have a finder of their own
            others = (finder.find_spec(word, None) for finder in sys.meta_path if finder is not PathFinder)
            spec = next((other for other in others if other is not None), None)
        if spec is None:
            part = ".".join(module.split(".")[:depth])
            if word == "py" and depth > 1:
                raise ValueError(f"there is no module {part}: a module is named without .py")
            near = did_you_mean(word, _modules((places or ())[:2] if depth == 1 else places or ()))
            raise ValueError(f"there is no module {part}: not beside the study, nor where Python looks{near}")
        places = spec.submodule_search_locations
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ValueError(f"module {module} has no Python source of its own")
    try:
        return Path(spec.origin).read_bytes()
    except OSError as error:
        raise ValueError(f"module {module} cannot be read: {error.strerror}") from None


def _modules(folders: Iterable[str]) -> list[str]:
    """The modules that lie in these folders."""
    return sorted({path.stem for folder in folders for path in Path(folder).glob("*.py")})


@dataclass(frozen=True)
class Variants:
    """Marks the type of a field that takes one of these names, or a reference to a class of the user's own."""

    names: tuple[str, ...]

    def check(self, value: Any) -> Any:
        """The value, or a ValueError that says what is allowed."""
        if value in self.names or reference(value):
            return value
        allowed = f"{listed(self.names)}, or a class of your own as module:Class"
        near = did_you_mean(value, self.names) if isinstance(value, str) else ""
        raise ValueError(f"{shown(value)} is not allowed: must be {allowed}{near}")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.names)}, {"type": "string", "pattern": f"^{_PATTERN}$"}]}
