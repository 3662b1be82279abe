"""Load a class or a function of a user's own from the source that a run keeps."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from ablate.errors import Fault, StoreError, StudyError
from ablate.own.faults import as_ablate_error, place_of
from ablate.own.reference import PREFIX, ImportPath, Reference, parse_reference
from ablate.own.source import source_hash

Interface = TypeVar("Interface")


class _VerifiedLoader(SourceFileLoader):
    """Compiles the source that was hashed; a `.pyc` beside it is neither read nor written."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def load_class(plugin: Reference, folder: Path, interface: type[Interface]) -> type[Interface]:
    """Load the class that a pinned reference names.

    The module gets a name made of its hash, so that several versions of it can be in one process.
    It is imported with absolute imports only.

    Raises:
        StoreError: the source is missing, or its hash is not that of the reference.
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    return load_source(plugin, *_verified_source(plugin, folder), interface)


def _verified_source(plugin: Reference, folder: Path) -> tuple[Path, bytes]:
    path = folder / plugin.file
    source = path.read_bytes() if path.is_file() else b""
    # The id of the run covers the hash: another source would continue another model under its name.
    if source_hash(source) != plugin.digest:
        raise StoreError(f"{path}: is not the source of {plugin}; remove the run to train it again")
    return path, source


def load_source(
    plugin: Reference, path: Path, source: bytes, interface: type[Interface]
) -> type[Interface]:
    """Load the class that a pinned reference names from its source.

    Raises:
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    cls = getattr(_module(plugin, path, source), plugin.name, None)
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        what = f"{plugin.written} does not derive from {public_name(interface)}"
        raise StudyError(Fault(what, place=place_of(plugin, source)))
    return cls


def own_function(value: str, folder: Path) -> Callable[..., Any] | None:
    """Load the function that a value refers to, by a pinned reference; None for another value.

    Raises:
        StoreError: the source is missing, or its hash is not that of the reference.
        StudyError: the module fails to load, or has no such function.
    """
    plugin = parse_reference(value)
    if plugin is None:
        return None
    path, source = _verified_source(plugin, folder)
    function = getattr(_module(plugin, path, source), plugin.name, None)
    if isinstance(function, type) or not callable(function):
        what = f"{plugin.written} is not a function"
        raise StudyError(Fault(what, place=place_of(plugin, source)))
    return function  # type: ignore[no-any-return]


def load_import(imported: ImportPath, interface: type[Interface]) -> type[Interface]:
    """Import the class.

    Raises:
        StudyError: it cannot be imported, or does not derive from the interface.
    """
    try:
        cls = getattr(import_module(imported.module), imported.name)
    except (ImportError, AttributeError) as error:
        raise StudyError(f"{imported.module}.{imported.name} cannot be imported: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        needed = public_name(interface)
        raise StudyError(f"{imported.module}.{imported.name} does not derive from {needed}")
    return cls


def _module(plugin: Reference, path: Path, source: bytes) -> ModuleType:
    # Loaded once per source, so that classes of two references to one module are the same.
    name = f"{PREFIX}{plugin.digest}"
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(
            name, path, loader=_VerifiedLoader(name, str(path), source)
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]  # else the half-loaded module would be found the next time
            raise as_ablate_error(plugin, error) from None
    return sys.modules[name]


def public_name(interface: type) -> str:
    """The name under which an author imports an interface."""
    package = ".".join(interface.__module__.split(".")[:2])  # torch.nn, torch.optim
    if package.startswith("ablate.") and package != "ablate.tasks":
        package = "ablate.components"
    return f"{package}.{interface.__qualname__}"
