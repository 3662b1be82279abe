"""Outcomes of one kind of fault."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts for one kind of fault: tries, lost work, and wrong output.

    lost: a run was not done afterwards, resumed before its newest whole checkpoint, or gave no
        reason.
    wrong: a file, a table or a message differs from the one without the fault.
    """

    fault: str
    tries: int = 0
    lost: int = 0
    wrong: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, line: str, lost: bool = False, wrong: bool = False) -> None:
        """Add a line about a failure."""
        self.lost += lost
        self.wrong += wrong
        self.notes.append(line)

    def count(self, what: str) -> None:
        """Count an outcome that is neither."""
        self.counts[what] += 1
