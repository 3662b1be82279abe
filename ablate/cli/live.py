"""Live progress of a study: its table filling in a terminal (rich.live), plain lines in a pipe or
file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment, Segments

from ablate.analysis.missing import ENDED
from ablate.config import cost
from ablate.errors import Interrupted
from ablate.formatting import duration, number, plural
from ablate.launch import Slot
from ablate.launch.executor import devices_text
from ablate.plan.plan import epochs_lines, is_drawn
from ablate.plan.progress import (
    Ended,
    ProgressReader,
    StudyProgress,
    run_labels,
    saved_step,
    summary_line,
)
from ablate.report.live_table import live_table
from ablate.report.run_text import progress_line
from ablate.stats.metrics import Metric
from ablate.store import Results, if_readable
from ablate.store.corpora import lengths_in
from ablate.store.records import Score, evaluation_at
from ablate.study import Runs, Study

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

LINE_EVERY_SECONDS = 60.0  # without a terminal: the longest silence while runs train
LOOK_EVERY_SECONDS = 0.5  # while watching
# A frame that took t seconds stays for 9 t: watching costs at most a tenth of a core.
REST = 9.0


class LiveView:
    """Shows the progress of a study: of a launch, or from files alone (`watch`)."""

    def __init__(
        self, study: Study, results: Results, console: Console, runs: Runs | None = None
    ) -> None:
        """Prepare to show some runs of a study; None for those of all rows."""
        self.study, self.results, self.console = study, results, console
        self.runs = runs or study.runs()
        self.decodings = {run.id: run.decodings for run in self.runs}
        self.labels = run_labels(self.runs)
        self.frame: Frame | None = None  # None without a terminal
        self.reader: ProgressReader | None = None
        self.last_line = time.monotonic()
        self.running: set[str] = set()
        self.held_elsewhere: set[str] = set()
        self.rest_until = 0.0
        self.is_watching = False  # a checkpoint may then be of a run that began meanwhile

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self.frame is not None:
            if kind is Interrupted:  # the runs have saved their state meanwhile
                self.rest_until = 0.0
                self._draw(self.frame)
            # A launch that completes prints the final table instead.
            self.frame.stop(keep=kind is not None)

    def announce(self, corpus: Corpus, slots: Sequence[Slot], missing: int) -> None:
        """Log the corpus and the devices, then start the view."""
        pairs = corpus.manifest.pairs
        train = plural(pairs["train"], "record")
        for why, count in corpus.manifest.left_out.items():
            train += f", {count} left out ({why})"
        self.log(f"corpus {corpus.id}: {train}, dev {pairs['dev']:,}, test {pairs['test']:,}")
        for line in corpus.manifest.notes:
            self.log(f"note: {line}")
        for line in self.study.task.notes_on_scores(corpus, self.runs.metrics):
            self.log(f"NOTE: {line}.")
        for line in self._epochs(corpus):
            self.log(line)
        threads = plural(slots[0].threads, "thread")
        if len(slots) * len(slots[0].devices) > 1:
            threads += " each"
        self.log(
            f"{missing} of {plural(len(self.labels), 'run')} to do, {len(slots)} at once on "
            f"{devices_text(slots[0])}, {threads}"
        )
        self.begin()

    def _epochs(self, corpus: Corpus) -> Iterator[str]:
        """Lines on the epochs of the rows that train on a corpus."""
        lengths, epochs = lengths_in(corpus.folder), dict[str, float | None]()
        if lengths is not None and not is_drawn(self.study.data):
            of_base = self.runs.data_of(self.runs.rows[0])
            for row in self.runs.rows:
                if self.runs.data_of(row) == of_base:
                    epochs[row.label] = cost.epochs(row.config, lengths)
        return epochs_lines(epochs)

    def begin(self) -> None:
        """Show the first frame."""
        self.reader = ProgressReader(self.study, self.results, self.runs)
        if is_interactive(self.console):
            self.frame = Frame(self.console)
        self.tick()

    def started(self, run: str) -> None:
        """A worker has started this run."""
        if self.frame is None and run not in self.running:
            step = None if self.is_watching else saved_step(self.results.run(run))
            if step:
                self.log(f"resumed  {self.labels[run]} at step {step}")
            else:
                self.log(f"started  {self.labels[run]}")
        self.running.add(run)

    def held(self, run: str) -> None:
        """Another process trains a run that was started here; said once."""
        if self.frame is None and run not in self.held_elsewhere:
            self.log(f"waiting  {self.labels[run]}: another process trains it")
        self.held_elsewhere.add(run)

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run has ended; `reason` is that of a failure without a message in the run's folder."""
        self.running.discard(run)
        current = self._reader().update(run)
        if self.frame is not None and outcome == "done":
            return  # the table shows it
        result = self._scores(run) if outcome == "done" else self._reason(run, reason)
        progress = if_readable(self.results.run(run).read_progress)
        seconds = progress.seconds if progress else None
        count = f"{current.ended} of {current.runs}{_left(current)}"
        self.log(f"{outcome:8} {self.labels[run]}{result} ({duration(seconds)}; {count})")

    def lost(self, run: str, reason: str) -> None:
        """The worker of a run has ended, and another one goes on."""
        self.log(f"lost     {self.labels[run]}: {reason}; started again")

    def tick(self) -> None:
        """Update the table, or log a line for each running run once a minute."""
        if self.frame is not None:
            self._draw(self.frame)
        elif time.monotonic() - self.last_line >= LINE_EVERY_SECONDS:
            current = self._look()
            for run, state in current.states.items():
                if state == "running":
                    self.log(f"running  {self.labels[run]}: {self._progress(run)}{_left(current)}")

    def _draw(self, frame: Frame) -> None:
        """Draw the table; less often for a large study, which takes long to read."""
        start, size = time.monotonic(), self.console.size
        if start >= self.rest_until:
            is_own = not self.is_watching
            frame.draw(live_table(self._look(), size.width - 1, size.height - 1, is_own=is_own))
            end = time.monotonic()
            self.rest_until = end + REST * (end - start)

    def watch(
        self,
        until: Callable[[], bool] = lambda: False,
        is_retried: Callable[[], bool] = lambda: False,
    ) -> None:
        """Show the study until every run has ended, and keep the last frame. Events are changes
        between two checks.

        `until` ends the view earlier, where nothing works on the study any more; `is_retried` says
        whether a run that has failed is to be tried again, when every run has ended.
        """
        self.is_watching = True
        self.begin()
        before = self._look()
        if self.frame is None and before.ended < len(before.states):
            self.log(summary_line(before))
        for run, state in before.states.items():
            if state == "running":
                self.started(run)
        seconds = 0.0  # that a look takes
        while (before.ended < len(before.states) or is_retried()) and not until():
            time.sleep(max(LOOK_EVERY_SECONDS, REST * seconds))
            start = time.monotonic()
            now = self._look()
            seconds = time.monotonic() - start
            for run, state in now.states.items():
                if state == before.states[run]:
                    continue
                if state == "running":
                    self.started(run)
                elif state in ENDED:
                    self.finished(run, state)
            self.tick()
            if self.frame is None and time.monotonic() - self.last_line >= LINE_EVERY_SECONDS:
                self.log(summary_line(now))  # no run is running
            before = now
        if self.frame is not None:
            self.rest_until = 0.0
            self._draw(self.frame)
            self.frame.stop(keep=True)
        else:
            self.log(
                f"{self.study.name}: {before.ended} of {plural(len(before.states), 'run')}, "
                f"nothing left to do"
            )

    def _look(self) -> StudyProgress:
        """Read the study's progress from its files."""
        return self._reader().read()

    def _reader(self) -> ProgressReader:
        if self.reader is None:
            self.reader = ProgressReader(self.study, self.results, self.runs)
        return self.reader

    def log(self, line: str) -> None:
        """Print a line, above the table in a terminal. Any thread may call this."""
        self.last_line = time.monotonic()
        self.console.print(line, soft_wrap=True)

    def _scores(self, run: str) -> str:
        folder = self.results.run(run)
        result = if_readable(folder.read_result)
        if result is None:  # damaged since: the table says so
            return ""
        for id, decoding in result.decodings.items():
            if id in self.decodings[run]:
                names = dict.fromkeys(("ppl", *self.runs.metrics))
                metrics = [self.study.task.metrics[name] for name in names]
                return f": {_scores_text(decoding.scores, metrics)}"
        # A trial is not decoded.
        perplexity = evaluation_at(folder.metrics, result.chosen_step)
        if perplexity is None:
            return ""
        return f": PPL {perplexity:.2f}"

    def _reason(self, run: str, reason: str) -> str:
        folder = self.results.run(run)
        result = if_readable(folder.read_result)
        if result is not None and result.reason is not None:
            return f" at step {result.steps}: {result.reason}"
        if failure := if_readable(folder.read_failure):
            reason = failure.reason
        if reason:
            reason = f": {reason}"
        return f"{reason}; see {folder.log}"

    def _progress(self, run: str) -> str:
        progress = if_readable(self.results.run(run).read_progress)
        return progress_line(progress) if progress else "starting"


