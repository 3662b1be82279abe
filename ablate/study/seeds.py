"""The section `seeds`: a list of seeds, or the looks at which a study is judged."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from ablate.config.training import MAX_SEEDS
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
    ] = Field(
        description="numbers of seeds at which the study is judged, increasing; it ends at the "
        "first at which every row is settled",
    )

    @property
    def plan(self) -> tuple[int, ...]:
        """The numbers of seeds."""
        return tuple(self.looks)
