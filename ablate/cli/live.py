"""What is shown while a study is worked at: its table filling in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from ablate.cli.screen import Screen, can_repaint
from ablate.cli.status import where
from ablate.formatting import duration, plural
from ablate.report.progress import ENDED, Standing, Standings, run_labels
from ablate.store import Results
from ablate.store.status import failure_of, read_progress
from ablate.study import Study

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.data.corpus import Corpus
    from ablate.launch.devices import Place

SAY_EVERY_SECONDS = 60.0  # where lines are printed, between two of them
LOOK_EVERY_SECONDS = 0.5
REST = 9.0  # times as long as a look has taken, until the next


class Live:
    """Watches a study and tells of it: as a launcher's watcher, or by itself from its files alone."""

    def __init__(self, study: Study, results: Results, console: Console) -> None:
        self.study, self.results, self.console = study, results, console
        self.labels = run_labels(study)
        self.screen: Screen | None = None
        self.standings: Standings | None = None
        self.said = time.monotonic()
        self.begun: set[str] = set()
        self.later: deque[str] = deque()
        self.rest_until = 0.0

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say_what_waits()
        if self.screen is not None:
            self.screen.close()

    def announce(self, corpus: Corpus, places: list[Place], missing: int) -> None:
        """The corpus is ready and work begins."""
        left_out = "".join(f", {count} left out ({why})" for why, count in corpus.manifest["left_out"].items())
        pairs = corpus.manifest["pairs"]
        self.say(
            f"corpus {corpus.id}: {pairs['train']:,} pairs{left_out}, dev {pairs['dev']:,}, test {pairs['test']:,}"
        )
        for line in corpus.manifest.get("noticed", ()):
            self.say(f"note: {line}")
        device, threads = places[0].device.partition(":")[0], places[0].threads
        each = " each" if len(places) > 1 else ""
        self.say(
            f"{missing} of {plural(len(self.labels), 'run')} to do, {len(places)} at once on {device}, "
            f"{plural(threads, 'thread')}{each}"
        )
        self.begin()

    def begin(self) -> None:
        """From here on it is looked at again and again."""
        self.standings = Standings(self.study, self.results)
        if can_repaint(self.console):
            self.screen = Screen(self.console)
        self.tick()

    def started(self, run: str) -> None:
        """A worker was given this run."""
        if self.screen is None and run not in self.begun:
            self.say(f"started  {self.labels[run]}")
        self.begun.add(run)

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run is done, diverged or failed; `reason`: why, where its folder cannot say."""
        self.begun.discard(run)
        standing = self._look()
        if self.screen is not None and outcome == "done":
            return  # its row tells
        scores = self._scores(run) if outcome == "done" else self._why(run, reason)
        seconds = (read_progress(self.results.run(run)) or {}).get("seconds")
        left = f", about {duration(standing.seconds_left)} left" if standing.seconds_left is not None else ""
        of = f"{standing.ended} of {len(standing.states)}{left}"
        self.say(f"{outcome:8} {self.labels[run]}{scores} ({duration(seconds)}; {of})")

    def tick(self) -> None:
        """Some time has passed."""
        self._say_what_waits()
        if self.screen is not None:
            self._show(self.screen)
        elif time.monotonic() - self.said >= SAY_EVERY_SECONDS:
            standing = self._look()
            left = f", about {duration(standing.seconds_left)} left" if standing.seconds_left is not None else ""
            for run, state in standing.states.items():
                if state == "running":
                    self.say(f"at work  {self.labels[run]}: {self._where(run)}{left}")

    def _show(self, screen: Screen) -> None:
        """Draw the table; a study of thousands of runs is looked at less often, for that takes its time."""
        from ablate.report.progress_text import lines

        began, size = time.monotonic(), self.console.size
        if began >= self.rest_until:
            screen.show(lines(self._look(), size.width - 1, size.height - 1))
            now = time.monotonic()
            self.rest_until = now + REST * (now - began)

    def watch(self) -> None:
        """Look until every run has ended, and let the last picture stand; events are what changes between two looks."""
        self.begin()
        before = self._look()
        for run, state in before.states.items():
            if state == "running":
                self.started(run)
        while before.ended < len(before.states):
            time.sleep(LOOK_EVERY_SECONDS)
            now = self._look()
            for run, state in now.states.items():
                if state == before.states[run]:
                    continue
                if state == "running":
                    self.started(run)
                elif state in ENDED:
                    self.finished(run, state)
            self.tick()
            before = now
        if self.screen is not None:
            self.rest_until = 0.0
            self._show(self.screen)
            self.screen.leave()
        else:
            self.say(f"{self.study.name}: {before.ended} of {plural(len(before.states), 'run')}, nothing left to do")

    def _look(self) -> Standing:
        """The standing, no older than a moment."""
        if self.standings is None:
            self.standings = Standings(self.study, self.results)
        return self.standings.look()

    def say_later(self, line: str) -> None:
        """Print a line when nothing else is being printed; may be called from any thread."""
        self.later.append(line)

    def _say_what_waits(self) -> None:
        while self.later:
            self.say(self.later.popleft())

    def say(self, line: str) -> None:
        """Print a line, above the table where there is one."""
        self.said = time.monotonic()
        if self.screen is not None:
            self.screen.say(line)
        else:
            self.console.print(line, soft_wrap=True, markup=False)

    def _scores(self, run: str) -> str:
        result = self.results.run(run).read_result() or {}
        found = [d for id, d in result.get("decodings", {}).items() if id in self.study.decodings[run]]
        return f": PPL {found[0]['ppl']:.2f}, BLEU {found[0]['bleu']:.1f}" if found else ""

    def _why(self, run: str, reason: str) -> str:
        folder = self.results.run(run)
        result = folder.read_result()
        if result is not None and "reason" in result:
            return f" at step {result['steps']}: {result['reason']}"
        reason = failure_of(folder) or reason
        return f": {reason}; see {folder.log}" if reason else f"; see {folder.log}"

    def _where(self, run: str) -> str:
        progress = read_progress(self.results.run(run))
        return where(progress) if progress else "starting"
