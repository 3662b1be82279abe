"""Parse YAML into nodes that keep their line and column.

A study is one document of mappings, lists and scalars. Aliases, tags, duplicate keys, deep nesting
and large files are refused, so that a hostile file cannot exhaust memory or time.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from ablate.errors import Fault, Invalid, Mark, StudyError, no_such_file
from ablate.fields import value_text
from ablate.formatting import first_line

MAX_BYTES = 1 << 20
MAX_DEPTH = 12
MAX_NODES = 200_000
MAX_DIGITS = 18
_NO_REUSE = (
    "is not supported; write the value out: rows have the fields of base, and write only what "
    "they change"
)

NOT_YAML = "not valid YAML"  # subject of such faults

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Scalars of the core schema of YAML 1.2, where `no` is a string and 1e-9 a number. PyYAML follows
# YAML 1.1, where `no` is false and 1e-9 a string.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


# A key without a value in a mapping in braces, which PyYAML refuses unless a space follows.
_EMPTY_VALUE = re.compile(r":(?=[,}\]])")
_MAX_EMPTY = 20  # each one is another try

Report = Callable[[Mark, Fault | str], None]  # receives the position of a fault, and the fault


@dataclass(frozen=True)
class Node:
    """A part of a YAML file.

    value: a scalar, a list of nodes, or a dict of key -> (position of the key, node).
    mark: position of the value.
    """

    value: Any
    mark: Mark

    @property
    def kind(self) -> str:
        """The value as messages show it: `a list`, `nothing`, `0.1`."""
        if self.value in ({}, []):
            return "an empty mapping" if self.value == {} else "an empty list"
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        return "nothing" if self.value is None else value_text(self.value)

    def items(self) -> Iterator[tuple[str, Mark, Node]]:
        """Yield (key, position of the key, value) for each entry of a mapping, in file order."""
        for key, (mark, node) in self.value.items():
            yield key, mark, node

    def fields(self) -> dict[str, Node]:
        """The values of a mapping by key."""
        return {key: node for key, (_, node) in self.value.items()}

    def to_python(self) -> Any:
        """The value without positions, as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return plain_values(self.fields())
        if isinstance(self.value, list):
            return list(map(Node.to_python, self.value))
        return self.value


