"""The progress report of a run, rewritten about every second."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil
import torch

from ablate.kernels.device import on_gpu, release_cached_memory
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.processes import process_mark
from ablate.store.records import Memory, Phase, Progress
from ablate.training import StepReport


class ProgressReporter:
    """Writes progress.json."""

    def __init__(
        self,
        folder: RunFolder,
        threads: int,
        device: torch.device,
        name: str | None = None,
        interval: float = 1.0,
    ) -> None:
        """Prepare for reports.

        Args:
            folder: folder of the run.
            threads: number of CPU threads.
            device: device of this process.
            name: name of the device as the launcher knows it, such as `cuda:3`; the launcher may
                see more GPUs than this process.
            interval: seconds between reports in the same phase.
        """
        self.folder = folder
        self.device = device
        self.interval = interval
        self.started = time.monotonic()
        if on_gpu(device):
            # Unused blocks of the previous run would count as memory of this one.
            release_cached_memory(device)
            torch.cuda.reset_peak_memory_stats(device)
        earlier = none_if_unreadable(folder.read_progress)
        self.earlier_seconds = earlier.seconds if earlier else 0.0
        # Until its first step, a resumed run reports the last step before the interruption.
        fields = {"step", "steps", "loss", "perplexity", "peak_memory"}
        self.report = Progress(
            **process_mark().model_dump(),
            **(earlier.model_dump(include=fields) if earlier else {}),
            phase="starting",
            threads=threads,
            device=name or str(device),
        )
        self.written = 0.0
        # Time and tokens after the first step. The rate is measured from there, because the first
        # step also allocates memory.
        self.first_step: tuple[float, int] | None = None
        self._write("starting")

    @property
    def seconds(self) -> float:
        """Seconds of work on the run, including earlier attempts."""
        return self.earlier_seconds + time.monotonic() - self.started

    def after_step(self, report: StepReport) -> None:
        """Write a report after an optimizer step, if the last report is old enough."""
        now = time.monotonic()
        if self.first_step is None:
            self.first_step = (now, report.tokens)
        first_time, first_tokens = self.first_step
        elapsed = now - first_time
        tokens = report.tokens - first_tokens
        update = {
            "step": report.step,
            "steps": report.steps,
            "loss": report.loss,
            "perplexity": report.perplexity,
            "tokens_per_second": tokens / elapsed if elapsed > 0 else None,
        }
        # The report is updated at every step, so that an interrupted run reports its last step. It
        # is not written at every step, because a small model makes many steps a second.
        self.report = self.report.model_copy(update=update)
        if report.step == report.steps:
            self._write("training")
        else:
            self.enter("training")

    def enter(self, phase: Phase) -> None:
        """Write a report if the phase is new, or the last report is old enough."""
        if phase != self.report.phase or time.monotonic() - self.written >= self.interval:
            self._write(phase)

    def leave(self) -> None:
        """Write the last report: this process no longer works on the run."""
        self._write("left")

    def _write(self, phase: Phase) -> None:
        self.written = time.monotonic()
        update = {
            "phase": phase,
            "time": time.time(),
            "seconds": round(self.seconds, 3),
            "memory": memory_in_use(self.device),
            "peak_memory": self._peak_memory(),
        }
        self.report = self.report.model_copy(update=update)
        with suppress(OSError):  # a full disk must not end a run over a report
            self.report.write(self.folder.progress, durable=False)

    def _peak_memory(self) -> int | None:
        """Largest number of bytes that this process or an earlier one has reserved on its GPU."""
        if not on_gpu(self.device):
            return self.report.peak_memory
        return max(self.report.peak_memory or 0, torch.cuda.max_memory_reserved(self.device))


def memory_in_use(device: torch.device) -> Memory:
    """Memory in use, in bytes: on a CPU by this process, on a GPU by all processes."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Memory(held=total - free, total=total)
    return Memory(
        held=int(psutil.Process().memory_info().rss), total=int(psutil.virtual_memory().total)
    )
