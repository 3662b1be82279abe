"""What a fault came to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Of one kind of fault: how often it was tried, and how often work was lost or something came out wrong.

    lost: a run was not done afterwards, went further back than its newest whole generation, or did not say why.
    wrong: a file, a table or an answer differs from what it is without the fault.
    """

    fault: str
    tries: int = 0
    lost: int = 0
    wrong: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, line: str, lost: bool = False, wrong: bool = False) -> None:
        """Note what went wrong."""
        self.lost += lost
        self.wrong += wrong
        self.notes.append(line)

    def count(self, what: str) -> None:
        """Count something that is neither."""
        self.counts[what] += 1
