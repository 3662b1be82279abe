"""The section `seeds`: a list, more seeds for base than for the rows, or looks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ablate.errors import Fault, Invalid, Mark, not_allowed, unknown_name
from ablate.fields import value_text
from ablate.stats.power import MAX_SEEDS
from ablate.study.typed import Misplaced, Placed, choice

_RANGE = re.compile(r"(?:(\d{1,9}) ?- ?)?(\d{1,9})")  # `3`, or `1-3`
_MOST_WRITTEN = 20  # seeds in a message

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


def _distinct(seeds: list[int]) -> list[int]:
    for index, seed in enumerate(seeds):
        if seed in seeds[:index]:
            raise Misplaced(Fault(f"duplicate seed {seed}", path=(index,)))
    return seeds


def _as_list(value: Any) -> Any:
    """Refuse a number of seeds, or a range, with the list that it probably means."""
    range_ = _RANGE.fullmatch(str(value).strip())
    if isinstance(value, (int, str)) and not isinstance(value, bool) and range_:
        first, last = int(range_[1] or 1), int(range_[2])
        if first <= last < first + _MOST_WRITTEN:
            seeds = list(range(first, last + 1))
            raise Invalid(not_allowed(value_text(value), "a list", f"write {seeds}"))
    return value


Seeds = Annotated[
    list[Seed],
    AfterValidator(_distinct),
    Field(min_length=1, max_length=MAX_SEEDS, json_schema_extra={"uniqueItems": True}),
]
SeedsOfRows = Annotated[Seeds, BeforeValidator(_as_list)]


class SeedsOfBase(Placed):
    """More seeds for base than for the rows: `seeds: {rows: 3, base: 9}` are the seeds 1 to 3 of
    every row, and 1 to 9 of base.
    """

    rows: int = Field(ge=1, le=MAX_SEEDS)
    """every row has the seeds 1 to this number"""
    # Its bound is that of `_are_more`, with a message that says the rows' seeds.
    base: int = Field(le=MAX_SEEDS, json_schema_extra={"minimum": 3})
    """base has the seeds 1 to this number"""

    @classmethod
    def unknown_key(cls, key: str) -> str:
        """The message for a key that no mapping of seeds has."""
        return unknown_name("key", key, ("rows", "base", "looks"))

    @model_validator(mode="after")
    def _are_more(self) -> SeedsOfBase:
        # A single further seed shows no spread, so that its weight could not be estimated.
        least = self.rows + 2
        if self.base < least:
            few = f"{self.base} seeds; at least {least}, two more than the rows have"
            raise Misplaced(Fault(few, subject="base", path=("base",)))
        return self


def _increasing(numbers: Sequence[int]) -> Sequence[int]:
    for index, (before, number) in enumerate(itertools.pairwise(numbers), 1):
        if number <= before:
            fault = Fault(f"{number} seeds are not more than {before} at the look before")
            raise Misplaced(fault.of("looks").within(index))
    return numbers


class Looks(Placed):
    """Numbers of seeds at which a study is judged: `seeds: {looks: [3, 5, 8]}`. The seeds of the
    study are 1 to the last of these numbers.
    """

    # From 2 on: one seed shows no spread.
    looks: Annotated[
        list[Annotated[int, Field(ge=2, le=MAX_SEEDS)]],
        Field(min_length=2, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_increasing),
    ]
    """numbers of seeds at which the study is judged, increasing; it ends at the first at which
    every row is settled"""


SeedsSection = choice(
    {"a list": SeedsOfRows, "a mapping with looks": Looks, "a mapping": SeedsOfBase}
)
SECTION_OF = {"looks": "write seeds: {looks: [3, 5, 8]}"}  # keys that belong into the section


@dataclass(frozen=True)
class SeedPlan:
    """The seeds of a study.

    of_rows: the seeds of every row.
    of_base: further ones, that only base has.
    judged_at: numbers of seeds at which the study is judged; empty for once, with all.
    purpose: what a study without a row to judge has no use for; empty for plain seeds.
    mark: where that is written, if it is a key of the section.
    fixed: why `--seeds` cannot replace the seeds; empty if it can.
    """

    of_rows: tuple[int, ...]
    of_base: tuple[int, ...] = ()
    judged_at: tuple[int, ...] = ()
    purpose: str = ""
    mark: Mark | None = None
    fixed: str = ""


def seed_plan(section: list[int] | Looks | SeedsOfBase) -> SeedPlan:
    """The seeds that the section asks for."""
    if isinstance(section, Looks):
        judged_at, mark = tuple(section.looks), section.node("looks").mark
        fixed = f"{mark}: the study is judged at looks, which determine its seeds; remove --seeds"
        return SeedPlan(_first(judged_at[-1]), (), judged_at, "looks", mark, fixed)
    if isinstance(section, SeedsOfBase):
        of_base = _first(section.base)[section.rows :]
        return SeedPlan(_first(section.rows), of_base, purpose="more seeds for base")
    return SeedPlan(tuple(section))


def _first(count: int) -> tuple[int, ...]:
    return tuple(range(1, count + 1))
