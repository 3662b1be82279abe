"""Find and hash the source of a class without importing it, so that planning stays fast."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable

from ablate.custom.reference import ImportPath, Reference
from ablate.errors import Fault, Invalid, Mark, listed, meant_name


def source_hash(source: bytes) -> str:
    """Hash that pins a reference to a source: the first 12 hexadecimal digits of SHA-256."""
    return hashlib.sha256(source).hexdigest()[:12]


def pin_reference(reference: Reference, folder: Path) -> tuple[Reference, bytes]:
    """Find the source of a class and return (reference with the source's hash, source). The folder
    is searched first, then the working directory and Python's path. The source must match the hash
    of the reference, if it has one.

    Raises:
        Invalid: the module or the class does not exist, the module is not valid Python (with the
            place of the fault, if it is known), the module imports another module from the folder
            of the study or the working directory, or the hash differs from the reference.
    """
    beside = [str(folder), str(Path.cwd())]
    source = _source(reference, [*beside, *sys.path])
    module = f"{reference}: module {reference.module}"
    try:
        tree = ast.parse(source)
        # Finds more faults, such as two arguments of the same name.
        symtable(decode_source(source), reference.written_file, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError) and error.lineno:
            place = Mark(reference.written_file, error.lineno)
            raise Invalid(Fault(f"SyntaxError: {error.msg}", place=place)) from None
        raise Invalid(f"{module} is not valid Python: {error}") from None
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if reference.name not in (*names, *functions):
        raise Invalid(
            Fault(
                f"{module} has no class {reference.name}",
                remedy=f"it has {listed(names)}" if names else "it defines no classes",
                meant=meant_name(reference.name, names),
                choices=tuple(names),
            )
        )
    _refuse_helpers(reference, tree, beside)
    current = source_hash(source)
    if reference.digest not in (None, current):
        raise Invalid(
            f"{reference.written}: the source of {reference.module} has the hash {current}, and "
            f"not {reference.digest}"
        )
    return Reference(reference.module, reference.name, current), source


def _refuse_helpers(reference: Reference, tree: ast.Module, beside: Sequence[str]) -> None:
    """Refuse a module that imports another module from the folders `beside`, because only the named
    module is stored with a run.

    Raises:
        Invalid: the message has the line of the import.
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


def check_import(imported: ImportPath) -> None:
    """Check that a class exists, without importing it, so that planning stays fast.

    Raises:
        Invalid: the module does not exist, or has no such name.
    """
    try:
        tree = ast.parse(_source(imported, sys.path))
    except Invalid as error:
        own = f"a class beside the study is {imported.module}:{imported.name}"
        raise Invalid(f"{imported.path}: {error}; {own}") from None
    names = set[str]()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    if not names & {imported.name, "*"}:
        problem = f"module {imported.module} has no class {imported.name}"
        raise Invalid(Fault(problem, meant=meant_name(imported.name, sorted(names))))


def _installed(word: str) -> ModuleSpec | None:
    """The spec of an installed top-level module; None if there is none. All finders of Python are
    asked, because editable installs add finders.
    """
    return next(filter(None, (finder.find_spec(word, None) for finder in sys.meta_path)), None)


def _source(reference: Reference | ImportPath, path: Sequence[str]) -> bytes:
    """Source of the module of a class. `importlib.util.find_spec` is not used, because it imports
    packages.
    """
    module = reference.module
    PathFinder.invalidate_caches()  # a cached listing of a folder may lack a new file
    folders: Sequence[str] | None = path
    for depth, word in enumerate(module.split("."), 1):
        spec = PathFinder.find_spec(word, folders) if folders else None
        if spec is None and depth == 1:
            spec = _installed(word)
        if spec is None:
            part = f"module {'.'.join(module.split('.')[:depth])} not found"
            file = module.removesuffix(".py")
            if file != module:
                raise Invalid(f"{part}; write {file}:{reference.name}, without .py")
            searched = folders or ()
            if depth == 1:  # suggest only modules beside the study and in the working directory
                searched = searched[:2]
            problem = f"{part} beside the study or on Python's path"
            raise Invalid(Fault(problem, meant=meant_name(word, _modules(searched))))
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