def _left(progress: StudyProgress | Ended) -> str:
    """`, about 2 min left`; empty if it is not known."""
    if progress.seconds_left is None:
        return ""
    return f", about {duration(progress.seconds_left)} left"


class Frame:
    """A view at the bottom of a terminal, drawn again in place; lines scroll by above it."""

    def __init__(self, console: Console) -> None:
        self.console, self.width = console, console.width
        self.lines: list[list[Segment]] = []
        self.live: Live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self.live.start()

    def draw(self, view: RenderableType) -> None:
        """Replace the view. One that has not changed is not written again."""
        options = self.console.options.update(max_width=max(1, self.console.width - 1))
        lines = self.console.render_lines(view, options, pad=False)
        if self.console.width != self.width:
            self._erase_wrapped_rows()
        elif lines == self.lines:
            return
        self.lines = lines
        # The cursor waits on the empty line, where ^C is echoed.
        self.live.update(Group(self._view(), ""), refresh=True)

    def stop(self, keep: bool) -> None:
        """Leave the last view in the terminal, or remove it."""
        self.live.transient = not keep
        self.live.update(self._view())
        self.live.stop()

    def _view(self) -> Segments:
        content: list[Segment] = []
        for line in self.lines:
            content += [*line, Segment.line()]
        return Segments(content)

    def _erase_wrapped_rows(self) -> None:
        """Erase the rows that a narrower terminal adds, which rich does not count."""
        self.width = max(1, self.console.width)
        lengths = [Segment.get_line_length(line) for line in self.lines]
        rows = sum(max(0, length - 1) // self.width for length in lengths)
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * rows
        self.console.control(Control((ControlType.ERASE_IN_LINE, 2), *up))


def is_interactive(console: Console) -> bool:
    """Whether output goes to a terminal that can redraw: no pipe, no file, no CI."""
    return console.file.isatty() and not console.is_dumb_terminal and not os.environ.get("CI")


def _scores_text(scores: Mapping[str, Score], metrics: Iterable[Metric]) -> str:
    """The scores of one run: `PPL 4.92, PPL/char 1.53`."""
    texts = []
    for metric in metrics:
        if metric.name in scores:
            texts.append(f"{metric.title} {number(scores[metric.name].value, metric.digits)}")
    return ", ".join(texts)
