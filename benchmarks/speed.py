"""Speed of training and decoding on this machine, optionally compared with other tools.

    python benchmarks/speed.py [--work train decode start] [--sizes XS S base] [--grid XS] [--rounds
                               3] [--peers FOLDER --ids FILE] [--kept-peers] [--busy N]

ablate runs in the environment of its workers, with an allocator that keeps freed memory. Peers run
in the default environment, and with `--kept-peers` also with that allocator. All contenders take
turns within every round; the median over rounds is reported. ablate warms up for at least 6 s and
10 steps; peers warm up by themselves. For the sizes of `--grid`, ablate also trains one run per
core at once.

Training is measured in target tokens per second without padding, decoding in sentences per second
over 1000 sentences with translations of 16 tokens. Each figure of ablate is followed by two ratios:
to the best peer (fp32 only to fp32), and to the best peer with the same allocator.

With `--busy N`, ablate is also measured beside N processes that never wait, in turn with the
measurements without them; the share of the quiet rate follows its name.

FOLDER contains `plain.py` (a loop around torch.nn.Transformer: `plain.py train SIZE [--bf16]`) and
`hf.py` (`train SIZE [--bf16] [--save DIR]`, `decode SIZE DIR --beam K`, `ct2 SIZE DIR --beam K`),
which print one JSON line with `tokens_per_s` or `sentences_per_s`, `rss_mb` and `s_to_first_step`.
FILE contains the token ids for training.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ablate.launch.devices import allocator, worker_environment
from ablate.store.machine import cores

HERE = Path(__file__).parent
OURS = [sys.executable, str(HERE / "ours.py")]
WORK = ("train", "decode", "start")
UNITS = {"train": "tokens_per_s", "decode": "sentences_per_s"}


@dataclass
class Contender:
    """One side of a comparison, with a dictionary of measurements per round."""

    name: str
    command: list[str]
    environment: dict[str, str]
    processes: int = 1
    alone: Contender | None = None  # this one without busy processes beside it
    busy: int = 0
    found: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """Whether this is ablate, and not a peer."""
        return self.name.startswith("ablate")

    def ratio(self, unit: str, others: list[Contender], kept: bool) -> str:
        """Ratio of ablate to the best peer with or without the allocator: fp32 to fp32, bf16 to
        either.
        """
        peers = [
            other for other in others if not other.ours and other.name.endswith("kept") is kept
        ]
        values = [
            peer.median(unit) or 0
            for peer in peers
            if "bf16" in self.name or "bf16" not in peer.name
        ]
        return f"{(self.median(unit) or 0) / max(values):5.2f} x" if self.ours and values else ""

    def measure(self, unit: str) -> None:
        """Measure one more round. Rates of concurrent processes are added up."""
        with neighbors(self.busy):
            self._measure(unit)

    def _measure(self, unit: str) -> None:
        started = [
            subprocess.Popen(
                self.command,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(self.processes)
        ]
        lines = []
        for process in started:
            out, err = process.communicate()
            results = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            if process.returncode or not results:
                sys.exit(f"{' '.join(self.command)}\n{err}")
            lines.append(results[-1])
        self.found.append({**lines[0], unit: sum(line[unit] for line in lines)})

    def median(self, unit: str) -> float | None:
        """Median over rounds; None if nothing was measured in this unit."""
        values = [found[unit] for found in self.found if found.get(unit) is not None]
        return statistics.median(values) if values else None


@contextmanager
def neighbors(count: int) -> Iterator[None]:
    """Keep so many cores busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def _with_busy(contenders: list[Contender], busy: int) -> list[Contender]:
    """The contenders, each of ablate followed by itself beside busy processes."""
    measured = []
    for contender in contenders:
        measured.append(contender)
        if contender.ours:
            name = f"{contender.name}, beside {busy} busy"
            measured.append(replace(contender, name=name, alone=contender, busy=busy, found=[]))
    return measured


def comparisons(a: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, str, list[Contender]]]:
    """Yield (kind, name, contenders) for every comparison."""
    plain = {**os.environ, "BENCH_THREADS": str(cores()), "BENCH_OUT": os.devnull}
    for size in a.sizes:
        if "train" in a.work:
            yield "train", f"train {size}", _trainers(a, size, plain)
        if "decode" in a.work:
            yield from _decoders(a, size, plain, scratch / f"hf-{size}")


