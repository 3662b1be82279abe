"""Load a user's own variant from the source that a run keeps."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from torch import nn

from ablate.config.plugins import Reference, source_hash
from ablate.errors import AblateError, StoreError, StudyError

Part = TypeVar("Part", bound=nn.Module)

PREFIX = "ablate_own_"  # of the names under which the user's own modules are loaded


class _Verified(SourceFileLoader):
    """Compiles the source that was hashed: a `.pyc` beside it is neither believed, nor written."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def load(found: Reference, folder: Path, interface: type[Part]) -> type[Part]:
    """The class that a pinned reference names.

    The module is loaded from the kept source under a name of its own, so that several versions of it
    can be in one process. It is imported with absolute imports only.

    Raises:
        StoreError: the source is missing or not the one that the reference is pinned to.
        StudyError: the module fails to load, or the class is not of the interface.
    """
    path = folder / found.file
    source = path.read_bytes() if path.exists() else b""
    if source_hash(source) != found.digest:
        raise StoreError(f"{path}: is not the source of {found}; remove the run to start it anew")
    name = f"{PREFIX}{found.digest}"
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(name, path, loader=_Verified(name, str(path), source))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise fault(found, error) from None
    named = getattr(sys.modules[name], found.name, None)
    if not (isinstance(named, type) and issubclass(named, interface)):
        raise StudyError(
            f"{found.module}:{found.name} does not derive from {interface.__module__}.{interface.__qualname__}"
        )
    return named


def fault(found: Reference, error: Exception) -> AblateError:
    """One line for what went wrong inside a user's own code."""
    return error if isinstance(error, AblateError) else StudyError(told([found], error))


def told(own: Sequence[Reference], error: Exception) -> str:
    """What, where in which of these classes' modules, and why."""
    what = ", ".join(f"{one.module}:{one.name}" for one in own)
    modules = {one.file: one.module for one in own if one.digest}
    frames = [(modules.get(Path(f.filename).name), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    places = [f" (line {line} of {module})" for module, line in frames if module is not None]
    why = " ".join(str(error).split())
    return f"{what}: {type(error).__name__}{places[-1] if places else ''}{': ' * bool(why)}{why}"
