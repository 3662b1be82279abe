"""The looks of an experiment, planned and judged, as text.

Most experiments have a single look, with all seeds: they are judged from the first score on, and no
text mentions looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ablate.formatting import first_few, percent, plural
from ablate.stats.looks import Look, planned_looks
from ablate.stats.significance import LEVEL


@dataclass(frozen=True)
class Looks:
    """The looks of an experiment, planned and judged.

    plan: number of seeds at each look; most experiments have a single look.
    judged: the looks whose runs have all ended, so that the rows are judged.
    undecided_rows: labels of the rows that are undecided at the last judged look.
    next: the look whose runs are missing; None if no look follows.
    """

    plan: tuple[int, ...]
    judged: tuple[Look, ...] = ()
    undecided_rows: tuple[str, ...] = ()
    next: Look | None = None

    @staticmethod
    def judged_once(seeds: int) -> Looks:
        """The looks of an experiment that is judged once, with this number of seeds."""
        return Looks((seeds,), planned_looks((seeds,)))

    @property
    def has_several(self) -> bool:
        """Whether several looks were planned."""
        return len(self.plan) > 1

    @property
    def last(self) -> Look | None:
        """The last look that has been judged; None before the first one."""
        return self.judged[-1] if self.judged else None

    @property
    def level(self) -> float:
        """The level of the verdicts, for all metrics together."""
        return self.last.level if self.last else LEVEL

    @property
    def stopped_early(self) -> bool:
        """Whether every row was decided before the last look."""
        if self.last is None or self.undecided_rows:
            return False
        return self.last.seeds < self.plan[-1]

    @property
    def text(self) -> str:
        """A line about the last judged look: the undecided rows, and the next look. Empty for a
        single look.
        """
        if not self.has_several:
            return ""
        if self.last is None:
            assert self.next is not None
            return f"L{self.next.text[1:]}: no row is judged before all of its runs have ended."
        look = f"L{self.last.text[1:]}"
        if self.stopped_early:
            return f"{look}: every row is decided, and the study stops here."
        state = "every row is decided"
        follows = "this was the last look"
        if count := len(self.undecided_rows):
            are = "is" if count == 1 else "are"
            state = f"{plural(count, 'row')} {are} undecided ({first_few(self.undecided_rows)})"
        if self.next:
            follows = f"the study goes on with {self.next.seeds} seeds"
        return f"{look}: {state}; {follows}."

    def sentences(self, error: float) -> Iterator[str]:
        """Yield `text`, and the spent part of the error rate; nothing for a single look."""
        if not self.has_several:
            return
        yield self.text
        if self.last:
            yield (
                f"Error spent: {percent(self.last.spent)} of {percent(error)}, of which "
                f"{percent(self.last.level)} at this look."
            )

    def legend(self, error: float, earlier_rows: Iterable[str]) -> Iterator[str]:
        """Yield the look and the level of the verdicts; nothing for a single look.

        Args:
            error: bound of the familywise error rate.
            earlier_rows: labels of the rows whose verdict was reached at an earlier look.
        """
        if self.last is None or not self.has_several:
            return
        text = (
            f"Judged at {self.last.text}, at the level {self.last.level:.3g}; all looks together "
            f"spend {error:.3g}. p values are multiplied by {LEVEL / self.last.level:.3g}."
        )
        if labels := ", ".join(earlier_rows):
            text += f" The verdict of an earlier look stays: {labels}."
        yield text

    def note(self) -> Iterator[str]:
        """Yield the look and the level of effects and slopes; nothing for a single look."""
        if self.last is not None and self.has_several:
            yield (
                f"At {self.last.text}, at the level {self.last.level:.3g} that this look spends: "
                f"intervals of at least {100 * (1 - self.last.level):.3g} %, p times "
                f"{LEVEL / self.last.level:.3g}."
            )

    def as_json(self) -> dict[str, Any]:
        """The looks as JSON values, planned and judged; empty for a single look."""
        if not self.has_several:
            return {}
        looks = {
            "plan": list(self.plan),
            "judged": list(map(Look.as_json, self.judged)),
            "not_settled": list(self.undecided_rows) if self.judged else None,
            "stopped_early": self.stopped_early,
        }
        return {"looks": looks}
