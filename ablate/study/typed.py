"""Read a YAML file as a pydantic model: every fault at its line and column, all at once.

A part with a fault is left out, and the rest is read again, so that the rules over several parts
are checked, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar, Union

from pydantic import (
    BaseModel,
    Discriminator,
    ModelWrapValidatorHandler,
    PrivateAttr,
    Tag,
    ValidationError,
    model_validator,
)

from ablate.errors import Fault, Invalid, Mark, Steps, as_fault, not_allowed, unknown_name
from ablate.fields import Section, value_faults, value_text
from ablate.study.error_list import MAX_ERRORS
from ablate.study.yaml_nodes import Node, Report

Model = TypeVar("Model", bound=BaseModel)

KEY = "[key]"  # ends the path of a fault of a key, as in pydantic


class Misplaced(Invalid):
    """Faults within a value that a validator finds, by their paths from it, and complete: without
    the value's key as their subject.

    depth: number of steps of each path to what is left out; 0 for the whole value, None for the
        place itself.
    """

    def __init__(self, *faults: Fault | str, depth: int | None = None) -> None:
        super().__init__(*faults)
        self.depth = depth


class Located(dict[str, Any]):
    """A mapping of a file, with its node."""

    def __init__(self, node: Node) -> None:
        super().__init__((key, located(part)) for key, _, part in node.items())
        self.node = node


def located(node: Node) -> Any:
    """The value of a node, whose mappings keep their nodes."""
    if isinstance(node.value, dict):
        return Located(node)
    if isinstance(node.value, list):
        return [located(part) for part in node.value]
    return node.value


class Keyed(Section):
    """A mapping of a file: an unknown key is a fault at the key."""

    @model_validator(mode="before")
    @classmethod
    def _has_known_keys(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        keys = keys_of(cls)
        mapping = mapping_of(value, ", ".join(keys))
        faults: list[Fault] = []
        for key in mapping:
            if key not in keys and len(faults) < MAX_ERRORS:
                faults.append(as_fault(cls.unknown_key(key)).nested(key, KEY))
        if faults:
            raise Misplaced(*faults)
        return mapping

    @classmethod
    def unknown_key(cls, key: str) -> Fault | str:
        """The fault of a key that the mapping does not have."""
        return unknown_name("key", key, keys_of(cls))


class Placed(Keyed):
    """A mapping of a file that keeps its node, for faults of rules over several mappings."""

    _node: Node = PrivateAttr(default=Node({}, Mark("")))

    @model_validator(mode="wrap")
    @classmethod
    def _place(cls, value: Any, validate: ModelWrapValidatorHandler[Any]) -> Any:
        placed = validate(value)
        if isinstance(value, Located):
            placed._node = value.node
        return placed

    @property
    def mark(self) -> Mark:
        """Position of the mapping."""
        return self._node.mark

    def node(self, key: str) -> Node:
        """The value of a key that the file has."""
        node: Node = self._node.value[key][1]
        return node


def mapping_of(value: Any, what: str) -> Any:
    """The value, if it is a mapping, which is Located in a file.

    Raises:
        Invalid: it is not; `what` names the keys.
    """
    if not isinstance(value, dict):
        raise Invalid(not_allowed(value_text(value), f"a mapping of {what}"))
    return value


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a mapping of a model may have."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def choice(branches: Mapping[str, Any]) -> Any:
    """The type of a value of one of several kinds, by the name of the kind: `false`, `a list`, `a
    mapping with KEY` or `a mapping`. Another value is taken for the first.
    """

    def kind_of(value: Any) -> str:
        kinds: set[str] = set()
        if value is False:
            kinds = {"false"}
        elif isinstance(value, list):
            kinds = {"a list"}
        elif isinstance(value, dict):
            kinds = {"a mapping", *map("a mapping with {}".format, value)}
        for kind in branches:
            if kind in kinds:
                return kind
        return next(iter(branches))

    tagged = tuple(Annotated[branch, Tag(kind)] for kind, branch in branches.items())
    return Annotated[Union[tagged], Discriminator(kind_of)]  # noqa: UP007


def read_model(
    model: type[Model], node: Node, name: str, report: Report
) -> tuple[Model | None, Node]:
    """Read a mapping as a model of its valid part, and return it with the node of that part.

    The node is the given one if there is no fault. The model is None if nothing is valid.
    """
    incomplete: dict[int, Node] = {}  # by identity
    while True:
        try:
            return model.model_validate(located(node)), node
        except ValidationError as error:
            left_out = []
            for details in error.errors():
                # One after the other: `report` stops the reading of a file with too many faults.
                for place, fault, depth in _faults(_Place(node, name), details):
                    left_out.append(place.path[:depth])
                    # It may come from what was left out of a mapping, and not from the file.
                    if id(place.node) not in incomplete:
                        report(place.mark, fault)
        if () in left_out:
            return None, node
        node = _without(node, left_out, incomplete)


def _faults(
    start: _Place, details: Mapping[str, Any]
) -> Iterator[tuple[_Place, Fault, int | None]]:
    """(place, fault, number of steps to the part that is left out) of each fault."""
    loc = details["loc"]
    place = start.at(loc)
    error = details.get("ctx", {}).get("error")
    if details["type"] == "missing":
        yield place, Fault(f"{place.key} needs {loc[-1]}"), None
        return
    for fault in value_faults(details):
        if isinstance(error, Misplaced):
            depth = None if error.depth is None else len(place.path) + error.depth
            yield place.at(fault.path), fault, depth
        else:
            yield place, fault if place.is_key else fault.about(place.key), None


class _Place(NamedTuple):
    """A place in a file.

    key: the last key on the way to it, or the name of the file.
    """

    node: Node
    key: str
    key_mark: Mark = Mark("")
    path: Steps = ()
    is_key: bool = False

    @property
    def mark(self) -> Mark:
        return self.key_mark if self.is_key else self.node.mark

    def at(self, loc: Iterable[str | int]) -> _Place:
        """The place at a `loc` of pydantic from here. Steps that the file does not have are names
        of the branches of a union, or a missing key.
        """
        place = self
        for step in loc:
            value, path = place.node.value, (*place.path, step)
            if isinstance(value, dict) and step in value:
                mark, node = value[step]
                place = _Place(node, str(step), mark, path)
            elif isinstance(value, list) and isinstance(step, int):
                place = _Place(value[step], place.key, place.key_mark, path)
            elif step == KEY:
                place = place._replace(is_key=True)
        return place


def _without(node: Node, paths: Iterable[Steps], incomplete: dict[int, Node]) -> Node:
    """The node without some parts; what loses one of its own is added to `incomplete`."""
    inside: dict[str | int, list[Steps]] = {}
    for step, *rest in paths:
        inside.setdefault(step, []).append(tuple(rest))
    is_mapping = isinstance(node.value, dict)
    kept: Any = {}
    for step in node.value if is_mapping else range(len(node.value)):
        below, entry = inside.get(step, []), node.value[step]
        if () in below:
            continue
        kept[step] = entry
        if below and is_mapping:
            kept[step] = entry[0], _without(entry[1], below, incomplete)
        elif below:
            kept[step] = _without(entry, below, incomplete)
    if not is_mapping:
        kept = list(kept.values())
    rest_of_it = Node(kept, node.mark)
    if len(kept) < len(node.value) or id(node) in incomplete:
        incomplete[id(rest_of_it)] = rest_of_it
    return rest_of_it
