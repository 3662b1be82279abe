"""Sort numbers: a synthetic task in one file."""

from typing import ClassVar

import numpy as np

from ablate.tasks import Generator, Synthetic, SyntheticData


def sort(draws, length, data):
    """Numbers, a mark, and the numbers in order."""
    drawn = 5 + draws.integers(data.symbols, length)
    text = np.concatenate([drawn, np.full((len(draws), 1), 4), np.sort(drawn, 1)], 1)
    targets = np.where(np.arange(2 * length + 1) > length, text, 0)
    return text[:, :-1], targets[:, 1:]


class SortingData(SyntheticData):
    """Its settings: how many numbers, below which."""

    generators: ClassVar = {
        "sorting": Generator(
            settings={"length": 3, "symbols": 9},
            size="length",
            tokens=lambda data: ["=", *map(str, range(data.symbols))],
            draw=sort,
        )
    }


class Sorting(Synthetic):
    """Read numbers, write them in order."""

    name = "sorting"
    data_config = SortingData
