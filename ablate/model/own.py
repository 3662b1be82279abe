"""Load a user's own variant from the source that a run keeps."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from ablate.config.own import Reference, digest
from ablate.errors import AblateError, StoreError, StudyError

Part = TypeVar("Part", bound=nn.Module)


def load(found: Reference, folder: Path, interface: type[Part]) -> type[Part]:
    """The class that a pinned reference names.

    The module is loaded from the kept source under a name of its own, so that several versions of it
    can be in one process. It is imported with absolute imports only.

    Raises:
        StoreError: the source is missing or not the one that the reference is pinned to.
        StudyError: the module fails to load, or the class is not of the interface.
    """
    path = folder / found.file
    if not path.exists() or digest(path.read_bytes()) != found.digest:
        raise StoreError(f"{path}: is not the source of {found}; remove the run to start it anew")
    name = f"ablate_own_{found.digest}"
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise fault(found, error) from None
    named = getattr(sys.modules[name], found.name, None)
    if not (isinstance(named, type) and issubclass(named, interface)):
        raise StudyError(f"{found.module}:{found.name} is not a {interface.__module__}.{interface.__qualname__}")
    return named


def fault(found: Reference, error: Exception) -> AblateError:
    """One line for what went wrong inside a user's own code."""
    if isinstance(error, AblateError):
        return error
    lines = str(error).strip().splitlines() or [""]
    return StudyError(f"{found.module}:{found.name}: {type(error).__name__}: {lines[0]}")
