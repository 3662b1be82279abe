"""What `ablate run` shows while it works: a small live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from ablate.cli.status import where
from ablate.launch.devices import Place
from ablate.report.plan import Plan, plan_of
from ablate.report.plan_text import plain_table
from ablate.report.units import duration
from ablate.store import Results
from ablate.store.states import read_progress
from ablate.study import Run, Study

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live as RichLive

    from ablate.data import Corpus

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
        self.plan: Plan | None = None
        self.work_before = 0.0

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
        self.plan = plan_of(self.study, self.results)
        self.ended = self.total - missing
        self.work_before = self._work_done()
        self.began = time.monotonic()
        left_out = "".join(f", {count} left out ({why})" for why, count in corpus.manifest["left_out"].items())
        pairs = corpus.manifest["pairs"]
        self._say(
            f"corpus {corpus.id}: {pairs['train']:,} pairs{left_out}, dev {pairs['dev']:,}, test {pairs['test']:,}"
        )
        device = places[0].device.partition(":")[0]
        self._say(
            f"{missing} of {self.total} runs to do, {len(places)} at once on {device}, {places[0].threads} threads each"
        )
        if self.console.is_terminal:
            from rich.live import Live as RichLive

            self.view = RichLive(console=self.console, auto_refresh=False, transient=True)
            self.view.start()

    def started(self, run: str) -> None:
        """A worker was given this run."""
        self.active[run] = time.monotonic()
        if self.view is None:
            self._say(f"started  {self.labels[run]}")

    def finished(self, run: str, outcome: str) -> None:
        """A run is done, diverged or failed."""
        began = self.active.pop(run, time.monotonic())
        self.ended += 1
        scores = self._scores(run) if outcome == "done" else ""
        took = duration(time.monotonic() - began)
        self._say(f"{outcome:8} {self.labels[run]}{scores} ({took}; {self.ended} of {self.total}{self._eta()})")

    def tick(self) -> None:
        """Some time has passed."""
        now = time.monotonic()
        if self.view is not None:
            self.view.update(self._picture(), refresh=True)
        elif now - self.said >= SAY_EVERY_SECONDS:
            for run in self.active:
                self._say(f"at work  {self.labels[run]}: {self._where(run)}{self._eta()}")

    def _say(self, line: str) -> None:
        self.said = time.monotonic()
        self.console.print(line, soft_wrap=True, markup=False)

    def _scores(self, run: str) -> str:
        result = self.results.run(run).read_result() or {}
        found = list(result.get("decodings", {}).values())
        return f": PPL {found[0]['ppl']:.2f}, BLEU {found[0]['bleu']:.1f}" if found else ""

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
        share = self._share()
        bar = Table.grid()
        bar.add_row(ProgressBar(total=1.0, completed=share, width=min(60, self.console.width)))
        line = Text(f"{self.study.name}: {self.ended} of {self.total} runs{self._eta()}", style="bold")
        return Group(line, bar, table)

    def _work(self) -> float:
        """FLOPs of the whole study, or its runs where their steps are not known."""
        assert self.plan is not None
        return sum(row.flops or 1.0 for row, _ in self.plan.runs.values())

    def _work_done(self) -> float:
        """Of that, what is done."""
        if self.plan is None:
            return 0.0
        done = 0.0
        for id, (row, _) in self.plan.runs.items():
            folder = self.results.run(id)
            if folder.result.exists():
                done += row.flops or 1.0
            elif row.steps and (progress := read_progress(folder)) and progress.get("step"):
                done += row.flops_per_step * min(progress["step"], row.steps)
        return done

    def _share(self) -> float:
        return self._work_done() / self._work() if self.plan else 0.0

    def _eta(self) -> str:
        """`, 3 min left`, at the rate of this launch so far; empty until there is one."""
        if self.plan is None:
            return ""
        done, elapsed = self._work_done(), time.monotonic() - self.began
        left = self._work() - done
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