def _trainers(a: argparse.Namespace, size: str, plain: dict[str, str]) -> list[Contender]:
    """Contenders of training: ablate as one run and as one run per core, peers with and without its
    allocator.
    """
    whole, single = worker_environment(cores()), worker_environment(1)
    kept = {**plain, **allocator()}
    found = []
    for precision in ("fp32", "bf16"):
        task = [*OURS, "train", size, precision, *(["--ids", str(a.ids)] if a.ids else [])]
        found.append(Contender(f"ablate, {precision}", [*task, "--threads", str(cores())], whole))
        if size in a.grid:
            at_once = f"ablate, {precision}, {cores()} runs at once"
            found.append(Contender(at_once, [*task, "--threads", "1"], single, cores()))
    for name, script in (
        (("nn.Transformer", "plain.py"), ("Hugging Face", "hf.py")) if a.peers else ()
    ):
        for precision, flag in (("fp32", []), ("bf16", ["--bf16"])):
            command = [sys.executable, str(a.peers / script), "train", size, *flag]
            found.append(Contender(f"{name}, {precision}", command, plain))
            if a.kept_peers:
                found.append(Contender(f"{name}, {precision}, allocator kept", command, kept))
    return found


def _decoders(
    a: argparse.Namespace, size: str, plain: dict[str, str], models: Path
) -> Iterator[tuple[str, str, list[Contender]]]:
    if a.peers:
        save = [sys.executable, str(a.peers / "hf.py"), "train", size, "--save", str(models)]
        subprocess.run(save, env=plain, check=True, capture_output=True)
    for beam in (1, 4):
        task = ["decode", size, "fp32", "--beam", str(beam), "--threads", str(cores())]
        ids = ["--ids", str(a.ids)] if a.ids else []
        found = [Contender("ablate", [*OURS, *task, *ids], worker_environment(cores()))]
        for name, verb in (("CTranslate2", "ct2"), ("Hugging Face", "decode")) if a.peers else ():
            command = [
                sys.executable,
                str(a.peers / "hf.py"),
                verb,
                size,
                str(models),
                "--beam",
                str(beam),
            ]
            found.append(Contender(name, command, plain))
        yield "decode", f"decode {size} beam {beam}", found


def first_step(scratch: Path) -> float:
    """Measure seconds from `ablate run` to the end of the first optimizer step, for size S on a
    prepared corpus.
    """
    study = scratch / "start.yaml"
    study.write_text(
        "study: start\ndata: {corpus: toy, vocab_size: 500}\n"
        "base: {n_layers: 3, d_model: 256, d_ff: 1024, n_heads: 4, train_steps: 1, batch_tokens: "
        "4096, beam: 1}\n"
    )
    results = scratch / "results"
    ablate, words = [sys.executable, "-m", "ablate"], [str(study), "--results", str(results)]
    subprocess.run([*ablate, "data", "prepare", *words], check=True, capture_output=True)
    shutil.rmtree(results / "runs", ignore_errors=True)
    began = time.time()
    process = subprocess.Popen(
        [*ablate, "run", *words, "--device", "cpu"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
        for log in results.glob("runs/*/metrics.jsonl"):
            if log.stat().st_size:
                seconds = time.time() - began
                process.terminate()  # its decoding is of no interest
                process.wait()
                return seconds
        time.sleep(0.005)
    sys.exit("the run ended without a step")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--sizes", nargs="+", choices=["XS", "S", "base"], default=["XS", "S"])
    parser.add_argument("--grid", nargs="*", choices=["XS", "S", "base"], default=["XS"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--kept-peers", action="store_true")
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--busy", type=int, default=0, metavar="N")
    a = parser.parse_args()
    print(f"{cores()} cores, {a.rounds} rounds, {time.strftime('%Y-%m-%d')}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for kind, name, contenders in comparisons(a, scratch):
            if a.busy:
                contenders = _with_busy(contenders, a.busy)
            for _ in range(a.rounds):
                for contender in contenders:
                    contender.measure(UNITS[kind])
            _print(name, UNITS[kind], contenders)
        if "start" in a.work:
            seconds = statistics.median(first_step(scratch) for _ in range(a.rounds))
            print(f"\nfrom the command to the first step, S: {seconds:.2f} s")


def _print(name: str, unit: str, contenders: list[Contender]) -> None:
    """Print one line per contender: its rate, the two ratios, memory of a process, seconds to the
    first step.
    """
    print(f"\n{name}", flush=True)
    for contender in contenders:
        ratios = [contender.ratio(unit, contenders, kept) for kept in (False, True)]
        first = contender.median("s_to_first_step")
        also = f"{contender.median('rss_mb'):6,.0f} MB" + (
            f", first step after {first:.1f} s" if first else ""
        )
        if contender.alone:
            share = (contender.median(unit) or 0) / (contender.alone.median(unit) or 1)
            also = f"{share:.2f} of its rate without them, {also}"
        print(
            f"  {contender.median(unit) or 0:9,.0f} {ratios[0]:7} {ratios[1]:7}  {contender.name} "
            f"({also})",
            flush=True,
        )


if __name__ == "__main__":
    main()
