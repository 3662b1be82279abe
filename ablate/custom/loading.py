"""Load a user's class or function from the source that a run has stored."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from ablate.custom.faults import ablate_error, place_of
from ablate.custom.reference import (
    PREFIX,
    ImportPath,
    Reference,
    parse_import,
    parse_reference,
)
from ablate.custom.source import source_hash
from ablate.errors import Fault, StoreError, StudyError

Interface = TypeVar("Interface")


class _VerifiedLoader(SourceFileLoader):
    """Compiles the source whose hash was checked. It neither reads nor writes a `.pyc` file."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def load_named_class(name: str, folder: Path, interface: type[Interface]) -> type[Interface]:
    """Load the class that a field names: by a pinned reference, or by the import path of an
    installed class.

    Raises:
        StoreError, StudyError: as for `load_class`.
        StudyError: an installed class cannot be imported, or does not derive from the interface.
    """
    reference = parse_reference(name)
    if reference is not None:
        return load_class(reference, folder, interface)
    imported = parse_import(name)
    assert imported is not None, f"{name} names no class"
    return _load_import(imported, interface)


def load_class(reference: Reference, folder: Path, interface: type[Interface]) -> type[Interface]:
    """Load the class that a pinned reference names.

    The name of the loaded module contains its hash, so that a process can load several versions.
    The module may use only absolute imports.

    Raises:
        StoreError: the source is missing, or its hash differs from the hash in the reference.
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    return load_source(reference, *_verified_source(reference, folder), interface)


def _verified_source(reference: Reference, folder: Path) -> tuple[Path, bytes]:
    path = folder / reference.file
    source = path.read_bytes() if path.is_file() else b""
    # The hash is part of the run's id: with another source, the run would continue as another
    # model.
    if source_hash(source) != reference.digest:
        raise StoreError(
            f"{path}: is not the source of {reference}; remove the run to train it again"
        )
    return path, source


def load_source(
    reference: Reference, path: Path, source: bytes, interface: type[Interface]
) -> type[Interface]:
    """Load the class that a pinned reference names from its source.

    Raises:
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    cls = getattr(_module(reference, path, source), reference.name, None)
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        what = f"{reference.written} does not derive from {public_name(interface)}"
        raise StudyError(Fault(what, place=place_of(reference, source)))
    return cls


def load_function(value: str, folder: Path) -> Callable[..., Any] | None:
    """Load the function that a value refers to, by a pinned reference; None for another value.

    Raises:
        StoreError: the source is missing, or its hash differs from the hash in the reference.
        StudyError: the module fails to load, or has no such function.
    """
    reference = parse_reference(value)
    if reference is None:
        return None
    path, source = _verified_source(reference, folder)
    function = getattr(_module(reference, path, source), reference.name, None)
    if isinstance(function, type) or not callable(function):
        what = f"{reference.written} is not a function"
        raise StudyError(Fault(what, place=place_of(reference, source)))
    return function  # type: ignore[no-any-return]


def _load_import(imported: ImportPath, interface: type[Interface]) -> type[Interface]:
    try:
        cls = getattr(import_module(imported.module), imported.name)
    except (ImportError, AttributeError) as error:
        raise StudyError(f"{imported.path} cannot be imported: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        raise StudyError(f"{imported.path} does not derive from {public_name(interface)}")
    return cls


def _module(reference: Reference, path: Path, source: bytes) -> ModuleType:
    # Loaded once for each source, so that two references to a class give the same class.
    name = f"{PREFIX}{reference.digest}"
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(
            name, path, loader=_VerifiedLoader(name, str(path), source)
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]  # otherwise the next call would find the half-loaded module
            raise ablate_error(reference, error) from None
    return sys.modules[name]


def public_name(interface: type) -> str:
    """The public import path of a base class: `ablate.components.Activation`."""
    package = ".".join(interface.__module__.split(".")[:2])  # torch.nn, torch.optim
    if package.startswith("ablate.") and package != "ablate.tasks":
        package = "ablate.components"
    return f"{package}.{interface.__qualname__}"
