"""Load a plug-in class from the source that a run keeps."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from ablate.config.plugins import Reference, source_hash
from ablate.errors import AblateError, StoreError, StudyError

Interface = TypeVar("Interface")

PREFIX = "ablate_plugin_"  # of the names under which plug-in modules are loaded


class _VerifiedLoader(SourceFileLoader):
    """Compiles the source that was hashed; a `.pyc` beside it is neither read nor written."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.source, self.path)


def load(plugin: Reference, folder: Path, interface: type[Interface]) -> type[Interface]:
    """Load the class that a pinned reference names.

    The module gets a name made of its hash, so that several versions of it can be in one process. It is imported with
    absolute imports only.

    Args:
        plugin: module, class and hash.
        folder: where the run keeps sources.
        interface: the class that it must derive from.

    Raises:
        StoreError: the source is missing, or its hash is not that of the reference.
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    path = folder / plugin.file
    source = path.read_bytes() if path.exists() else b""
    if source_hash(source) != plugin.digest:
        raise StoreError(f"{path}: is not the source of {plugin}; remove the run to start it anew")
    return load_source(plugin, path, source, interface)


def load_source(plugin: Reference, path: Path, source: bytes, interface: type[Interface]) -> type[Interface]:
    """Load the class that a pinned reference names from its source.

    Args:
        plugin: module, class and hash.
        path: of the source, for tracebacks.
        source: with the hash of the reference.
        interface: the class that it must derive from.

    Raises:
        StudyError: the module fails to load, or the class does not derive from the interface.
    """
    name = f"{PREFIX}{plugin.digest}"
    if name not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(name, path, loader=_VerifiedLoader(name, str(path), source))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]  # else the half-loaded module would be found the next time
            raise as_ablate_error(plugin, error) from None
    cls = getattr(sys.modules[name], plugin.name, None)
    if not (isinstance(cls, type) and issubclass(cls, interface)):
        raise StudyError(f"{plugin.module}:{plugin.name} does not derive from {public_name(interface)}")
    return cls


def public_name(interface: type) -> str:
    """The name under which an author imports an interface."""
    package = interface.__module__.partition(".")[0]
    if package == "ablate":
        package = "ablate.tasks" if interface.__module__.startswith("ablate.tasks.") else "ablate.components"
    elif package == "torch":
        package = "torch.nn"
    return f"{package}.{interface.__qualname__}"


def as_ablate_error(plugin: Reference, error: BaseException) -> AblateError:
    """The error itself if it is one of ours, else a StudyError in one line."""
    return error if isinstance(error, AblateError) else StudyError(describe([plugin], error))


def describe(plugins: Sequence[Reference], error: BaseException) -> str:
    """One line for an exception: the classes, its type, the line in one of their modules, the message."""
    classes = ", ".join(f"{plugin.module}:{plugin.name}" for plugin in plugins)
    modules = {plugin.file: plugin.module for plugin in plugins if plugin.digest}
    frames = [(modules.get(Path(f.filename).name), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    lines = [f" (line {line} of {module})" for module, line in frames if module is not None]
    message = " ".join(str(error).split())
    return f"{classes}: {type(error).__name__}{lines[-1] if lines else ''}{': ' * bool(message)}{message}"
