"""Brings the runs' own logs to loggers, from a thread beside the launcher.

A run's metrics log is the same however often it is interrupted, so its number says which line a logger has
had last: what is cut back and written again is not sent again. Workers know nothing of loggers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.loggers.interface import LoggedRun, Logger, Point, Sink
from ablate.report.progress import run_labels
from ablate.store import Results
from ablate.store.files import read_json
from ablate.study import Study

EVERY_SECONDS = 2.0
PATIENCE_SECONDS = 15.0  # for what is left to send at the end


@dataclass
class _Followed:
    """A run, and how far a logger has it."""

    run: LoggedRun
    sink: Sink | None = None
    sent: int = 0  # lines
    seen: tuple[int, int] | None = None  # size and time of the log when it was last read
    closed: bool = False


class Mirror:
    """Threads, one a logger, that end by themselves when they fail."""

    def __init__(
        self,
        study: Study,
        results: Results,
        loggers: Mapping[str, Callable[[Path], Logger]],
        say: Callable[[str], None],
    ) -> None:
        """Set up.

        Args:
            study: whose runs are mirrored.
            results: where their logs are.
            loggers: by name, what makes each for the study's folder.
            say: takes a line for people, from any thread.
        """
        self.study, self.results, self.say = study, results, say
        self.ending = threading.Event()
        self.threads = {
            name: threading.Thread(target=self._follow, args=(name, make), name=f"log-{name}", daemon=True)
            for name, make in loggers.items()
        }

    def __enter__(self) -> Mirror:
        for thread in self.threads.values():
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.set()
        for name, thread in self.threads.items():
            thread.join(PATIENCE_SECONDS)
            if thread.is_alive():
                self.say(f"--log {name}: does not answer; the next `ablate run --log {name}` brings what is missing")

    def _follow(self, name: str, make: Callable[[Path], Logger]) -> None:
        try:
            logger = make(self.results.study(self.study.name))
            runs = [_Followed(run) for run in self._runs()]
            last = False
            while not last:
                last = self.ending.wait(EVERY_SECONDS)
                for followed in runs:
                    self._bring(logger, followed)
            for followed in runs:
                if followed.sink is not None and not followed.closed:
                    followed.sink.close(None)
        except Exception as error:  # whatever another library does: training is worth more than its picture
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            self.say(f"--log {name}: {type(error).__name__}: {reason}; training goes on without it")

    def _runs(self) -> list[LoggedRun]:
        names = run_labels(self.study)
        rows = {run.id: row for row in reversed(self.study.rows) for run in self.study.runs_of(row)}
        return [
            LoggedRun(
                run.id,
                self.study.name,
                names[run.id],
                rows[run.id].label,
                run.seed,
                {**_settings(run.config), "seed": run.seed},
                tuple(sorted(self.study.decodings[run.id])),
            )
            for run in self.study.runs()
        ]

    def _bring(self, logger: Logger, followed: _Followed) -> None:
        """Send what is new of a run, and close its record when it is finished."""
        if followed.closed:
            return
        folder = self.results.run(followed.run.id)
        result = read_json(folder.result)  # before the log: then that is whole
        lines = self._new_lines(folder.metrics, followed)
        if followed.sink is None and (lines or result):
            followed.sink = logger.open(followed.run)
            if followed.sink is None:
                followed.closed = True
                return
            lines = lines[followed.sink.known :]
        if followed.sink is not None and lines:
            followed.sink.add([_point(line) for line in lines])
        if followed.sink is not None and result is not None and _is_whole(result, self.study, followed.run.id):
            followed.sink.close(_scores(result, self.study, followed.run.id))
            followed.closed = True

    def _new_lines(self, file: Path, followed: _Followed) -> list[bytes]:
        """The lines beyond those that were sent."""
        try:
            state = file.stat()
            now = (state.st_size, state.st_mtime_ns)
            if now == followed.seen:
                return []
            content = file.read_bytes()
        except FileNotFoundError:
            return []
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        new = lines[followed.sent :]
        followed.seen, followed.sent = now, max(followed.sent, len(lines))
        return new


def _settings(config: Any) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump().items() if value is not None}


def _point(line: bytes) -> Point:
    values = json.loads(line)
    return Point(values.pop("step"), {name: value for name, value in values.items() if name != "tokens"})


def _is_whole(result: Mapping[str, Any], study: Study, id: str) -> bool:
    """Whether it has diverged, or is decoded in all the ways that the study asks for."""
    return bool(result["outcome"] == "diverged" or study.decodings[id].keys() <= result["decodings"].keys())


def _scores(result: Mapping[str, Any], study: Study, id: str) -> dict[str, float]:
    """What came out: of several ways of decoding each with its beam, alpha and averaging in the name."""
    found = {decoding: result.get("decodings", {}).get(decoding) for decoding in study.decodings[id]}
    scores: dict[str, float] = {}
    for place, (decoding, values) in enumerate(found.items()):
        if values is not None:
            config = study.decodings[id][decoding]
            suffix = f" beam={config.beam} alpha={config.alpha} average={config.average_checkpoints}" if place else ""
            scores |= {f"final_ppl{suffix}": values["ppl"], f"final_bleu{suffix}": values["bleu"]}
    return scores
