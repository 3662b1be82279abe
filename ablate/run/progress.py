"""Where a run is, for people and for `ablate status`: a small file, rewritten about once a second."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import torch

from ablate.run.memory import memory_of
from ablate.store import RunFolder
from ablate.store.files import write_json
from ablate.store.status import process_mark, read_progress
from ablate.training.progress import Report

EVERY_SECONDS = 1.0


class Progress:
    """Reports a run's progress; `seconds` adds up over interruptions."""

    def __init__(self, folder: RunFolder, threads: int, device: torch.device) -> None:
        self.folder, self.device = folder, device
        before = read_progress(folder) or {}
        self.before = float(before.get("seconds", 0.0))
        self.started = time.monotonic()
        self.mark = {**process_mark(), "threads": threads, "device": str(device)}
        self.report: dict[str, Any] = {key: before.get(key) for key in ("step", "steps", "loss", "perplexity")}
        self.written = 0.0
        self.first: tuple[float, int] | None = None
        self.phase("starting")

    @property
    def seconds(self) -> float:
        """Seconds of work on this run so far, those before an interruption included."""
        return self.before + time.monotonic() - self.started

    def training(self, report: Report) -> None:
        """After a step."""
        now = time.monotonic()
        if self.first is None:
            self.first = (now, report.tokens)
        if now - self.written < EVERY_SECONDS and report.step != report.steps:
            return
        elapsed, tokens = now - self.first[0], report.tokens - self.first[1]
        self.report = {
            "step": report.step,
            "steps": report.steps,
            "loss": report.loss,
            "perplexity": report.perplexity,
            "tokens_per_second": tokens / elapsed if elapsed > 0 else None,
        }
        self.phase("training")

    def phase(self, phase: str) -> None:
        """Write what the run is doing now."""
        self.written = time.monotonic()
        now = {"phase": phase, "time": time.time(), "seconds": round(self.seconds, 3)}
        content = {**self.mark, **now, "memory": memory_of(self.device), **self.report}
        with suppress(OSError):  # it is only a report: a full disk must not end a run over it
            write_json(self.folder.progress, content, durable=False)

    def leave(self) -> None:
        """No process works on the run any more."""
        self.phase("left")
