"""The section `seeds`: a list, more seeds for base than for the rows, or looks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from ablate.config.training import MAX_SEEDS
from ablate.errors import unknown_name
from ablate.study.typed import Misplaced, Placed

Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]


def _distinct(seeds: list[int]) -> list[int]:
    for index, seed in enumerate(seeds):
        if seed in seeds[:index]:
            raise Misplaced(((index,), f"duplicate seed {seed}"))
    return seeds


Seeds = Annotated[
    list[Seed],
    AfterValidator(_distinct),
    Field(min_length=1, max_length=MAX_SEEDS, json_schema_extra={"uniqueItems": True}),
]


class SeedsOfBase(Placed):
    """More seeds for base than for the rows: `seeds: {rows: 3, base: 9}` are the seeds 1 to 3 of
    every row, and 1 to 9 of base.
    """

    rows: int = Field(ge=1, le=MAX_SEEDS)
    """every row has the seeds 1 to this number"""
    base: int = Field(ge=3, le=MAX_SEEDS)
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
            message = f"base: {self.base} seeds; at least {least}, two more than the rows have"
            raise Misplaced((("base",), message))
        return self


def _increasing(numbers: Sequence[int]) -> Sequence[int]:
    for index, (before, number) in enumerate(itertools.pairwise(numbers), 1):
        if number <= before:
            raise Misplaced(
                ((index,), f"looks: {number} seeds are not more than {before} at the look before")
            )
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

    @property
    def plan(self) -> tuple[int, ...]:
        """The numbers of seeds."""
        return tuple(self.looks)
