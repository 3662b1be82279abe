"""Copies the metrics logs of runs to loggers, in threads of the launching process.

An interrupted run cuts its log back to its last checkpoint and writes the same lines again. The
number of lines already sent is therefore enough to send every line once. Workers do not use
loggers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config import RowConfig
from ablate.config.metrics import PPL
from ablate.formatting import ellipsis
from ablate.loggers.base import LoggedRun, Logger, Point, RunLogger
from ablate.plan.progress import run_labels
from ablate.store import Results
from ablate.store.records import Result
from ablate.study import Study

EVERY_SECONDS = 2.0
END_SECONDS = 15.0  # for the remaining points, after the last run


@dataclass
class _Followed:
    """A run, and the part of its log that a logger has received."""

    run: LoggedRun
    logger: RunLogger | None = None
    sent: int = 0  # lines
    # Size and modification time of the log when it was last read
    seen: tuple[int, int] | None = None
    closed: bool = False


class Mirror:
    """A thread for each logger. A logger that fails ends its own thread only."""

    def __init__(
        self,
        study: Study,
        results: Results,
        loggers: Mapping[str, Callable[[Path], Logger]],
        log: Callable[[str], None],
    ) -> None:
        """Prepare the threads; they start with the `with` block.

        Args:
            study: the study whose runs are logged.
            results: the results root with their metrics logs.
            loggers: factories by name, from `select_loggers`.
            log: prints a line; called from any thread.
        """
        self.study, self.results, self.log = study, results, log
        self.decodings = {run.id: run.decodings for run in study.runs()}
        self.ending = threading.Event()
        self.threads = {
            name: threading.Thread(
                target=self._follow, args=(name, factory), name=f"log-{name}", daemon=True
            )
            for name, factory in loggers.items()
        }

    def __enter__(self) -> Mirror:
        for thread in self.threads.values():
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.set()
        # Threads are daemons: a dashboard that does not answer must not keep the command from
        # ending.
        for name, thread in self.threads.items():
            thread.join(END_SECONDS)
            if thread.is_alive():
                self.log(
                    f"--log {name}: no answer; the next `ablate run --log {name}` sends the rest"
                )

    def _follow(self, name: str, factory: Callable[[Path], Logger]) -> None:
        try:
            logger = factory(self.results.study(self.study.name))
            runs = [_Followed(run) for run in self._runs()]
            last = False
            while not last:
                # After the end one more round, for the points since the last one.
                last = self.ending.wait(EVERY_SECONDS)
                for followed in runs:
                    self._send(logger, followed)
            for followed in runs:
                if followed.logger is not None and not followed.closed:
                    followed.logger.close(None)
        except Exception as error:  # any failure of a logger's library: the training must go on
            reason = ellipsis((str(error).strip().splitlines() or [""])[0], 200)
            self.log(f"--log {name}: {type(error).__name__}: {reason}; training goes on without it")

    def _runs(self) -> list[LoggedRun]:
        names = run_labels(self.study)
        # Reversed, so that a run of several rows is named by the first.
        rows = {run.id: row for row in reversed(self.study.rows) for run in self.study.runs_of(row)}
        return [
            LoggedRun(
                run.id,
                self.study.name,
                names[run.id],
                rows[run.id].label,
                run.seed,
                {**_settings(run.config), "seed": run.seed},
                tuple(sorted(run.decodings)),
            )
            for run in self.study.runs()
        ]

    def _send(self, logger: Logger, followed: _Followed) -> None:
        """Send the new lines of a run, and close its record when the run is finished."""
        if followed.closed:
            return
        folder = self.results.run(followed.run.id)
        result = folder.read_result()  # read before the log, which is then complete
        lines = self._new_lines(folder.metrics, followed)
        if followed.logger is None and (lines or result):
            followed.logger = logger.open(followed.run)
            if followed.logger is None:
                followed.closed = True
                return
            lines = lines[followed.logger.known :]
        if followed.logger is not None and lines:
            followed.logger.add([_point(line) for line in lines])
        if followed.logger is None or result is None:
            return
        decodings = self.decodings[followed.run.id]
        if result.outcome == "diverged" or decodings.keys() <= result.decodings.keys():
            followed.logger.close(_scores(result, self.study.metrics, decodings))
            followed.closed = True

    def _new_lines(self, file: Path, followed: _Followed) -> list[bytes]:
        """The lines after those that were sent."""
        try:
            state = file.stat()
            now = (state.st_size, state.st_mtime_ns)
            if now == followed.seen:
                return []
            content = file.read_bytes()
        except FileNotFoundError:
            return []
        # Whole lines only: a worker may be writing the last one.
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        new = lines[followed.sent :]
        followed.seen, followed.sent = now, max(followed.sent, len(lines))
        return new


def _settings(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump().items() if value is not None}


def _point(line: bytes) -> Point:
    values = json.loads(line)
    return Point(
        values.pop("step"), {name: value for name, value in values.items() if name != "tokens"}
    )


def _scores(
    result: Result, metrics: Sequence[str], decodings: Mapping[str, RowConfig]
) -> dict[str, float]:
    """`final_` and the metric's name -> score; from the second decoding on with beam, alpha and
    averaging.
    """
    names = dict.fromkeys((PPL.name, *metrics))
    final: dict[str, float] = {}
    for number, (id, config) in enumerate(decodings.items()):
        scores = result.decodings[id].scores if id in result.decodings else {}
        suffix = f" beam={config.beam} alpha={config.alpha} average={config.average_checkpoints}"
        if config.length_penalty != "gnmt":
            suffix += f" penalty={config.length_penalty}"
        suffix = suffix if number else ""
        final |= {f"final_{name}{suffix}": scores[name].value for name in names if name in scores}
    return final
