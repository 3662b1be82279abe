"""How many runs share a GPU: as many as fit and occupy it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ablate.config import RowConfig
from ablate.config.cost import Lengths
from ablate.config.gpu_time import GPUS, gpu_share
from ablate.config.memory import CUDA_CONTEXT, peak_memory
from ablate.errors import StoreError, UsageError
from ablate.formatting import plural, size
from ablate.launch.devices import GPU_MEMORY_SHARE, with_precision
from ablate.store import RunFolder
from ablate.store.machine import cores
from ablate.store.nvidia import FreeGPU, mps_text
from ablate.store.status import read_progress, read_provenance


@dataclass(frozen=True)
class RunOnGPU:
    """A run that a GPU is to be shared by.

    vocab_size: V.
    largest_batch: padded tokens of its largest batch.
    measured: bytes that a process has held on a GPU for a run of this configuration; None if none
        has run.
    has_bf16: whether the GPU computes products in bf16.
    """

    config: RowConfig
    vocab_size: int
    largest_batch: int
    measured: int | None = None
    has_bf16: bool = True

    @property
    def memory(self) -> int:
        """Bytes that it needs on a GPU: measured, or else estimated; with the CUDA context of its
        process.
        """
        if self.measured is not None:
            return self.measured + CUDA_CONTEXT
        tokens = whole_micro_batch(self.config, self.largest_batch)
        computed = with_precision(self.config, self.has_bf16)
        return peak_memory(computed, self.vocab_size, tokens, "cuda") + CUDA_CONTEXT


def whole_micro_batch(config: RowConfig, largest_batch: int) -> int:
    """Padded tokens of a micro-batch where memory does not limit it."""
    return min(largest_batch, config.micro_batch_tokens or largest_batch)


@dataclass(frozen=True)
class SharedGPUs:
    """The number of runs at once that `--jobs auto` chooses, and the reason.

    jobs: on all GPUs together.
    reason: a line for people.
    """

    jobs: int
    reason: str


def measured_memory(
    folder: RunFolder, names: Collection[str], micro_batch_tokens: int
) -> int | None:
    """Bytes that a finished run has held on a GPU for micro-batches of this size.

    None if it has not, or on another product, or with smaller micro-batches or parts of a batch,
    which need less.
    """
    progress, provenance = read_progress(folder), read_provenance(folder)
    if (
        progress is None
        or provenance is None
        or provenance.device not in names
        or not folder.result.exists()
    ):
        return None
    try:
        execution = folder.read_execution()
    except StoreError:
        return None
    # A micro-batch that was halved began at its full size, so that the peak covers it.
    is_whole = (
        execution is not None
        and execution.parts == 1
        and execution.micro_batch_tokens >= micro_batch_tokens
    )
    return progress.peak_memory if is_whole else None


def share_gpus(
    gpus: Sequence[FreeGPU], runs: Sequence[RunOnGPU], total_runs: int, lengths: Lengths
) -> SharedGPUs:
    """Choose how many runs share each GPU: as many as fit, unless fewer occupy it, or fewer runs or
    cores are there.

    Args:
        gpus: of this machine.
        runs: whose memory and time counts.
        total_runs: of the whole study.
        lengths: of the corpus.

    Raises:
        UsageError: the free memory is not known.
    """
    if not gpus:
        raise UsageError(
            "--jobs auto: nvidia-smi does not say how much memory is free; give a number"
        )
    known = [GPUS[name] for name in map(_model_of, gpus) if name is not None]
    has_bf16 = all("bf16" in gpu.tflops for gpu in known)
    largest = max((replace(run, has_bf16=has_bf16) for run in runs), key=lambda run: run.memory)
    free = min(gpu.free for gpu in gpus)
    usable = GPU_MEMORY_SHARE * free
    limits = {
        "memory": int(usable // largest.memory),
        "runs": math.ceil(total_runs / len(gpus)),
        "cores": cores() // len(gpus),
    }
    if len(known) == len(gpus):
        shares = (
            gpu_share(run.config, run.vocab_size, lengths, gpu) for run in runs for gpu in known
        )
        limits["time"] = math.ceil(1 / max(shares))
    each = max(1, min(limits.values()))
    origin = "estimated" if largest.measured is None else "measured"
    texts = {
        "memory": f"{limits['memory']} fit into {size(int(usable))}, {GPU_MEMORY_SHARE:.0%} of the "
        f"{size(free)} that are free: the largest needs {size(largest.memory)} ({origin})",
        "time": f"{limits.get('time')} occupy it (estimated from kernels and launches)",
        "cores": f"there {'is' if limits['cores'] == 1 else 'are'} "
        f"{plural(limits['cores'], 'core')} for each GPU",
        "runs": f"{plural(total_runs, 'run')} in all",
    }
    why = "; ".join(texts[limit] for limit in texts if limit in limits)
    return SharedGPUs(
        each * len(gpus),
        f"--jobs auto: {plural(each, 'run')} at once on each GPU: {why}. {mps_text()}",
    )


def _model_of(gpu: FreeGPU) -> str | None:
    """The name of a product among GPUS; None if its speed is not known."""
    words = re.findall(
        r"[a-z0-9]+", gpu.name.lower()
    )  # whole ones: an L40 is no L4, and an A1000 no A100
    return next((name for name in GPUS if name in words), None)
