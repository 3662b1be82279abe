"""Copy the metrics logs of runs to dashboards, in threads of the launcher. Workers do not use the
dashboards themselves.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ablate.config import DecodingConfig, RowConfig
from ablate.formatting import ellipsis, setting_text, type_and_line, without_secrets
from ablate.loggers.dashboards import LoggedRun, Point, RunLogger, Start
from ablate.stats.metrics import PPL
from ablate.store import Results, none_if_unreadable
from ablate.store.metrics_log import MetricsTail
from ablate.store.records import Result
from ablate.study import Runs

INTERVAL_SECONDS = 2.0  # between two readings of the logs
END_SECONDS = 15.0  # longest time to send the remaining points after the last run


@dataclass
class _Copy:
    """The copy of a run on a dashboard.

    lines: number of lines of the log that were sent. If the log was cut and written again, copying
        goes on after this number of lines.
    """

    run: LoggedRun
    tail: MetricsTail
    logger: RunLogger | None = None
    lines: int = 0
    finished: bool = False


class Mirror:
    """Copies runs to dashboards, in a thread for each dashboard. If one fails, the other dashboards
    and the training go on.
    """

    def __init__(
        self,
        study: str,
        runs: Runs,
        results: Results,
        loggers: Mapping[str, Start],
        log: Callable[[str], None],
    ) -> None:
        """Prepare the threads, which run during the `with` block. `loggers` has the start functions
        of the dashboards, by name.
        """
        self.study = study
        self.runs = runs
        self.results = results
        self.log = log
        self.decodings = {run.id: run.decodings for run in runs}
        self.ending = threading.Event()
        self.threads: dict[str, threading.Thread] = {}
        for name, start in loggers.items():
            # A daemon thread, so that a dashboard that hangs does not block the end of the command.
            self.threads[name] = threading.Thread(
                target=self._follow, args=(name, start), name=f"log-{name}", daemon=True
            )

    def __enter__(self) -> Mirror:
        for thread in self.threads.values():
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.set()
        for name, thread in self.threads.items():
            thread.join(END_SECONDS)
            if thread.is_alive():
                self.log(
                    f"--log {name}: no answer; the next `ablate run --log {name}` sends the rest"
                )

    def _follow(self, name: str, start: Start) -> None:
        try:
            copies = []
            for run in self._runs():
                copies.append(_Copy(run, MetricsTail(self.results.run(run.id).metrics)))
            is_last_round = False
            while not is_last_round:
                # The last round after the end sends the remaining points.
                is_last_round = self.ending.wait(INTERVAL_SECONDS)
                for copy in copies:
                    if not copy.finished:
                        self._send(start, copy)
            for copy in copies:
                if copy.logger is not None and not copy.finished:
                    copy.logger.finish(None, "")
        except Exception as error:  # training must go on, whatever the library raises
            # Without secrets, because the message may contain the address of a server.
            reason = ellipsis(without_secrets(type_and_line(error)), 200)
            self.log(f"--log {name}: {reason}; training goes on without it")

    def _runs(self) -> list[LoggedRun]:
        names = self.runs.labels
        runs: dict[str, LoggedRun] = {}
        for row in self.runs.rows:
            for run in self.runs.of(row):
                settings = run.config.model_dump(exclude_none=True) | {"seed": run.seed}
                logged = LoggedRun(
                    id=run.id,
                    study=self.study,
                    name=names[run.id],
                    row=row.label,
                    seed=run.seed,
                    settings=settings,
                    decodings=tuple(sorted(self.decodings[run.id])),
                )
                runs.setdefault(run.id, logged)  # a run that rows share is named by the first row
        return list(runs.values())

    def _send(self, start: Start, copy: _Copy) -> None:
        """Send the new lines of a run, and end its record when the run is finished."""
        # Read before the log: if there is a result now, the log is complete.
        result = none_if_unreadable(self.results.run(copy.run.id).read_result)
        points = _new_points(copy)
        if copy.logger is None and (points or result):
            copy.logger = start(self.results.study(self.study), copy.run)
            copy.finished = copy.logger is None
        if copy.logger is None:
            return
        if points:
            copy.logger.log(points)
        wanted = self.decodings[copy.run.id].keys()
        if result and (result.outcome == "diverged" or wanted <= result.decodings.keys()):
            copy.logger.finish(self._scores(result, copy.run), result.outcome)
            copy.finished = True

    def _scores(self, result: Result, run: LoggedRun) -> dict[str, float]:
        """The scores of a run by name, such as `final_bleu`. From the second decoding on, the names
        contain the settings in which it differs from the first. For a run that diverged, scores are
        NaN, so that means over runs on the dashboard are NaN, too, and do not leave it out.
        """
        scores: dict[str, float] = {}
        decodings = self.decodings[run.id]
        for id, config in decodings.items():
            first = next(iter(decodings.values()))
            measured = result.decodings[id].scores if id in result.decodings else {}
            for name in dict.fromkeys((PPL.name, *self.runs.metrics)):
                title = f"final_{name}{_suffix(config, first)}"
                if result.outcome == "diverged":
                    scores[title] = math.nan
                elif name in measured:
                    scores[title] = measured[name].value
        return scores


def _suffix(config: RowConfig, first: RowConfig) -> str:
    """The decoding settings in which a decoding differs from the first one of its run."""
    text = ""
    for name in DecodingConfig.model_fields:
        value = getattr(config, name)
        if value != getattr(first, name):
            text += f" {name}={setting_text(value)}"
    return text


def _new_points(copy: _Copy) -> list[Point]:
    """The points of the lines that were not sent yet."""
    first, lines = copy.tail.new_lines()
    points: list[Point] = []
    for line in lines[max(0, copy.lines - first) :]:
        points.append((line.step, line.model_dump(exclude={"step", "tokens"}, exclude_none=True)))
    copy.lines += len(points)
    return points
