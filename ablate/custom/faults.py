"""Faults of users' classes as one-line messages with file and line."""

from __future__ import annotations

import ast
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ablate.custom.kinds import arguments_of
from ablate.custom.reference import PREFIX, Reference
from ablate.errors import AblateError, Fault, Mark, StudyError
from ablate.formatting import single_line


class ClassFault(Exception):  # noqa: N818
    """A fault of a user's class. `methods` may cause it, the likeliest first."""

    def __init__(self, text: str, *methods: str) -> None:
        super().__init__(text)
        self.text = text
        self.methods = methods


@contextmanager
def faults_of(classes: Sequence[Reference], sources: Path) -> Iterator[None]:
    """Convert exceptions in this context to faults of users' classes.

    Raises:
        StudyError: one line, with file and line.
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


class FirstFaults:
    """The first fault of each class, in the order of the checks that found them."""

    def __init__(self) -> None:
        self._faults: dict[str, Fault] = {}

    def __bool__(self) -> bool:
        return bool(self._faults)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep the faults of a StudyError that is raised in this context."""
        try:
            yield
        except StudyError as error:
            for fault in error.faults:
                self._faults.setdefault(fault.subject or str(fault), fault)

    def refuse(self) -> None:
        """Raise the faults, if there are any.

        Raises:
            StudyError: the first fault of each class.
        """
        if self._faults:
            raise StudyError(*self._faults.values())


def placed(error: StudyError, classes: Sequence[Reference], sources: Path) -> StudyError:
    """The error with the place of the first class for faults without a place."""
    place = stored_place(classes[0], sources)
    return StudyError(*(fault if fault.place else fault.located(place) for fault in error.faults))


def stored_place(reference: Reference, sources: Path, *methods: str) -> Mark:
    """`place_of` for the source that a run has stored."""
    return place_of(reference, (sources / reference.file).read_bytes(), *methods)


def ablate_error(reference: Reference, error: BaseException) -> AblateError:
    """The error if it is an AblateError, else a StudyError of one line that describes it."""
    return error if isinstance(error, AblateError) else StudyError(describe([reference], error))


def describe(
    classes: Sequence[Reference], error: BaseException, place: Mark | None = None
) -> Fault:
    """The fault of an exception: place, classes, type and message.

    Args:
        classes: the classes that may be the cause.
        error: the exception.
        place: place of the fault if the traceback passes through none of their modules.
    """
    modules = {reference.file: reference.written_file for reference in classes if reference.digest}
    remedy = _arguments(classes) if isinstance(error, TypeError) else ""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, NotImplementedError) and frames and not error.args:
        remedy = f"define {frames[-1].name}"  # the method of a base class that raises it
    for frame in frames:
        file = modules.get(Path(frame.filename).name)
        if file is not None:
            place, remedy = Mark(file, frame.lineno or 0), ""
    message = single_line(error)
    if isinstance(error, AttributeError) and _lacks_init_of_module(error):
        remedy = "call super().__init__(...) first, with the arguments of the base class"
    problem = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return Fault(problem, subject=classes_text(classes), remedy=remedy, place=place)


def _lacks_init_of_module(error: AttributeError) -> bool:
    """Whether a torch module raised the error because `Module.__init__` has not been called."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    part = frames[-1].f_locals.get("self") if frames else None
    is_module = any(cls.__name__ == "Module" for cls in type(part).__mro__)
    return is_module and "_parameters" not in vars(part)


def _arguments(classes: Sequence[Reference]) -> str:
    """`it gets ...`, with the arguments of the first class that cannot take them; else empty."""
    for reference in classes:
        module = sys.modules.get(f"{PREFIX}{reference.digest}")
        arguments = arguments_of(getattr(module, reference.name, None), len(classes) > 1)
        if arguments:
            return f"it gets {arguments}"
    return ""


def classes_text(classes: Iterable[Reference]) -> str:
    """The classes as text of a message: `mine:Square, mine:Local`."""
    return ", ".join(reference.written for reference in classes)


def place_of(reference: Reference, source: bytes, *methods: str) -> Mark:
    """File and line of the first of these methods that a class defines; without such a method, of
    the class or function.
    """
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
