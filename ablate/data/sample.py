"""The sample of a large training side that its vocabulary is learned on."""

from __future__ import annotations

import random

from ablate.data.filters import Pair

SAMPLE_SEED = 20170612


class Sample:
    """At most `size` of the pairs that are offered, each as likely as another, in their order (Vitter, 1985)."""

    def __init__(self, size: int) -> None:
        self.size, self.offered = size, 0
        self._kept: list[tuple[int, Pair]] = []
        self._random = random.Random(SAMPLE_SEED)

    def offer(self, pair: Pair) -> None:
        """One more."""
        if self.offered < self.size:
            self._kept.append((self.offered, pair))
        else:
            place = int(self._random.random() * (self.offered + 1))
            if place < self.size:
                self._kept[place] = (self.offered, pair)
        self.offered += 1

    def drawn(self) -> list[Pair]:
        """The sample."""
        return [pair for _, pair in sorted(self._kept)]
