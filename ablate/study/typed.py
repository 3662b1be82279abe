"""Read a YAML file as a pydantic model, and report all faults with their lines and columns.

A part with a fault is left out and the rest is validated again, so that rules over several parts
are also checked.
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

from ablate.errors import Fault, Invalid, Mark, as_fault, not_allowed, unknown_name
from ablate.fields import Section, value_faults, value_text
from ablate.study.error_list import MAX_ERRORS
from ablate.study.yaml_nodes import Node, Report

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]  # keys and indices, as in a fault

KEY = "[key]"  # last step of a path to a key and not to its value, as in pydantic


class Misplaced(Invalid):
    """Faults at places within the value that a validator checks.

    Each fault has its path from this value. Its text is complete, so that the key of the value is
    not added as its subject.

    depth: number of steps of each path that lead to the part to leave out: 0 to leave out the whole
        value, None to leave out only the place of the fault.
    """

    def __init__(self, *faults: Fault | str, depth: int | None = None) -> None:
        super().__init__(*faults)
        self.depth = depth


class Located(dict[str, Any]):
    """A mapping in a file, with its node."""

    def __init__(self, node: Node) -> None:
        super().__init__((key, located(part)) for key, _, part in node.items())
        self.node = node


def located(node: Node) -> Any:
    """The value of a node, in which every mapping is Located."""
    if isinstance(node.value, dict):
        return Located(node)
    if isinstance(node.value, list):
        return [located(part) for part in node.value]
    return node.value


class Keyed(Section):
    """A model of a mapping in a file. An unknown key is a fault at the position of the key."""

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
    """A model that keeps the node of its mapping, to place faults that are found after reading."""

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
        """The value of a key that the file writes."""
        node: Node = self._node.value[key][1]
        return node


def mapping_of(value: Any, what: str) -> Any:
    """Return a value that is a mapping; a mapping in a file is Located.

    Raises:
        Invalid: the value is not a mapping. The fault says that a mapping of `what` is allowed.
    """
    if not isinstance(value, dict):
        raise Invalid(not_allowed(value_text(value), f"a mapping of {what}"))
    return value


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a mapping may have, from its model."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def union_by_kind(branches: Mapping[str, Any]) -> Any:
    """The pydantic type of a value that may have several kinds.

    `branches` has the type of each kind. The kinds are `false`, `a list`, `a mapping with KEY`, and
    `a mapping`. A value of no such kind is validated by the first type.
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
    """Read the mapping of this name as a model. Faults are reported with their positions.

    Returns:
        The model of the valid parts, or None if the mapping as a whole is invalid; and the node of
        the valid parts, which is `node` itself if there is no fault.
    """
    incomplete: dict[int, Node] = {}  # the nodes from which a part is left out, by id()
    while True:
        try:
            return model.model_validate(located(node)), node
        except ValidationError as error:
            left_out = []
            for details in error.errors():
                # Report each fault at once, because `report` stops after too many faults.
                for place, fault, depth in _faults(_Place(node, name), details):
                    left_out.append(place.path[:depth])
                    # A fault of an incomplete node may be due to the part that is left out.
                    if id(place.node) not in incomplete:
                        report(place.mark, fault)
        if () in left_out:
            return None, node
        node = _without(node, left_out, incomplete)


def _faults(
    start: _Place, details: Mapping[str, Any]
) -> Iterator[tuple[_Place, Fault, int | None]]:
    """Yield (place, fault, number of steps to the part to leave out) for each fault in an error of
    pydantic.
    """
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
    """A place in a file: a value, or its key.

    node: node of the value.
    key: last key on the path to the value; at the root, the name of the file in messages.
    key_mark: position of this key.
    path: path to the value.
    is_key: whether the place is the key and not the value.
    """

    node: Node
    key: str
    key_mark: Mark = Mark("")
    path: KeyPath = ()
    is_key: bool = False

    @property
    def mark(self) -> Mark:
        return self.key_mark if self.is_key else self.node.mark

    def at(self, loc: Iterable[str | int]) -> _Place:
        """The place at a `loc` of pydantic, relative to this place. Steps that the file does not
        have are skipped: the name of a branch of a union, or a missing key.
        """
        place = self
        for step in loc:
            value = place.node.value
            path = (*place.path, step)
            if isinstance(value, dict) and step in value:
                mark, node = value[step]
                place = _Place(node, str(step), mark, path)
            elif isinstance(value, list) and isinstance(step, int):
                place = _Place(value[step], place.key, place.key_mark, path)
            elif step == KEY:
                place = place._replace(is_key=True)
        return place


def _without(node: Node, paths: Iterable[KeyPath], incomplete: dict[int, Node]) -> Node:
    """A copy of a node without the parts at some paths. Copies of nodes that lose a direct child
    are added to `incomplete`.
    """
    paths_by_step: dict[str | int, list[KeyPath]] = {}
    for step, *rest in paths:
        paths_by_step.setdefault(step, []).append(tuple(rest))
    is_mapping = isinstance(node.value, dict)
    kept: Any = {}
    for step in node.value if is_mapping else range(len(node.value)):
        entry = node.value[step]
        paths_below = paths_by_step.get(step, [])
        if () in paths_below:
            continue
        if not paths_below:
            kept[step] = entry
        elif is_mapping:
            mark, child = entry
            kept[step] = mark, _without(child, paths_below, incomplete)
        else:
            kept[step] = _without(entry, paths_below, incomplete)
    if not is_mapping:
        kept = list(kept.values())
    copy = Node(kept, node.mark)
    if len(kept) < len(node.value) or id(node) in incomplete:
        incomplete[id(copy)] = copy
    return copy
