"""The section `tune`: fields whose values are chosen for each row, with seeds that no verdict uses.

Each candidate is a row of the tuning runs, which train for a share of the steps and are not
decoded, so that the test split has no part in the choice. Decoding fields are chosen by the
predictions of base's runs for the dev split. `analysis/tuning_runs.py` makes these runs, and
`analysis/choices.py` makes the choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from ablate.config import DecodingConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.config.resolve import SYMBOLS, field_names, standard_name
from ablate.config.row import RowConfig, RowDataConfig
from ablate.errors import Fault, unknown_name
from ablate.fields import facts_of, fields_by_alias
from ablate.study.seeds import SeedList
from ablate.study.settings import schema_reference, unknown_field
from ablate.study.typed import KEY, Misplaced, Placed, mapping_of
from ablate.study.yaml_nodes import Node

MAX_CANDIDATES = 1000  # of one row
# Fields that determine the length of the training, or do not change the trained model.
_LENGTH = ("train_steps", "epochs", "patience", "eval_every", "checkpoint_every", *NOT_IDENTITY)
# Fields that cannot be tuned -> the reason.
_UNTUNED = {
    **dict.fromkeys(
        _LENGTH, "a candidate must not win because it was trained longer or evaluated more often"
    ),
    **dict.fromkeys(
        RowDataConfig.model_fields, "perplexities on different data are not comparable"
    ),
    **dict.fromkeys(
        DecodingConfig.model_fields,
        "candidates are scored by perplexity, without decoding; fields that can be chosen on dev "
        "belong under `decoding`",
    ),
}
TUNED = tuple(name for name in field_names() if name not in _UNTUNED)
CHOSEN_ON_DEV = tuple(
    name for name, facts in facts_of(DecodingConfig).items() if facts.chosen_on_dev
)


def _tuning_fault(key: str) -> Fault | None:
    """The fault of a field that cannot be tuned by the loss; None if it can."""
    name = standard_name(key)
    if name is None:
        return unknown_field(key)
    if name in _UNTUNED:
        return Fault(f"{key} cannot be tuned: {_UNTUNED[name]}", (name,))
    return None


def _decoding_fault(key: str) -> Fault | None:
    """The fault of a field that cannot be chosen by the predictions for dev; None if it can."""
    if standard_name(key) in CHOSEN_ON_DEV:
        return None
    return unknown_name("field of decoding", key, CHOSEN_ON_DEV)


def _grid(fault_of: Callable[[str], Fault | None], fields: Iterable[str]) -> Any:
    """The pydantic type of a grid: a list of values for each field.

    Args:
        fault_of: returns the fault of a field that a grid may not have; else None.
        fields: the fields that a grid may have, for the JSON Schema.
    """

    def check(value: Any) -> Grid:
        value = mapping_of(value, "fields, each with a list of values")
        faults: list[Fault] = []
        grid: dict[str, tuple[Node, ...]] = {}
        for key, _, values in value.node.items():
            name = standard_name(key) or key
            fault = fault_of(key)
            if fault is None and name in grid:
                fault = Fault(f'"{key}" is given twice')
            if fault is not None:
                faults.append(fault.nested(key, KEY))
            elif not isinstance(values.value, list) or len(values.value) < 2:
                faults.append(Fault(f'"{key}" needs a list of two or more values', path=(key,)))
            else:
                grid[name] = tuple(values.value)
                faults += _repeated(key, values)
        count = math.prod(map(len, grid.values()))
        if count > MAX_CANDIDATES:
            problem = f"makes {count:,} candidates for each row"
            faults.append(Fault(f"{problem}; at most {MAX_CANDIDATES:,} are allowed"))
        if faults:
            raise Misplaced(*faults, depth=1)
        return grid

    letters = [letter for letter, name in SYMBOLS.items() if name in fields]
    properties = {
        name: schema_reference(f"lists/properties/{name}") for name in (*letters, *fields)
    }
    schema = {"type": "object", "minProperties": 1, "additionalProperties": False}
    return Annotated[
        Any, PlainValidator(check), WithJsonSchema({**schema, "properties": properties})
    ]


def _repeated(key: str, values: Node) -> Iterator[Fault]:
    """Yield a fault at the first value that equals an earlier value. Lists and mappings are refused
    elsewhere.
    """
    seen: list[tuple[type, Any]] = []  # with the type, because True == 1
    for index, node in enumerate(values.value):
        value = (bool if isinstance(node.value, bool) else object, node.value)
        if not isinstance(node.value, (dict, list)) and value in seen:
            yield Fault(f'"{key}" has the value {node.kind} twice', path=(key, index))
            return
        seen.append(value)


Grid = Mapping[str, tuple[Node, ...]]  # values of each field, by standard name


class Tune(Placed):
    """The section `tune`: `{grid: {learning_rate: [3e-4, 1e-3]}, seeds: [101], steps: 0.5}`."""

    model_config = ConfigDict(
        json_schema_extra={
            "description": "each row gets its own values for the fields of `grid`, chosen by dev "
            "loss with other seeds; all rows get the same values for the fields of `decoding`",
            "anyOf": [{"required": ["grid"]}, {"required": ["decoding"]}],
            "dependencies": {"grid": ["seeds"], "seeds": ["grid"]},
        }
    )

    grid: _grid(_tuning_fault, TUNED) = Field(default_factory=dict)  # type: ignore[valid-type]
    """values of each field; every combination is tried"""
    seeds: SeedList = Field(default_factory=list)
    """seeds of the tuning runs; none of them may be a seed of the study"""
    decoding: _grid(_decoding_fault, CHOSEN_ON_DEV) = Field(default_factory=dict)  # type: ignore[valid-type]
    """values of each decoding field; every row gets the combination with the best predictions of
    base for the dev split"""
    share: float = Field(1.0, gt=0, le=1, alias="steps")
    """share of each row's train_steps; unset: 1"""

    @classmethod
    def unknown_key(cls, key: str) -> Fault | str:
        """The fault of a key that the section does not have, such as a field."""
        name = standard_name(key) or fields_by_alias(RowConfig).get(key)
        if name is None:
            return super().unknown_key(key)
        section = "decoding" if name in CHOSEN_ON_DEV else "grid"
        return Fault(f'"{key}" is a field', remedy=f"write {section}: {{{name}: [VALUE, VALUE]}}")

    def faults(self, seeds_of_study: Collection[int]) -> Iterator[Fault]:
        """Yield the faults of keys that need another key, and of seeds that a verdict uses."""
        written = self.model_fields_set
        if "grid" in written and "seeds" not in written:
            yield Fault("tune needs seeds, because it has grid")
        if "seeds" in written and "grid" not in written:
            yield Fault("tune needs grid, because it has seeds")
        if not written & {"grid", "decoding", "seeds"}:
            yield Fault("tune needs grid with seeds, or decoding")
        for key in ("grid", "decoding"):
            if key in written and not getattr(self, key):
                yield Fault(f"{key} needs at least one field", path=(key,))
        for index, seed in enumerate(self.seeds):
            if seed in seeds_of_study:
                rule = "tuning needs seeds that no verdict uses"
                yield Fault(f"seed {seed} is a seed of the study; {rule}", path=("seeds", index))

    def steps(self, train_steps: int) -> int:
        """Number of steps of a tuning run, for a row with `train_steps` steps."""
        # `round` removes the error of floating point: 0.55 * 100 is 55.00000000000001. `ceil` makes
        # a small share of few steps at least one step.
        return max(1, math.ceil(round(self.share * train_steps, 6)))

    @property
    def legend(self) -> str:
        """The line below a table that explains the column of chosen values."""
        count = math.prod(map(len, self.grid.values()))
        return (
            f"tuned: the settings with the smallest dev loss, of the same {count} for every tuned "
            f"row, in trainings with {self.trainings}; edge: the chosen value is the smallest or "
            "largest of the grid, and a better value may lie outside."
        )

    @property
    def trainings(self) -> str:
        """The tuning runs of a row: `seed 101 and 50 % of the steps`."""
        return f"{'seed' if len(self.seeds) == 1 else 'seeds'} {self.seeds_and_steps}"

    @property
    def seeds_and_steps(self) -> str:
        """Seeds and steps of the tuning runs: `101, 102 and 50 % of the steps`."""
        return f"{', '.join(map(str, self.seeds))} and {100 * self.share:g} % of the steps"


def grid_points(grid: Grid) -> Iterator[dict[str, Node]]:
    """Yield the points of a grid, in the order of writing: the last field changes fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
