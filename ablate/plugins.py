"""Find and load a user's own variant of a mechanism: `mypackage.mymodule:MyAttention` in a study.

The module's source is found and hashed without importing it, so that planning stays fast and an
edit of the class makes a new run. A resolved configuration holds the reference with the hash:
`mypackage.mymodule:MyAttention@3f2a91c0d7e4`.

A class of an installed package is named by its import path, with arguments:
`torch.optim.NAdam(momentum_decay=0.01)`. That is its identity, as `adam` is that of torch's Adam.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import core_schema

from ablate.errors import (
    AblateError,
    Invalid,
    StoreError,
    StudyError,
    did_you_mean,
    listed,
    not_allowed,
    suggestion,
)
from ablate.fields import entries_of, value_text
from ablate.formatting import setting_text

Interface = TypeVar("Interface")

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
REFERENCE_PATTERN = rf"({_WORD}(?:\.{_WORD})*):({_WORD})(?:@([0-9a-f]{{12}}))?"
_REFERENCE = re.compile(REFERENCE_PATTERN)
IMPORT_PATTERN = rf"({_WORD}(?:\.{_WORD})*)\.({_WORD})(\(.*\))?"
_IMPORT = re.compile(IMPORT_PATTERN)
# Variants that are a field of their own, beside the one in which they are looked for.
_FIELDS = {"mla": "kv_rank", "gqa": "n_kv_heads", "mqa": "n_kv_heads", "z_loss": "z_loss"}
# What own parts are constructed or called with, by their base class. Modules have the last line.
_GIVEN = {
    "AttentionMechanism": "config",
    "TokenMixer": "config",
    "PositionalEncoding": "config, causal and init",
    "Activation": "no arguments",
    "Residual": "norm, residual, rate, random, scale and config; take them as *given",
    "function": "config, step and last as a schedule, logits and targets as a loss term",
    "Module": "d_model as a norm, config as a feed-forward network",
}


@dataclass(frozen=True)
class Reference:
    """A class in a module. `digest`: 12 hexadecimal digits of its source's hash, once pinned."""

    module: str
    name: str
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.written}@{self.digest}" if self.digest else self.written

    @property
    def written(self) -> str:
        """As a study writes it: `module:Class`."""
        return f"{self.module}:{self.name}"

    @property
    def file(self) -> str:
        """Name of the copy of the source in a run's folder."""
        assert self.digest is not None
        return f"{self.digest}.py"

    @property
    def written_file(self) -> str:
        """Name of the module's file, for messages: `package/module.py`."""
        return f"{self.module.replace('.', '/')}.py"


def parse_reference(value: object) -> Reference | None:
    """Parse `module:Class` or `module:Class@digest`; None for any other value."""
    if isinstance(value, str) and (match := _REFERENCE.fullmatch(value)):
        return Reference(match[1], match[2], match[3])
    return None


@dataclass(frozen=True)
class ImportPath:
    """A class of an installed package, and the arguments that a study gives it."""

    module: str
    name: str
    arguments: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        if not self.arguments:
            return f"{self.module}.{self.name}"
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.module}.{self.name}({arguments})"

    def check(self) -> None:
        """Find the class without importing it, so that planning stays fast.

        Raises:
            Invalid: the module does not exist, or has nothing of this name.
        """
        try:
            tree = ast.parse(_source(self.module, sys.path))
        except Invalid as error:
            own = f"a class beside the study is {self.module}:{self.name}"
            raise Invalid(f"{self.module}.{self.name}: {error}; {own}") from None
        names = set[str]()
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                names.update(alias.asname or alias.name for alias in node.names)
        if self.name not in names | {"*"} and "*" not in names:
            missing = f"module {self.module} has no class {self.name}"
            raise Invalid(f"{missing}{did_you_mean(self.name, sorted(names))}")

    def load(self, interface: type[Interface]) -> type[Interface]:
        """Import the class.

        Raises:
            StudyError: it cannot be imported, or does not derive from the interface.
        """
        try:
            cls = getattr(importlib.import_module(self.module), self.name)
        except (ImportError, AttributeError) as error:
            raise StudyError(f"{self.module}.{self.name} cannot be imported: {error}") from None
        if not (isinstance(cls, type) and issubclass(cls, interface)):
            needed = public_name(interface)
            raise StudyError(f"{self.module}.{self.name} does not derive from {needed}")
        return cls


