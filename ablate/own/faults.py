"""Faults of a class of a user's own as one line, with file and line."""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ablate.errors import AblateError, Fault, Mark, StudyError
from ablate.formatting import single_line
from ablate.own.kinds import arguments_of
from ablate.own.reference import PREFIX, Reference


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
        place = stored_place(plugins[0], sources, *fault.methods)
        raise StudyError(Fault(fault.text, subject=classes_text(plugins), place=place)) from None
    except (Exception, SystemExit) as error:
        raise StudyError(describe(plugins, error, stored_place(plugins[0], sources))) from None


def with_place(error: StudyError, plugins: Sequence[Reference], sources: Path) -> StudyError:
    """An error of loading a class, or of its combination with other fields, with its place."""
    place = stored_place(plugins[0], sources)
    return StudyError(*(fault if fault.place else fault.at(place) for fault in error.faults))


def stored_place(plugin: Reference, sources: Path, *methods: str) -> Mark:
    """As `place_of`, by the source that a run keeps."""
    return place_of(plugin, (sources / plugin.file).read_bytes(), *methods)


def as_ablate_error(plugin: Reference, error: BaseException) -> AblateError:
    """The error itself if it is one of ours, else a StudyError in one line."""
    return error if isinstance(error, AblateError) else StudyError(describe([plugin], error))


def describe(
    plugins: Sequence[Reference], error: BaseException, place: Mark | None = None
) -> Fault:
    """The fault that an exception shows: file and line, the classes, its type and its message.

    Args:
        plugins: the classes that may be the cause.
        error: the exception.
        place: file and line for an exception that passed through none of their modules.
    """
    modules = {plugin.file: plugin.written_file for plugin in plugins if plugin.digest}
    remedy = _arguments(plugins) if isinstance(error, TypeError) else ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = modules.get(Path(frame.filename).name)
        if file is not None:
            place, remedy = Mark(file, frame.lineno or 0), ""
    message = single_line(error)
    problem = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return Fault(problem, subject=classes_text(plugins), remedy=remedy, place=place)


def _arguments(classes: Iterable[Reference]) -> str:
    """What a class gets, of the first one that has other parameters; else empty."""
    for reference in classes:
        module = sys.modules.get(f"{PREFIX}{reference.digest}")
        arguments = arguments_of(getattr(module, reference.name, None))
        if arguments:
            return f"it gets {arguments}"
    return ""


def classes_text(plugins: Iterable[Reference]) -> str:
    """Classes in a message: `mine:Square, mine:Local`."""
    return ", ".join(plugin.written for plugin in plugins)


def place_of(plugin: Reference, source: bytes, *methods: str) -> Mark:
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
    return Mark(plugin.written_file, line)
