"""YAML as a tree of values that know their line and column.

Only what a study needs is read: one document of mappings, lists and plain scalars. Aliases, tags,
duplicate keys, deep nesting and large files are refused, so a hostile file costs nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ablate.errors import StudyError
from ablate.formatting import ellipsis, printable

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
MAX_NODES = 200_000
MAX_DIGITS = 18
MAX_MESSAGE = 1000

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML 1.2's core schema, in which `no` is a word and 1e-9 a number (YAML 1.1 has it the other way round).
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True)
class Mark:
    """A place in a file or in an option, as a compiler names it."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    def fault(self, message: str) -> str:
        """One line for one fault at this place, with nothing in it that could break the line."""
        return printable(f"{self}: {ellipsis(message, MAX_MESSAGE)}")


@dataclass(frozen=True)
class Node:
    """A value and its place: a scalar, a list of nodes, or a mapping of keys to (key's place, node)."""

    value: Any
    mark: Mark

    @property
    def kind(self) -> str:
        """What a message calls this value."""
        if isinstance(self.value, dict):
            return "a mapping" if self.value else "an empty mapping"
        if isinstance(self.value, list):
            return "a list" if self.value else "an empty list"
        return "nothing" if self.value is None else f'"{self.value}"'

    def items(self) -> Iterator[tuple[str, Mark, Node]]:
        """(key, key's place, value) of a mapping, in the file's order."""
        for key, (mark, node) in self.value.items():
            yield key, mark, node

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, (_, node) in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def file_text(path: Path) -> str:
    """The text of a study file.

    Raises:
        StudyError: it cannot be opened, is too large, or is not UTF-8.
    """
    mark = Mark(str(path))
    try:
        if path.is_dir():
            raise StudyError(mark.fault("is a folder; give the study's YAML file"))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise StudyError(mark.fault("there is no such file")) from None
    except OSError as error:
        raise StudyError(mark.fault(f"cannot be read: {error.strerror}")) from None
    if len(content) > MAX_BYTES:
        raise StudyError(mark.fault(f"is larger than a study may be ({MAX_BYTES} bytes)"))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise StudyError(Mark(str(path), line, 1).fault("is not valid UTF-8")) from None


def read_text(text: str, source: str) -> Node:
    """Read YAML text; `source` names it in messages.

    Raises:
        StudyError: it is not the YAML that a study may hold.
    """
    try:
        return _Composer(text, source).document()
    except yaml.MarkedYAMLError as error:
        place = error.problem_mark or error.context_mark
        mark = Mark(source, place.line + 1, place.column + 1) if place else Mark(source)
        raise StudyError(mark.fault(f"not valid YAML: {error.problem or error.context}")) from None
    except (yaml.YAMLError, UnicodeError) as error:  # a character that YAML, or UTF-8, does not have
        before = text.encode(errors="replace")[: getattr(error, "position", 0)]
        mark = Mark(source, before.count(b"\n") + 1, 1)
        raise StudyError(mark.fault(f"not valid YAML: {str(error).splitlines()[0]}")) from None


class _Composer:
    """Builds nodes from the parser's events, refusing what a study may not hold."""

    def __init__(self, text: str, source: str) -> None:
        self.loader = _Loader(text)
        self.source = source
        self.count = 0

    def document(self) -> Node:
        self.loader.get_event()  # the start of the stream
        if self.loader.check_event(yaml.StreamEndEvent):
            raise StudyError(Mark(self.source, 1, 1).fault("is empty; `ablate init` writes a study to start from"))
        self.loader.get_event()  # the start of the document
        node = self.node(0)
        self.loader.get_event()  # its end
        if not self.loader.check_event(yaml.StreamEndEvent):
            second = self.loader.get_event()
            self.refuse(second, "a second YAML document; a study is one")
        return node

    def node(self, depth: int) -> Node:
        event = self.loader.get_event()
        mark = self.mark(event)
        self.count += 1
        if self.count > MAX_NODES:
            self.refuse(event, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            self.refuse(event, f"nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            self.refuse(event, f'alias "*{event.anchor}": a study has no aliases; write the value out')
        if event.anchor is not None:
            self.refuse(event, f'anchor "&{event.anchor}": a study has no anchors; write the value out')
        if event.tag not in (None, "!"):
            self.refuse(event, f'tag "{event.tag}": a study has no tags')
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self.mapping(depth), mark)
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(self.sequence(depth), mark)
        return Node(event.value if event.style else self.scalar(event), mark)

    def mapping(self, depth: int) -> dict[str, tuple[Mark, Node]]:
        result: dict[str, tuple[Mark, Node]] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.loader.peek_event()
            key = self.node(depth + 1)
            if isinstance(key.value, (dict, list)):
                self.refuse(event, "a key must be a plain word")
            name = event.value
            if name in result:
                self.refuse(event, f'"{name}" stands twice; first on line {result[name][0].line}')
            result[name] = (key.mark, self.node(depth + 1))
        self.loader.get_event()
        return result

    def sequence(self, depth: int) -> list[Node]:
        result = []
        while not self.loader.check_event(yaml.SequenceEndEvent):
            result.append(self.node(depth + 1))
        self.loader.get_event()
        return result

    def scalar(self, event: Any) -> Any:
        """A plain scalar's value by YAML 1.2's core schema."""
        text: str = event.value
        if text in _NULL:
            return None
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        if _INT.fullmatch(text):
            if len(text) > MAX_DIGITS:
                self.refuse(event, f"a number of {len(text)} digits")
            return int(text)
        if _FLOAT.fullmatch(text):
            number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            if not math.isfinite(number):
                self.refuse(event, f'"{text}" is not a finite number')
            return number + 0.0  # -0.0 is 0.0, so that one value has one identity
        return text

    def mark(self, event: Any) -> Mark:
        return Mark(self.source, event.start_mark.line + 1, event.start_mark.column + 1)

    def refuse(self, event: Any, message: str) -> None:
        raise StudyError(self.mark(event).fault(message))