def plain_values(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Values without positions, by key."""
    return {key: node.to_python() for key, node in nodes.items()}


def read_file(path: Path) -> str:
    """Read the text of a study file.

    Raises:
        StudyError: the file cannot be opened, is too large, or is not UTF-8.
    """
    mark = Mark(str(path))
    try:
        if path.is_dir():
            raise mark.error("is a folder; expected a YAML file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise mark.error("is a link to a file that does not exist") from None
        raise StudyError(no_such_file(path, is_yaml)) from None
    except OSError as error:
        raise mark.error(f"cannot be read: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise mark.error(f"is too large; at most {MAX_BYTES:,} bytes")
    try:
        if _is_utf16(content):
            raise Mark(str(path), 1, 1).error("is UTF-16, not UTF-8; save the file as UTF-8")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise Mark(str(path), line, 1).error("is not valid UTF-8") from None


def _is_utf16(content: bytes) -> bool:
    """Whether a text is UTF-16: it has the byte order mark, or every second byte is NUL, as in
    Latin letters.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return True
    even_bytes = content[0:64:2]
    odd_bytes = content[1:64:2]
    return len(content) > 1 and any(even_bytes) != any(odd_bytes)


def is_yaml(path: Path) -> bool:
    """Whether a path has the name of a study file."""
    return path.suffix in (".yaml", ".yml")


def parse_yaml(text: str, source: str, spaces: tuple[int, ...] = ()) -> Node:
    """Parse YAML text.

    Args:
        text: the text.
        source: its name in messages.
        spaces: indices of spaces in `text` that the file does not have.

    Raises:
        StudyError: the text is not YAML, or uses a feature that studies do not have.
    """
    composer = _Composer(source, spaces)
    try:
        return composer.document(text)
    except yaml.MarkedYAMLError as error:
        position = error.problem_mark or error.context_mark
        if position and len(spaces) < _MAX_EMPTY and _EMPTY_VALUE.match(text, position.index):
            end = position.index + 1
            return parse_yaml(f"{text[:end]} {text[end:]}", source, (*spaces, end))
        mark = composer.mark(position) if position else Mark(source)
        if position and text[position.index : position.index + 1] == "\t":
            fault = Fault("a tab", subject=NOT_YAML, remedy="indent with spaces")
            raise mark.error(fault) from None
        raise _invalid(error, mark, text, composer) from None
    except (yaml.YAMLError, UnicodeError) as error:  # a character that YAML or UTF-8 does not allow
        before = text.encode(errors="replace")[: getattr(error, "position", 0)]
        mark = Mark(source, before.count(b"\n") + 1, 1)
        raise mark.error(Fault(first_line(error), subject=NOT_YAML)) from None


def _invalid(error: yaml.MarkedYAMLError, mark: Mark, text: str, composer: _Composer) -> StudyError:
    """The error for a text that is not YAML, at `mark`; for a key without a colon, at the key."""
    start, parents = error.context_mark, composer.parents
    remedy = "close it"
    opened = start if error.problem == "found unexpected end of stream" else None
    if parents and parents[-1].flow_style and "flow" in str(error.context):
        opened, remedy = parents[-1].start_mark, "close it, and separate entries by commas"
    if opened:
        place = composer.mark(opened)
        problem = f"{text[opened.index]} opened at {place.line}:{place.column}"
        fault = Fault(f"{problem} is not closed", subject=NOT_YAML, remedy=remedy)
        return mark.error(fault)
    if error.problem_mark and text[error.problem_mark.index :].startswith(("]", "}")):
        problem = f"{text[error.problem_mark.index]} closes nothing"
        return mark.error(Fault(problem, subject=NOT_YAML))
    if start and error.problem == "could not find expected ':'":
        fault = Fault("a key without a colon", subject=NOT_YAML, remedy="write KEY: VALUE")
        return composer.mark(start).error(fault)
    # The two loaders of PyYAML give different texts for this error.
    if start and error.context == "while parsing a block mapping":
        remedy = (
            f"the mapping begins on line {start.line + 1}, so all its keys must begin in column "
            f"{start.column + 1}"
        )
        return mark.error(Fault("wrong indentation", subject=NOT_YAML, remedy=remedy))
    return mark.error(Fault(str(error.problem or error.context), subject=NOT_YAML))


class _Composer:
    """Builds nodes from the parser's events and refuses features that studies do not have."""

    def __init__(self, source: str, spaces: Sequence[int]) -> None:
        self.source = source
        self.spaces = spaces
        self.count = 0
        # The events that start the lists and mappings around the position, the outermost first.
        self.parents: list[Any] = []

    def document(self, text: str) -> Node:
        self.loader: Any = _Loader(text)
        self.loader.get_event()  # the start of the stream
        if self.loader.check_event(yaml.StreamEndEvent):
            raise Mark(self.source, 1, 1).error(
                "is empty; `ablate init` writes a study to start from"
            )
        self.loader.get_event()  # the start of the document
        node = self.node(0)
        self.loader.get_event()  # the end of the document
        if not self.loader.check_event(yaml.StreamEndEvent):
            second = self.loader.get_event()
            self.refuse(second, "a second YAML document starts here; one is allowed")
        return node

    def node(self, depth: int, *, is_key: bool = False) -> Node:
        event = self.loader.get_event()
        mark = self.mark(event.start_mark)
        self.count += 1
        if self.count > MAX_NODES:
            self.refuse(event, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            self.refuse(event, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            self.refuse(event, f'alias "*{event.anchor}" {_NO_REUSE}')
        if event.anchor is not None:
            self.refuse(event, f'anchor "&{event.anchor}" {_NO_REUSE}')
        if event.tag not in (None, "!"):
            self.refuse(event, f'tag "{event.tag}" is not supported')
        if isinstance(event, yaml.CollectionStartEvent):
            self.parents.append(event)
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            node = Node(self.mapping(depth) if is_mapping else self.sequence(depth), mark)
            self.parents.pop()
            return node
        return Node(event.value if event.style or is_key else self.scalar(event), mark)

    def mapping(self, depth: int) -> dict[str, tuple[Mark, Node]]:
        result: dict[str, tuple[Mark, Node]] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.loader.peek_event()
            key = self.node(depth + 1, is_key=True)
            if isinstance(key.value, (dict, list)):
                self.refuse(event, "a key must be a single word, not a list or a mapping")
            name = event.value
            if name == "<<":
                self.refuse(event, f'merge key "<<" {_NO_REUSE}')
            if name in result:
                self.refuse(event, f'duplicate key "{name}"; first on line {result[name][0].line}')
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
        try:
            return plain_scalar(event.value)
        except Invalid as error:
            self.refuse(event, *error.faults)

    def refuse(self, event: Any, fault: Fault | str) -> NoReturn:
        raise self.mark(event.start_mark).error(fault)

    def mark(self, position: Any) -> Mark:
        """The place of PyYAML's position in the file, which does not have `spaces`."""
        line = range(position.index - position.column, position.index)
        column = position.column - sum(space in line for space in self.spaces)
        return Mark(self.source, position.line + 1, column + 1)


def plain_scalar(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar by YAML 1.2's core schema.

    Raises:
        Invalid: a number has too many digits or a leading zero, or is not finite.
    """
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise Invalid(f"a number with {len(text)} digits; at most {MAX_DIGITS} are allowed")
        if re.match(r"[-+]?0[0-9]", text):  # YAML 1.1 reads 010 as 8, YAML 1.2 as 10
            raise Invalid(
                f'"{text}" begins with 0, so some programs read it as octal; '
                f'write {int(text)}, or "{text}" in quotes if it is a name'
            )
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            raise Invalid(f'"{text}" is not a finite number')
        return number + 0.0  # turns -0.0 into 0.0, so that both give the same run id
    return text
