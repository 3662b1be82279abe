"""What `ablate run` shows while it works: a small live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from ablate.cli.status import where
from ablate.launch.devices import Place
from ablate.report.plan import PlanRow, plan_of
from ablate.report.plan_text import plain_table
from ablate.report.units import duration
from ablate.store import Results
from ablate.store.states import failure_of, read_progress
from ablate.study import Run, Study

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live as RichLive

    from ablate.data.corpus import Corpus

SAY_EVERY_SECONDS = 60.0  # where lines are printed, between two of them


class Live:
    """Watches a launch and tells of it."""

    def __init__(self, study: Study, results: Results, console: Console) -> None:
        self.study, self.results, self.console = study, results, console
        self.labels = _labels(study)
        self.total = len(self.labels)
        self.ended = 0
        self.active: dict[str, float] = {}  # run -> when it started
        self.view: RichLive | None = None
        self.said = self.began = time.monotonic()
        self.rows: dict[str, PlanRow] = {}  # of each run, once work begins
        self.work = self.work_before = self.work_ended = 0.0  # FLOPs: in all, at the start, of ended runs

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.view is not None:
            self.view.update("", refresh=True)
            self.view.stop()

    def announce(self, corpus: Corpus, places: list[Place], missing: int) -> None:
        """The corpus is ready and work begins."""
        runs = plan_of(self.study, self.results).runs
        self.rows = {id: row for id, (row, _) in runs.items()}
        self.ended = self.total - missing
        self.work = sum(row.flops or 1.0 for row in self.rows.values())
        self.work_ended = sum(row.flops or 1.0 for row, state in runs.values() if state in ("done", "diverged"))
        self.work_before = self.work_ended + sum(
            self._begun(id) for id, (_, state) in runs.items() if state == "interrupted"
        )
        self.began = time.monotonic()
        left_out = "".join(f", {count} left out ({why})" for why, count in corpus.manifest["left_out"].items())
        pairs = corpus.manifest["pairs"]
        self.say(
            f"corpus {corpus.id}: {pairs['train']:,} pairs{left_out}, dev {pairs['dev']:,}, test {pairs['test']:,}"
        )
        for line in corpus.manifest.get("noticed", ()):
            self.say(f"note: {line}")
        device = places[0].device.partition(":")[0]
        self.say(
            f"{missing} of {self.total} runs to do, {len(places)} at once on {device}, {places[0].threads} threads each"
        )
        if self.console.is_terminal:
            from rich.live import Live as RichLive

            self.view = RichLive(console=self.console, auto_refresh=False, transient=True)
            self.view.start()

    def started(self, run: str) -> None:
        """A worker was given this run."""
        again = run in self.active
        self.active[run] = time.monotonic()
        if self.view is None and not again:
            self.say(f"started  {self.labels[run]}")

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        """A run is done, diverged or failed; `reason`: why, where its folder cannot say."""
        began = self.active.pop(run, time.monotonic())
        self.ended += 1
        self.work_ended += self.rows[run].flops or 1.0
        scores = self._scores(run) if outcome == "done" else self._why(run, reason) if outcome == "failed" else ""
        took = duration(time.monotonic() - began)
        self.say(f"{outcome:8} {self.labels[run]}{scores} ({took}; {self.ended} of {self.total}{self._eta()})")

    def tick(self) -> None:
        """Some time has passed."""
        now = time.monotonic()
        if self.view is not None:
            self.view.update(self._picture(), refresh=True)
        elif now - self.said >= SAY_EVERY_SECONDS:
            for run in self.active:
                self.say(f"at work  {self.labels[run]}: {self._where(run)}{self._eta()}")

    def say(self, line: str) -> None:
        self.said = time.monotonic()
        self.console.print(line, soft_wrap=True, markup=False)

    def _scores(self, run: str) -> str:
        result = self.results.run(run).read_result() or {}
        found = list(result.get("decodings", {}).values())
        return f": PPL {found[0]['ppl']:.2f}, BLEU {found[0]['bleu']:.1f}" if found else ""

    def _why(self, run: str, reason: str) -> str:
        folder = self.results.run(run)
        reason = failure_of(folder) or reason
        return f": {reason}; see {folder.log}" if reason else f"; see {folder.log}"

    def _where(self, run: str) -> str:
        progress = read_progress(self.results.run(run))
        return where(progress) if progress else "starting"

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = plain_table("running", "")
        for run in list(self.active):
            table.add_row(Text(self.labels[run]), Text(self._where(run), overflow="ellipsis", no_wrap=True))
        share = self._work_done() / self.work if self.work else 0.0
        bar = Table.grid()
        bar.add_row(ProgressBar(total=1.0, completed=share, width=min(60, self.console.width)))
        line = Text(f"{self.study.name}: {self.ended} of {self.total} runs{self._eta()}", style="bold")
        return Group(line, bar, table)

    def _begun(self, run: str) -> float:
        """FLOPs that a run has behind it."""
        row, progress = self.rows[run], read_progress(self.results.run(run))
        return row.flops_per_step * min(progress["step"] or 0, row.steps or 0) if progress else 0.0

    def _work_done(self) -> float:
        return self.work_ended + sum(self._begun(run) for run in self.active)

    def _eta(self) -> str:
        """`, 3 min left`, at the rate of this launch so far; empty until there is one."""
        done, elapsed = self._work_done(), time.monotonic() - self.began
        left = self.work - done
        if done <= self.work_before or left <= 0 or elapsed < 5:
            return ""
        return f", {duration(elapsed * left / (done - self.work_before))} left"


def _labels(study: Study) -> dict[str, str]:
    """What each run is called: the first row that it belongs to, and its seed where there are several."""
    labels: dict[str, str] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            labels.setdefault(run.id, _label(row.label, run, study))
    return labels


def _label(label: str, run: Run, study: Study) -> str:
    return f"{label} seed {run.seed}" if len(study.seeds) > 1 else label
