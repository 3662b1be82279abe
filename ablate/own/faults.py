"""Faults of a class of a user's own as one line, with file and line."""

from __future__ import annotations

import ast
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ablate.errors import AblateError, StudyError
from ablate.own.reference import PREFIX, Reference

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


def as_ablate_error(plugin: Reference, error: BaseException) -> AblateError:
    """The error itself if it is one of ours, else a StudyError in one line."""
    return error if isinstance(error, AblateError) else StudyError(describe([plugin], error))


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
