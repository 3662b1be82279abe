"""Compare set-ups of workers on this machine: settings of the allocator, threads or processes.

    python benchmarks/workers.py [--size XS|S] [--rounds 3] [--seconds 12] [--only WORD]

Every arrangement trains on the same synthetic batches (Multi30k's lengths, V = 8000) for the same
time, one after another in every round. Reported is the median over rounds of target tokens per
second without padding, summed over workers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

V = 8000
SIZES = {
    "XS": {"n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 4},
    "S": {"n_layers": 3, "d_model": 256, "d_ff": 1024, "n_heads": 4},
}


@dataclass(frozen=True)
class Arrangement:
    name: str
    processes: int
    kept: bool  # the allocator keeps freed memory
    precision: str = "fp32"


def arrangements(cores: int) -> list[Arrangement]:
    return [
        Arrangement(f"1 process of {cores} threads, allocator as it is", 1, False),
        Arrangement(f"1 process of {cores} threads, allocator kept", 1, True),
        Arrangement(f"{cores} processes of 1 thread, allocator as it is", cores, False),
        Arrangement(f"{cores} processes of 1 thread, allocator kept", cores, True),
        Arrangement(f"{cores} processes of 1 thread, allocator kept, bf16", cores, True, "bf16"),
    ]


def train(size: str, precision: str, threads: int, seconds: float) -> float:
    """Measure target tokens per second of one process, without evaluation and checkpoints."""
    import numpy as np
    import torch

    from ablate.config.resolve import resolve_row
    from ablate.data.corpus import Split, TokenSequences
    from ablate.store import RunFolder
    from ablate.tasks import TASKS
    from ablate.training import Trainer

    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    random = np.random.default_rng(1)
    lengths = np.clip(random.normal(14, 5, 20_000), 4, 40).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    side = TokenSequences(random.integers(4, V, int(offsets[-1])).astype(np.uint32), offsets)

    class Corpus:
        class tokenizer:  # noqa: N801
            vocab_size = V

        def split(self, name: str) -> Split:
            return Split({"source": side, "target": side})

    config = resolve_row({**SIZES[size], "batch_tokens": 4096, "precision": precision})
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            config, 1, TASKS["translation"], Corpus(), RunFolder(Path(folder)),
            device=torch.device("cpu"), micro_batch_tokens=4096, keep_checkpoints=1,
        )  # fmt: skip
        began = time.monotonic()
        while time.monotonic() - began < seconds / 4:  # warm-up
            trainer._step(trainer.progress.step + 1)
        start, tokens = time.monotonic(), trainer.progress.tokens
        while time.monotonic() - start < seconds:
            trainer._step(trainer.progress.step + 1)
        return (trainer.progress.tokens - tokens) / (time.monotonic() - start)


def measure(arrangement: Arrangement, size: str, cores: int, seconds: float) -> float:
    from ablate.launch.devices import allocator, worker_environment

    threads = cores // arrangement.processes
    kept = worker_environment(threads)
    environment = (
        kept if arrangement.kept else {k: v for k, v in kept.items() if k not in allocator()}
    )
    command = [
        sys.executable,
        __file__,
        "--worker",
        arrangement.precision,
        str(threads),
        f"--size={size}",
        f"--seconds={seconds}",
    ]
    workers = [
        subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(arrangement.processes)
    ]
    return sum(float(json.loads(worker.communicate()[0])) for worker in workers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="XS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of one measurement")
    parser.add_argument("--only", default="", help="set-ups whose name has this word")
    parser.add_argument("--worker", nargs=2, metavar=("PRECISION", "THREADS"))
    arguments = parser.parse_args()
    if arguments.worker:
        precision, threads = arguments.worker
        print(json.dumps(train(arguments.size, precision, int(threads), arguments.seconds)))
        return
    cores = len(os.sched_getaffinity(0))
    contenders = [a for a in arrangements(cores) if arguments.only in a.name]
    found: dict[str, list[float]] = {a.name: [] for a in contenders}
    for _ in range(arguments.rounds):
        for arrangement in contenders:
            found[arrangement.name].append(
                measure(arrangement, arguments.size, cores, arguments.seconds)
            )
    first = statistics.median(found[contenders[0].name])
    print(f"{arguments.size}, batches of 4096 tokens, {arguments.rounds} rounds, {cores} cores")
    for name, values in found.items():
        print(
            f"{statistics.median(values):9,.0f} tokens/s  {statistics.median(values) / first:5.2f} "
            f"x  {name}"
        )


if __name__ == "__main__":
    main()
