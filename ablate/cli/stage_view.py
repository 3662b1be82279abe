"""Shows the stages of a study while they are executed, and copies their metrics to loggers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from ablate.analysis.stages import Stage
from ablate.cli.events import Events
from ablate.cli.live import LiveView
from ablate.loggers import Mirror, Start
from ablate.stdio import print_line
from ablate.store import Results


@dataclass
class StageView:
    """Shows the stages of a study, and copies its metrics to loggers meanwhile.

    stage: the stage that is shown now, or was shown last.
    events: prints events for programs; None for people.
    """

    stage: Stage
    results: Results
    console: Console
    loggers: Mapping[str, Start]
    events: Events | None = None

    @contextmanager
    def show(self, stage: Stage) -> Iterator[LiveView]:
        """Show the live progress of a stage, and copy its metrics, until the context ends."""
        self.stage = stage
        if self.events is not None:
            self.events.stage(stage, self.results)
        with (
            LiveView(stage.runs, self.results, self.console) as live,
            Mirror(stage.study.name, stage.logged, self.results, self.loggers, live.log),
        ):
            yield live

    def copy_metrics(self, stage: Stage) -> None:
        """Copy the metrics of finished runs to loggers, which may be new."""
        if self.events is not None:
            self.events.stage(stage, self.results)
        with Mirror(stage.study.name, stage.logged, self.results, self.loggers, self.log):
            pass

    def log(self, line: str) -> None:
        """Print a line between two stages."""
        print_line(self.console, line)
