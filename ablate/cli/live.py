"""Live progress of a study: a table in a terminal, lines of text in a pipe or file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment

from ablate.analysis.missing import ENDED
from ablate.cli.launch_lines import corpus_lines, devices_line, failure_text, scores_text
from ablate.errors import Interrupted
from ablate.formatting import duration, plural
from ablate.launch.executor import Slot
from ablate.plan.progress import ProgressReader, RunCounts, StudyProgress, saved_step
from ablate.report.live_table import live_table, noun_of, summary_line
from ablate.report.run_text import progress_line
from ablate.stdio import print_line
from ablate.store import Results, none_if_unreadable
from ablate.study import Runs

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

LINE_EVERY_SECONDS = 60.0  # without a terminal: longest time without a line while runs train
READ_EVERY_SECONDS = 0.5  # while watching: shortest time between two readings of the files
# After a reading that took t seconds, wait 9 t: the view then costs at most a tenth of a core.
REST = 9.0


class LiveView:
    """Shows the progress of runs of a study: during a launch in this process, or during the work of
    other processes (`watch`).
    """

    def __init__(self, runs: Runs, results: Results, console: Console) -> None:
        """Prepare to show these runs."""
        self.runs, self.results, self.console = runs, results, console
        self.study = runs.study
        self.by_id = {run.id: run for run in self.runs}
        self.labels = self.runs.labels
        self.frame: Frame | None = None  # None without a terminal
        self.last_line = time.monotonic()
        self.next_reading = 0.0
        self.running: set[str] = set()
        self.held_elsewhere: set[str] = set()
        self.is_watching = False  # whether other processes train the runs

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.frame is not None:
            if kind is Interrupted:  # show the checkpoints that the runs have just saved
                self._show(self._read())
            # Not kept after a complete launch, which prints the final table.
            self.frame.stop(keep=kind is not None)

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Log the corpus and the devices, then start the view."""
        for line in corpus_lines(self.runs, corpus):
            self.log(line)
        self.log(devices_line(slots, missing, plural(len(self.labels), noun_of(self.runs))))
        self.begin()

    def begin(self) -> StudyProgress:
        """Show the first frame, and return the progress that it shows."""
        if is_interactive(self.console):
            self.frame = Frame(self.console)
        progress = self._read()
        self._show(progress)
        return progress

    def started(self, run: str) -> None:
        """Log a run that a worker starts. Another process may hold the run; then `held` follows."""
        if self.frame is None and run not in self.running:
            # While watching, a checkpoint may come from a run that began between two readings.
            step = None if self.is_watching else saved_step(self.results.run(run))
            if step:
                self.log(f"resuming {self.labels[run]}, last saved at step {step}")
            else:
                self.log(f"starting {self.labels[run]}")
        self.running.add(run)

    def held(self, run: str) -> None:
        """Log, once for each run, that another process trains it."""
        if self.frame is None and run not in self.held_elsewhere:
            self.log(f"waiting  {self.labels[run]}: another process trains it")
        self.held_elsewhere.add(run)

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """Log a run that has ended, with `reason` if its folder does not say why it failed."""
        self.running.discard(run)
        current, folder = self.reader.update(run), self.results.run(run)
        if outcome != "done":
            result = failure_text(folder, reason)
        elif self.frame is not None:
            return  # the table shows it
        else:
            names = dict.fromkeys(("ppl", *self.runs.metrics))
            metrics = [self.study.task.metrics[name] for name in names]
            result = scores_text(folder, self.by_id[run], metrics)
        progress = none_if_unreadable(folder.read_progress)
        seconds = duration(progress.seconds if progress else None)
        count = f"{current.ended} of {current.runs}{_left(current)}"
        self.log(f"{outcome:8} {self.labels[run]}{result} ({seconds}; {count})")

    def lost(self, run: str, reason: str) -> None:
        """Log a run whose worker has died, and which starts again."""
        self.log(f"lost     {self.labels[run]}: {reason}; started again")

    def tick(self) -> None:
        """Update the table; without a terminal, log a line for each running run once a minute."""
        is_due = self.frame is not None or self._is_silent()
        if is_due and time.monotonic() >= self.next_reading:
            self._show(self._read())

    def watch(
        self,
        until: Callable[[], bool] = lambda: False,
        is_retried: Callable[[], bool] = lambda: False,
    ) -> None:
        """Show the runs until every run has ended, and keep the last frame. Events are the changes
        between two readings of the files.

        Args:
            until: whether to end earlier, because nothing works on the study any more.
            is_retried: whether to go on although every run has ended, because a failed run will be
                tried again.
        """
        self.is_watching = True
        before = self.begin()
        if self.frame is None and before.ended < len(before.states):
            self.log(summary_line(before))
        for run, state in before.states.items():
            if state == "running":
                self.started(run)
        while (before.ended < len(before.states) or is_retried()) and not until():
            time.sleep(max(READ_EVERY_SECONDS, self.next_reading - time.monotonic()))
            now = self._read()
            for run, state in now.states.items():
                if state == before.states[run]:
                    continue
                if state == "running":
                    self.started(run)
                elif state in ENDED:
                    self.finished(run, state)
            self._show(now)
            before = now
        if self.frame is not None:
            self._show(self._read())
            self.frame.stop(keep=True)
        else:
            ended = f"{before.ended} of {plural(len(before.states), noun_of(self.runs))}"
            self.log(f"{self.study.name}: {ended}, nothing left to do")

    @cached_property
    def reader(self) -> ProgressReader:
        """The reader of the files of the runs."""
        return ProgressReader(self.runs, self.results)

    def _read(self) -> StudyProgress:
        start = time.monotonic()
        progress = self.reader.read()
        end = time.monotonic()
        self.next_reading = end + REST * (end - start)
        return progress

    def _show(self, progress: StudyProgress) -> None:
        """Draw the table; without a terminal, log lines if there was none for a minute."""
        if self.frame is not None:
            width, height = self.console.size
            table = live_table(progress, width, height - 1, is_launcher=not self.is_watching)
            self.frame.draw(table)
        elif self._is_silent():
            working = [run for run, state in progress.states.items() if state == "running"]
            for run in working:
                report = none_if_unreadable(self.results.run(run).read_progress)
                text = progress_line(report) if report else "starting"
                self.log(f"running  {self.labels[run]}: {text}{_left(progress)}")
            if self.is_watching and not working:
                self.log(summary_line(progress))

    def _is_silent(self) -> bool:
        return time.monotonic() - self.last_line >= LINE_EVERY_SECONDS

    def log(self, line: str) -> None:
        """Print a line, above the table in a terminal. Any thread may call this."""
        self.last_line = time.monotonic()
        print_line(self.console, line)


