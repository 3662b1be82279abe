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


class ClassFault(Exception):  # noqa: N818
    """A fault of a class of a user's own; `methods` may be the cause, the likeliest first."""

    def __init__(self, text: str, *methods: str) -> None:
        super().__init__(text)
        self.text, self.methods = text, methods


@contextmanager
def faults_of(classes: Sequence[Reference], sources: Path) -> Iterator[None]:
    """Convert faults within the context, which these classes may have.

    Raises:
        StudyError: in one line, with file and line.
    """
    try:
        yield
    except AblateError:
        raise
    except ClassFault as fault:
        place = stored_place(classes[0], sources, *fault.methods)
        raise StudyError(Fault(fault.text, subject=classes_text(classes), place=place)) from None
    except (Exception, SystemExit) as error:
        raise StudyError(describe(classes, error, stored_place(classes[0], sources))) from None


def placed(error: StudyError, classes: Sequence[Reference], sources: Path) -> StudyError:
    """An error of loading a class, or of its combination with other fields, with its place."""
    place = stored_place(classes[0], sources)
    return StudyError(*(fault if fault.place else fault.at(place) for fault in error.faults))


def stored_place(reference: Reference, sources: Path, *methods: str) -> Mark:
    """As `place_of`, by the source that a run keeps."""
    return place_of(reference, (sources / reference.file).read_bytes(), *methods)


def ablate_error(reference: Reference, error: BaseException) -> AblateError:
    """The error itself if it is one of ours, else a StudyError in one line."""
    return error if isinstance(error, AblateError) else StudyError(describe([reference], error))


def describe(
    classes: Sequence[Reference], error: BaseException, place: Mark | None = None
) -> Fault:
    """The fault that an exception shows: file and line, the classes, its type and its message.

    Args:
        classes: the classes that may be the cause.
        error: the exception.
        place: file and line for an exception that passed through none of their modules.
    """
    modules = {reference.file: reference.written_file for reference in classes if reference.digest}
    remedy = _arguments(classes) if isinstance(error, TypeError) else ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = modules.get(Path(frame.filename).name)
        if file is not None:
            place, remedy = Mark(file, frame.lineno or 0), ""
    message = single_line(error)
    problem = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return Fault(problem, subject=classes_text(classes), remedy=remedy, place=place)


def _arguments(classes: Iterable[Reference]) -> str:
    """What a class gets, of the first one that has other parameters; else empty."""
    for reference in classes:
        module = sys.modules.get(f"{PREFIX}{reference.digest}")
        arguments = arguments_of(getattr(module, reference.name, None))
        if arguments:
            return f"it gets {arguments}"
    return ""


def classes_text(classes: Iterable[Reference]) -> str:
    """Classes in a message: `mine:Square, mine:Local`."""
    return ", ".join(reference.written for reference in classes)


def place_of(reference: Reference, source: bytes, *methods: str) -> Mark:
    """File and line of a class or a function, or of the first of some methods that it defines."""
    lines = {"": 1}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == reference.name:
            lines[""] = node.lineno
        if isinstance(node, ast.ClassDef) and node.name == reference.name:
            lines[""] = node.lineno
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    lines[part.name] = part.lineno
    line = next(lines[method] for method in (*methods, "") if method in lines)
    return Mark(reference.written_file, line)
