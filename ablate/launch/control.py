"""What the scheduler asks and tells during a launch: when to start runs and when to end, and what
has happened.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ablate.launch.executor import Slot

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


class Watcher(Protocol):
    """Receives the events of a launch. Runs are named by their ids."""

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Called before the first run starts. The corpus is base's."""

    def log(self, line: str) -> None:
        """Called with lines about the preparation of corpora, and about repairs of damage."""

    def started(self, run: str) -> None:
        """Called when a run is submitted."""

    def held(self, run: str) -> None:
        """Called when another launcher holds a submitted run. It is submitted again later."""

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """Called when a run is done, diverged or failed, or if it cannot continue on this machine.
        `reason` is the one-line reason that the worker gave; empty without one.
        """

    def lost(self, run: str, reason: str) -> None:
        """Called when the worker of a run has died. The run starts again."""

    def tick(self) -> None:
        """Called about twice a second."""


class Control:
    """Decides when a launch starts runs, and when it ends. By default, it goes on until every run
    has ended.

    signals: signals that ask all workers to save and exit.
    idle_seconds: seconds to wait for runs of other launchers, with no other work, before the launch
        ends.
    """

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    idle_seconds = math.inf

    def may_start(self) -> bool:
        """Whether another run may start. If not, the launch ends after the runs in progress."""
        return True

    def must_stop(self) -> bool:
        """Whether all workers must save and exit now. Called about twice a second."""
        return False

    def on_signal(self, number: int) -> None:
        """Called with each signal."""


class Deadline(Control):
    """Starts runs until a deadline, such as the end of a budget."""

    def __init__(self, has_time: Callable[[], bool]) -> None:
        """Prepare; `has_time` is called before each run."""
        self.has_time = has_time

    def may_start(self) -> bool:
        """Whether there is time for another run to start."""
        return self.has_time()