def _left(progress: StudyProgress | RunCounts) -> str:
    """Text such as `, about 2 min left`; empty if the time left is not known."""
    if progress.seconds_left is None:
        return ""
    return f", about {duration(progress.seconds_left)} left"


class Frame:
    """A view at the bottom of a terminal that is redrawn in place. Lines are printed above it."""

    def __init__(self, console: Console) -> None:
        self.console, self.width = console, console.width
        self.view: RenderableType = ""
        self.live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self.live.start()

    def draw(self, view: RenderableType) -> None:
        """Replace the view."""
        if self.console.width < self.width:
            self._erase_wrapped_rows()
        self.view, self.width = view, self.console.width
        # The cursor waits on the empty line, where ^C is echoed.
        self.live.update(Group(view, ""), refresh=True)

    def stop(self, keep: bool) -> None:
        """Leave the last view in the terminal, or remove it."""
        self.live.transient = not keep
        self.live.update(self.view)
        self.live.stop()

    def _erase_wrapped_rows(self) -> None:
        """Erase the rows into which a terminal that became narrower has wrapped the view. rich does
        not know of these rows.
        """
        options = self.console.options.update_width(self.width)
        rows = 0
        for line in self.console.render_lines(self.view, options, pad=False):
            rows += max(0, Segment.get_line_length(line) - 1) // self.console.width
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * rows
        self.console.control(Control((ControlType.ERASE_IN_LINE, 2), *up))


def is_interactive(console: Console) -> bool:
    """Whether the console is a terminal that can be redrawn, and not the log of a CI."""
    return console.file.isatty() and not console.is_dumb_terminal and not os.environ.get("CI")
