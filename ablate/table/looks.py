"""Where an experiment is among its looks, in words.

An experiment with a list of seeds has a single look, at all of them. It is judged from its first
score on, and there is nothing to say about its looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ablate.formatting import first_few, percent, plural
from ablate.stats.looks import Look, planned_looks
from ablate.stats.significance import LEVEL


@dataclass(frozen=True)
class Standing:
    """The looks of an experiment, and how far it is.

    plan: number of seeds at each look; a single one, that of all seeds, in most experiments.
    judged: the looks that have been judged, because all of their runs have ended.
    open_rows: labels of the rows that are not settled at the last of them.
    next: the look whose runs are missing; None if no further look follows.
    """

    plan: tuple[int, ...]
    judged: tuple[Look, ...] = ()
    open_rows: tuple[str, ...] = ()
    next: Look | None = None

    @staticmethod
    def once(seeds: int) -> Standing:
        """The standing of an experiment with a single look, at so many seeds."""
        return Standing((seeds,), planned_looks((seeds,)))

    @property
    def has_looks(self) -> bool:
        """Whether several looks were planned."""
        return len(self.plan) > 1

    @property
    def look(self) -> Look | None:
        """The look of the verdicts; None before the first one."""
        return self.judged[-1] if self.judged else None

    @property
    def level(self) -> float:
        """The level of the verdicts, in all metrics together."""
        return self.look.level if self.look else LEVEL

    @property
    def stopped_early(self) -> bool:
        """Whether a look before the last one has settled every row."""
        if self.look is None or self.open_rows:
            return False
        return self.look.seeds < self.plan[-1]

    @property
    def text(self) -> str:
        """One line: the last look that was judged, what it has settled, and what follows; empty for
        a single look.
        """
        if not self.has_looks:
            return ""
        if self.look is None:
            assert self.next is not None
            return f"L{self.next.text[1:]}: no row is judged before all of its runs have ended."
        look = f"L{self.look.text[1:]}"
        if self.stopped_early:
            return f"{look}: every row is decided, and the study stops here."
        state, follows = "every row is decided", "this was the last look"
        if count := len(self.open_rows):
            are = "is" if count == 1 else "are"
            state = f"{plural(count, 'row')} {are} undecided ({first_few(self.open_rows)})"
        if self.next:
            follows = f"the study goes on with {self.next.seeds} seeds"
        return f"{look}: {state}; {follows}."

    def sentences(self, error: float) -> Iterator[str]:
        """Yield the line of `text`, and how much of the error of all looks is spent."""
        if not self.has_looks:
            return
        yield self.text
        if self.look:
            yield (
                f"Error spent: {percent(self.look.spent)} of {percent(error)}, of which "
                f"{percent(self.look.level)} at this look."
            )

    def legend(self, error: float, kept: Iterable[str]) -> Iterator[str]:
        """Yield the look of a table's verdicts.

        Args:
            error: bound of the error of all verdicts.
            kept: labels of the rows whose verdict is of an earlier look.
        """
        if self.look is None or not self.has_looks:
            return
        text = (
            f"Judged at {self.look.text}, at the level {self.look.level:.3g}; all looks together "
            f"spend {error:.3g}. p values are multiplied by {LEVEL / self.look.level:.3g}."
        )
        if labels := ", ".join(kept):
            text += f" The verdict of an earlier look stays: {labels}."
        yield text

    def note(self) -> Iterator[str]:
        """Yield seeds and level of effects and slopes; nothing for a single look."""
        if self.look is not None and self.has_looks:
            yield (
                f"At {self.look.text}, at the level {self.look.level:.3g} that this look spends: "
                f"intervals of at least {100 * (1 - self.look.level):.3g} %, p times "
                f"{LEVEL / self.look.level:.3g}."
            )

    def as_json(self) -> dict[str, Any]:
        """The looks for scripts: those planned, and those judged with the error that they spend;
        nothing for a single look.
        """
        if not self.has_looks:
            return {}
        looks = {
            "plan": list(self.plan),
            "judged": list(map(Look.as_json, self.judged)),
            "not_settled": list(self.open_rows) if self.judged else None,
            "stopped_early": self.stopped_early,
        }
        return {"looks": looks}