def parse_import(value: object) -> ImportPath | None:
    """Parse `package.module.Class` or `package.module.Class(name=value)`; None for any other value.

    Raises:
        Invalid: the arguments are not names with numbers, strings, booleans or lists of them.
    """
    if not isinstance(value, str) or not (match := _IMPORT.fullmatch(value)):
        return None
    arguments = {}
    try:
        call = ast.parse(f"f{match[3] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        for keyword in call.keywords:
            arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
    except (ValueError, SyntaxError):
        needs = f"write them as {match[1]}.{match[2]}(name=1.0, other=True)"
        raise Invalid(f"{match[3]} are no arguments: {needs}") from None
    return ImportPath(match[1], match[2], tuple(sorted(arguments.items())))


def is_own(value: object) -> bool:
    """Whether a value names a class of one's own, or one of an installed package."""
    return parse_reference(value) is not None or parse_import(value) is not None


def references(config: BaseModel, section: type[BaseModel] | None = None) -> tuple[Reference, ...]:
    """The custom classes that a configuration refers to, or those in the fields of a section."""
    named: dict[Reference | None, None] = {}  # in the order of the fields, each once
    of_classes = plugin_fields(section or type(config))
    for name, value in config:
        if name in of_classes:
            named |= dict.fromkeys(map(parse_reference, entries_of(value)))
    return tuple(filter(None, named))


@cache
def plugin_fields(section: type[BaseModel]) -> frozenset[str]:
    """Names of the fields that accept a custom class."""
    names = []
    for name, field in section.model_fields.items():
        if any(isinstance(item, VariantName) for item in field.metadata):
            names.append(name)
    return frozenset(names)


def without_digest(value: str) -> str:
    """The value as a study writes it: references without their hashes, any other text unchanged."""
    return _REFERENCE.sub(r"\1:\2", value)


def settings_text(settings: Mapping[str, object], separator: str = ", ") -> str:
    """Settings as a study writes them: `dropout=0.3, activation=mine:Square`."""
    return separator.join(
        f"{name}={without_digest(setting_text(value))}" for name, value in settings.items()
    )


def source_hash(source: bytes) -> str:
    """Hash that pins a reference to a source: the first 12 hexadecimal digits of SHA-256."""
    return hashlib.sha256(source).hexdigest()[:12]


def pin_reference(reference: Reference, folder: Path) -> tuple[Reference, bytes]:
    """Find the source of a class and return (reference with the source's hash, source).

    Args:
        reference: a class in a module; if it has a hash, the source must match.
        folder: searched first; then the working directory and Python's path.

    Raises:
        Invalid: the module or the class does not exist, the module imports one that only these
            folders have, or the source has another hash than the reference.
    """
    beside = [str(folder), str(Path.cwd())]
    source = _source(reference.module, [*beside, *sys.path])
    module = f"{reference}: module {reference.module}"
    try:  # with the name that its errors have
        tree = ast.parse(source, f"{reference.module.rpartition('.')[2]}.py")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Invalid(f"{module} is not valid Python: {error}") from None
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if reference.name not in (*names, *functions):
        classes = "it defines no classes"
        if names:
            classes = f"it has {listed(names)}{did_you_mean(reference.name, names)}"
        raise Invalid(f"{module} has no class {reference.name}; {classes}")
    _refuse_helpers(reference, tree, beside)
    current = source_hash(source)
    if reference.digest not in (None, current):
        raise Invalid(
            f"{reference}: the source of {reference.module} has changed; its hash is now {current}"
        )
    return Reference(reference.module, reference.name, current), source


def _refuse_helpers(reference: Reference, tree: ast.Module, beside: Sequence[str]) -> None:
    """Refuse a module that imports another one beside it: only the named one is stored.

    Raises:
        Invalid: names the line.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{'.' * node.level}{node.module or ''}"]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            word = name.partition(".")[0]
            is_elsewhere = word in sys.stdlib_module_names or not PathFinder.find_spec(word, beside)
            if not word or not (is_elsewhere or _installed(word)):
                raise Invalid(
                    f"{reference}: {reference.written_file}:{node.lineno} imports {name}, but "
                    "only the module of the class is stored and executed; move the code into it, "
                    "or install what it imports"
                )


def _installed(word: str) -> ModuleSpec | None:
    """The module at the top level that Python finds by itself; editable installs add finders."""
    return next(filter(None, (finder.find_spec(word, None) for finder in sys.meta_path)), None)


def _source(module: str, path: Sequence[str]) -> bytes:
    """Source of a module, found without `importlib.util.find_spec`, which imports packages."""
    PathFinder.invalidate_caches()  # the cached listing of a folder may be older than the file
    folders: Sequence[str] | None = path
    for depth, word in enumerate(module.split("."), 1):
        spec = PathFinder.find_spec(word, folders) if folders else None
        if spec is None and depth == 1:
            spec = _installed(word)
        if spec is None:
            part = f"module {'.'.join(module.split('.')[:depth])} not found"
            if word == "py" and depth > 1:
                raise Invalid(f"{part}; write the module's name without .py")
            searched = folders or ()
            if depth == 1:  # suggest modules beside the study and in the working directory alone
                searched = searched[:2]
            nearest = did_you_mean(word, _modules(searched))
            raise Invalid(f"{part} beside the study or on Python's path{nearest}")
        folders = spec.submodule_search_locations
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise Invalid(f"module {module} has no Python source file")
    try:
        return Path(spec.origin).read_bytes()
    except OSError as error:
        raise Invalid(f"module {module} cannot be read: {error.strerror}") from None


def _modules(folders: Iterable[str]) -> list[str]:
    """Names of the modules in these folders."""
    files = [path for folder in folders for path in Path(folder).glob("*.py")]
    return sorted({path.stem for path in files if path.is_file()})


@dataclass(frozen=True)
class VariantName:
    """The values of a field: one of `names`, `module:Class` or `module:function`, or, where
    `example` is set, an import path like it.
    """

    names: tuple[str, ...]
    example: str = ""
    is_function: bool = False

    def check(self, value: Any) -> Any:
        """Return a valid value.

        Raises:
            Invalid: the value is neither one of the names nor a reference.
        """
        if value in self.names or parse_reference(value):
            return value
        if self.example and (imported := parse_import(value)):
            return str(imported)
        own = "function" if self.is_function else "Class"
        allowed = f"{listed(self.names)}, or a {own.lower()} of your own as module:{own}"
        if self.example:
            allowed += f", or an installed one as {self.example}"
        remedy = suggestion(value, self.names)
        if isinstance(value, str) and value in _FIELDS:
            remedy = f'did you mean the field "{_FIELDS[value]}"?'
        raise Invalid(not_allowed(value_text(value), allowed, remedy))

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


PREFIX = "ablate_plugin_"  # of the names under which plug-in modules are loaded


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
        where = f"{place_of(plugin, source)}: {plugin.written}"
        raise StudyError(f"{where} does not derive from {public_name(interface)}")
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
        where = f"{place_of(plugin, source)}: {plugin.written}"
        raise StudyError(f"{where} is not a function")
    return function  # type: ignore[no-any-return]


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


def as_ablate_error(plugin: Reference, error: BaseException) -> AblateError:
    """The error itself if it is one of ours, else a StudyError in one line."""
    return error if isinstance(error, AblateError) else StudyError(describe([plugin], error))


class OwnClassFault(Exception):  # noqa: N818
    """A fault of a class of a user's own; `methods` may be the cause, the likeliest first."""

    def __init__(self, text: str, *methods: str) -> None:
        super().__init__(text)
        self.text, self.methods = text, methods


@contextmanager
def faults_of(plugins: Sequence[Reference], sources: Path) -> Iterator[None]:
    """Convert faults within the context, which these classes may have.

    Raises:
        StudyError: in one line, with file and line.
    """
    try:
        yield
    except AblateError:
        raise
    except OwnClassFault as fault:
        where = stored_place(plugins[0], sources, *fault.methods)
        raise StudyError(f"{where}: {classes_text(plugins)}: {fault.text}") from None
    except (Exception, SystemExit) as error:
        raise StudyError(describe(plugins, error, stored_place(plugins[0], sources))) from None


def with_place(error: StudyError, plugins: Sequence[Reference], sources: Path) -> StudyError:
    """An error of loading a class, or of its combination with other fields, with its place."""
    if error.lines[0].startswith(tuple(f"{plugin.written_file}:" for plugin in plugins)):
        return error
    place = stored_place(plugins[0], sources)
    return StudyError(*(f"{place}: {line}" for line in error.lines))


def stored_place(plugin: Reference, sources: Path, *methods: str) -> str:
    """As `place_of`, by the source that a run keeps."""
    return place_of(plugin, (sources / plugin.file).read_bytes(), *methods)


def describe(plugins: Sequence[Reference], error: BaseException, place: str = "") -> str:
    """One line for an exception: file and line, the classes, its type and its message.

    Args:
        plugins: the classes that may be the cause.
        error: the exception.
        place: file and line for an exception that passed through none of their modules.
    """
    modules = {plugin.file: plugin.written_file for plugin in plugins if plugin.digest}
    given = _given(plugins, str(error))
    for frame in traceback.extract_tb(error.__traceback__):
        file = modules.get(Path(frame.filename).name)
        if file is not None:
            place, given = f"{file}:{frame.lineno}", ""
    message = " ".join(str(error).split())
    return (
        f"{place}{': ' * bool(place)}{classes_text(plugins)}: "
        f"{type(error).__name__}{': ' * bool(message)}{message}{given}"
    )


def _given(plugins: Iterable[Reference], message: str) -> str:
    """What a part gets, if the message says that it has other parameters."""
    for plugin in plugins:
        if re.match(rf"{plugin.name}(\.__init__)?\(\) (takes|missing|got) ", message):
            part = getattr(sys.modules.get(f"{PREFIX}{plugin.digest}"), plugin.name, None)
            for kind in getattr(part, "__mro__", (type(part),)):
                if kind.__name__ in _GIVEN:
                    return f"; it gets {_GIVEN[kind.__name__]}"
    return ""


def classes_text(plugins: Iterable[Reference]) -> str:
    """Classes in a message: `mine:Square, mine:Local`."""
    return ", ".join(plugin.written for plugin in plugins)


def place_of(plugin: Reference, source: bytes, *methods: str) -> str:
    """File and line of a class or a function, or of the first of some methods that it defines."""
    lines = {"": 1}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == plugin.name:
            lines[""] = node.lineno
        if isinstance(node, ast.ClassDef) and node.name == plugin.name:
            lines[""] = node.lineno
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    lines[part.name] = part.lineno
    line = next(lines[method] for method in (*methods, "") if method in lines)
    return f"{plugin.written_file}:{line}"
