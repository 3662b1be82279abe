"""Which looks of an experiment were planned and judged, and sentences about them.

Most experiments have a single look, with all seeds: they are judged from the first score on, and no
text mentions looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ablate.formatting import first_few, percent, plural
from ablate.stats.looks import Look, planned_looks
from ablate.stats.significance import LEVEL


@dataclass(frozen=True)
class Looks:
    """The looks of an experiment, planned and judged. A look is a number of seeds at which the
    experiment is judged: an interim analysis.

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
    def planned(self) -> tuple[Look, ...]:
        """Every look, judged or not."""
        return planned_looks(self.plan)

    @property
    def has_several(self) -> bool:
        """Whether several looks were planned."""
        return len(self.plan) > 1

    @property
    def last(self) -> Look | None:
        """The last look that has been judged; None before the first look."""
        return self.judged[-1] if self.judged else None

    @property
    def level(self) -> float:
        """The level of the verdicts, for all metrics together. Before the first look it is LEVEL:
        the tests of designs and sizes do not wait for a look.
        """
        return self.last.level if self.last else LEVEL

    @property
    def stopped_early(self) -> bool:
        """Whether the study ended before its last look, because every row was decided."""
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
            first = self.next.text.capitalize()
            return f"{first}: no row is judged before all of its runs have ended."
        look = self.last.text.capitalize()
        if self.stopped_early:
            return f"{look}: every row is decided, and the study stops here."
        return f"{look}: {self._state()}; {self._what_follows()}."

    def _state(self) -> str:
        count = len(self.undecided_rows)
        if not count:
            return "every row is decided"
        are = "is" if count == 1 else "are"
        return f"{plural(count, 'row')} {are} undecided ({first_few(self.undecided_rows)})"

    def _what_follows(self) -> str:
        if self.next is None:
            return "this was the last look"
        return f"the study goes on with {self.next.seeds} seeds"

    def error_spent(self, error_rate: float) -> str:
        """The part of the familywise error rate that the judged looks have used; empty before the
        first look and for a single look.
        """
        if self.last is None or not self.has_several:
            return ""
        return (
            f"Error rate: {percent(self.last.spent)} of {percent(error_rate)} is used, "
            f"{percent(self.last.level)} of it at this look."
        )

    def legend_of_verdicts(self, error_rate: float, earlier_rows: Iterable[str]) -> str:
        """The look and the level of the verdicts; empty before the first look and for a single
        look.

        Args:
            error_rate: bound of the familywise error rate.
            earlier_rows: labels of the rows whose verdict was reached at an earlier look.
        """
        if self.last is None or not self.has_several:
            return ""
        text = (
            f"Judged at {self.last.text}, at the level {self.last.level:.3g}; all looks together "
            f"have {error_rate:.3g}. p values are multiplied by {LEVEL / self.last.level:.3g}."
        )
        if labels := ", ".join(earlier_rows):
            text += f" The verdict of an earlier look stays: {labels}."
        return text

    @property
    def legend_of_effects(self) -> str:
        """The look and the level of effects and slopes; empty before the first look and for a
        single look.
        """
        if self.last is None or not self.has_several:
            return ""
        return (
            f"At {self.last.text}, at its level {self.last.level:.3g}: intervals cover at least "
            f"{percent(1 - self.last.level)}, and p values are multiplied by "
            f"{LEVEL / self.last.level:.3g}."
        )

    def as_json(self) -> dict[str, Any]:
        """The looks as JSON values, planned and judged; empty for a single look."""
        if not self.has_several:
            return {}
        looks = {
            "plan": list(self.plan),
            "judged": list(map(Look.as_json, self.judged)),
            "undecided": list(self.undecided_rows) if self.judged else None,
            "stopped_early": self.stopped_early,
        }
        return {"looks": looks}
