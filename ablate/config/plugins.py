"""Find a user's own variant of a mechanism: `mypackage.mymodule:MyAttention` in a study.

The module's source is found and hashed without importing it, so that planning stays fast and an edit of the class
makes a new run. A resolved configuration holds the reference with the hash:
`mypackage.mymodule:MyAttention@3f2a91c0d7e4`.
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

from ablate.config.fields import value_text
from ablate.errors import did_you_mean, listed

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
REFERENCE_PATTERN = rf"({_WORD}(?:\.{_WORD})*):({_WORD})(?:@([0-9a-f]{{12}}))?"
_REFERENCE = re.compile(REFERENCE_PATTERN)


@dataclass(frozen=True)
class Reference:
    """A class in a module. `digest`: hash of the module's source, 12 hexadecimal digits; None until it is pinned."""

    module: str
    name: str
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.module}:{self.name}" + (f"@{self.digest}" if self.digest else "")

    @property
    def file(self) -> str:
        """Name of the copy of the source in a run's folder."""
        assert self.digest is not None
        return f"{self.digest}.py"


def parse_reference(value: object) -> Reference | None:
    """Parse `module:Class` or `module:Class@digest`; None for any other value, such as the name of a variant."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return Reference(match[1], match[2], match[3]) if match else None


def references(config: BaseModel) -> tuple[Reference, ...]:
    """The custom classes that a configuration refers to."""
    parsed = (parse_reference(value) for value in config.model_dump().values())
    return tuple(reference for reference in parsed if reference is not None)


def plugin_fields(section: type[BaseModel]) -> frozenset[str]:
    """Names of the fields that accept a custom class."""
    fields = section.model_fields.items()
    return frozenset(name for name, field in fields if any(isinstance(item, VariantName) for item in field.metadata))


def without_digest(value: str) -> str:
    """The value as a study writes it: a reference without its hash, any other text unchanged."""
    reference = parse_reference(value)
    return f"{reference.module}:{reference.name}" if reference else value


def source_hash(source: bytes) -> str:
    """Hash that pins a reference to a source: the first 12 hexadecimal digits of SHA-256."""
    return hashlib.sha256(source).hexdigest()[:12]


def pin_reference(reference: Reference, folder: Path) -> tuple[Reference, bytes]:
    """Find the source of a class and return (reference with the source's hash, source).

    Args:
        reference: a class in a module; if it has a hash, the source must match.
        folder: searched first; then the working directory and Python's path.

    Raises:
        ValueError: the module or the class does not exist, or the source has another hash than the reference.
    """
    source = _source(reference.module, [str(folder), str(Path.cwd()), *sys.path])
    try:
        names = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{reference}: module {reference.module} is not valid Python: {error}") from None
    if reference.name not in names:
        classes = f"it has {listed(names)}{did_you_mean(reference.name, names)}" if names else "it defines no classes"
        raise ValueError(f"{reference}: module {reference.module} has no class {reference.name}; {classes}")
    current = source_hash(source)
    if reference.digest not in (None, current):
        raise ValueError(f"{reference}: the source of {reference.module} has changed; its hash is now {current}")
    return Reference(reference.module, reference.name, current), source


def _source(module: str, path: Sequence[str]) -> bytes:
    """Source of a module, found one package after the other, since `importlib.util.find_spec` would import packages."""
    PathFinder.invalidate_caches()  # the cached listing of a folder may be older than the file
    folders: Sequence[str] | None = path
    for depth, word in enumerate(module.split("."), 1):
        spec = PathFinder.find_spec(word, folders) if folders else None
        if spec is None and depth == 1:  # editable installs may add finders
            others = (finder.find_spec(word, None) for finder in sys.meta_path if finder is not PathFinder)
            spec = next((other for other in others if other is not None), None)
        if spec is None:
            part = ".".join(module.split(".")[:depth])
            if word == "py" and depth > 1:
                raise ValueError(f"module {part} not found; write the module's name without .py")
            # At the top level, suggest only modules beside the study and in the working directory.
            nearest = did_you_mean(word, _modules((folders or ())[:2] if depth == 1 else folders or ()))
            raise ValueError(f"module {part} not found beside the study or on Python's path{nearest}")
        folders = spec.submodule_search_locations
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ValueError(f"module {module} has no Python source file")
    try:
        return Path(spec.origin).read_bytes()
    except OSError as error:
        raise ValueError(f"module {module} cannot be read: {error.strerror}") from None


def _modules(folders: Iterable[str]) -> list[str]:
    """Names of the modules in these folders."""
    return sorted({path.stem for folder in folders for path in Path(folder).glob("*.py")})


@dataclass(frozen=True)
class VariantName:
    """Annotates the type of a field whose value is one of these names, or a reference to a custom class."""

    names: tuple[str, ...]

    def check(self, value: Any) -> Any:
        """Return a valid value.

        Raises:
            ValueError: the value is neither one of the names nor a reference.
        """
        if value in self.names or parse_reference(value):
            return value
        allowed = f"{listed(self.names)}, or a class of your own as module:Class"
        nearest = did_you_mean(value, self.names) if isinstance(value, str) else ""
        raise ValueError(f"{value_text(value)} is not allowed: must be {allowed}{nearest}")

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self.names)}, {"type": "string", "pattern": f"^{REFERENCE_PATTERN}$"}]}
