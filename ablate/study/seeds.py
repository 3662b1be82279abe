"""The section `seeds`: a list of seeds, more seeds for base than for the other rows, or looks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ablate.errors import Fault, Invalid, not_allowed, unknown_name
from ablate.fields import value_text
from ablate.stats.power import MAX_SEEDS
from ablate.study.typed import Misplaced, Placed, union_by_kind

_RANGE = re.compile(r"(?:(\d{1,9}) ?- ?)?(\d{1,9})")  # `3`, or `1-3`
_MAX_SHOWN = 20  # largest number of seeds that a message lists

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


def _distinct(seeds: list[int]) -> list[int]:
    for index, seed in enumerate(seeds):
        if seed in seeds[:index]:
            raise Misplaced(Fault(f"duplicate seed {seed}", path=(index,)))
    return seeds


def _refuse_number(value: Any) -> Any:
    """Refuse a number or a range in place of a list of seeds; the fault shows the list."""
    range_ = _RANGE.fullmatch(str(value).strip())
    if isinstance(value, (int, str)) and not isinstance(value, bool) and range_:
        first, last = int(range_[1] or 1), int(range_[2])
        if first <= last < first + _MAX_SHOWN:
            seeds = list(range(first, last + 1))
            raise Invalid(not_allowed(value_text(value), "a list", f"write {seeds}"))
    return value


SeedList = Annotated[
    list[Seed],
    AfterValidator(_distinct),
    Field(min_length=1, max_length=MAX_SEEDS, json_schema_extra={"uniqueItems": True}),
]
WrittenSeeds = Annotated[SeedList, BeforeValidator(_refuse_number)]


class SeedsOfBase(Placed):
    """More seeds for base than for the rows: `seeds: {rows: 3, base: 9}` are the seeds 1 to 3 of
    every row, and 1 to 9 of base.
    """

    rows: int = Field(ge=1, le=MAX_SEEDS)
    """every row has the seeds 1 to this number"""
    # `_check_base` checks the lower bound, which depends on `rows`.
    base: int = Field(le=MAX_SEEDS, json_schema_extra={"minimum": 3})
    """base has the seeds 1 to this number"""

    @classmethod
    def unknown_key(cls, key: str) -> Fault:
        """The fault of a key that a mapping of seeds does not have."""
        return unknown_name("key", key, ("rows", "base", "looks"))

    @model_validator(mode="after")
    def _check_base(self) -> SeedsOfBase:
        # A single further seed has no standard deviation, so its weight could not be estimated.
        least = self.rows + 2
        if self.base < least:
            few = f"{self.base} seeds; at least {least}, two more than the rows have"
            raise Misplaced(Fault(few, subject="base", path=("base",)))
        return self


def _increasing(numbers: Sequence[int]) -> Sequence[int]:
    for index, (before, number) in enumerate(itertools.pairwise(numbers), 1):
        if number <= before:
            fault = Fault(f"{number} seeds are not more than {before} at the look before")
            raise Misplaced(fault.about("looks").nested(index))
    return numbers


class SeedsWithLooks(Placed):
    """Numbers of seeds at which a study is judged: `seeds: {looks: [3, 5, 8]}`. The seeds of the
    study are 1 to the last of these numbers.
    """

    # At least 2, because one seed has no standard deviation.
    looks: Annotated[
        list[Annotated[int, Field(ge=2, le=MAX_SEEDS)]],
        Field(min_length=2, json_schema_extra={"uniqueItems": True}),
        AfterValidator(_increasing),
    ]
    """numbers of seeds at which the study is judged, increasing; the study ends at the first look
    at which every row is settled"""


SeedsSection = union_by_kind(
    {"a list": WrittenSeeds, "a mapping with looks": SeedsWithLooks, "a mapping": SeedsOfBase}
)
# Keys of this section that users write at the top of a study -> the remedy.
REMEDIES = {"looks": "write seeds: {looks: [3, 5, 8]}"}


@dataclass(frozen=True)
class Seeds:
    """The seeds of a study, or of some of its runs.

    rows: seeds of every row.
    further: further seeds of base.
    tuning: seeds of the tuning runs.
    looks: numbers of seeds at which the study is judged; empty if it is judged once, with all
        seeds.
    """

    rows: tuple[int, ...]
    further: tuple[int, ...] = ()
    tuning: tuple[int, ...] = ()
    looks: tuple[int, ...] = ()

    @property
    def base(self) -> tuple[int, ...]:
        """All seeds of base."""
        return *self.rows, *self.further

    @property
    def plan(self) -> tuple[int, ...]:
        """Numbers of seeds at which the study is judged; only one number without looks."""
        return self.looks or (len(self.rows),)

    def first(self, count: int) -> Seeds:
        """The first `count` seeds of every row, without further seeds of base."""
        return replace(self, rows=self.rows[:count], further=())

    def intersection(self, other: Seeds) -> Seeds:
        """The seeds in both `self` and `other`."""
        rows = tuple(seed for seed in self.rows if seed in other.rows)
        further = tuple(seed for seed in self.further if seed in other.further)
        return replace(self, rows=rows, further=further)


def seeds_of(section: list[int] | SeedsWithLooks | SeedsOfBase, tuning: tuple[int, ...]) -> Seeds:
    """The seeds of a study, from its section `seeds` and the seeds of its tuning runs."""
    if isinstance(section, SeedsWithLooks):
        looks = tuple(section.looks)
        return Seeds(_up_to(looks[-1]), tuning=tuning, looks=looks)
    if isinstance(section, SeedsOfBase):
        return Seeds(_up_to(section.rows), _up_to(section.base)[section.rows :], tuning)
    return Seeds(tuple(section), tuning=tuning)


def _up_to(last: int) -> tuple[int, ...]:
    return tuple(range(1, last + 1))
