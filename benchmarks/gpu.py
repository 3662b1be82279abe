"""Training, decoding and saving on a GPU: one JSON line for each measurement, and a table at the
end.

    python benchmarks/gpu.py [--sizes XS S base big] [--tokens 4096 25000] [--jobs 1 8] [--ids FILE]
                             [--vocab 37000] [--precision bf16] [--peak TFLOPS] [--device cuda|cpu]
                             [--seconds 20] [--limit SECONDS] [--deterministic] [--out FILE]

The ceilings of the device come first: a large copy and a large product, of random numbers, since
products of ones are up to 13 % too fast. Then, for each size and batch:

- `train`: seconds of the first step; milliseconds of a step with shapes that are new, and with
  shapes met before; of the latter the time that the host needs for launching; kernels; target
  tokens per second without padding; model FLOP utilization, as a share of the data sheet's peak
  (`--peak` sets another) and of the measured product; peak memory, and its estimate.
- `save`: seconds that a checkpoint stops training, and seconds until it is written.
- `jobs`: several processes that train at once, and their sum of tokens per second.
- `decode`: sentences and tokens per second, for 1000 sentences.

FLOPs are those of matrix products (`ablate/config/cost.py`), without padding. `--device cpu` tries
the script without a GPU.

`--out FILE` appends each line to a file as soon as it is there. A measurement that fails is a line of
the kind `failed`, and the others go on; the exit code is then 1. After `--limit` seconds no other
measurement begins, and those left out are lines of the kind `left_out`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from workload import BATCH_TOKENS, TEST, TRAIN, row, split, trainer

from ablate.config import DecodingConfig
from ablate.config.cost import FORWARD_AND_BACKWARD, forward_flops
from ablate.config.lengths import Lengths
from ablate.config.memory import peak_memory
from ablate.data.batches import largest_padded_batch
from ablate.data.length_sums import length_sums
from ablate.decoding.translate import translate_ids
from ablate.kernels.device import prepare
from ablate.launch.devices import worker_environment
from ablate.model import build
from ablate.training import Trainer

# TFLOP per second of dense products on NVIDIA's data sheets: in bf16, and in fp32
PEAKS = {"h200": (989.0, 67.0), "h100": (989.0, 67.0), "a100": (312.0, 19.5), "l4": (121.0, 30.3)}
TRIES = 20  # of a ceiling; the best counts


class Bench:
    """Measurements on one device, printed as JSON lines."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a, self.device = a, torch.device(a.device)
        self.lines: list[dict[str, Any]] = []
        self.deadline = time.monotonic() + a.limit
        self.product: float | None = None  # FLOP per second
        self.wait: Callable[[], None] = torch.cuda.synchronize if self.on_gpu else lambda: None

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def emit(self, kind: str, **values: Any) -> None:
        """Print a measurement, and append it to the file."""
        self.lines.append({"kind": kind, **values})
        line = json.dumps(self.lines[-1])
        print(line, flush=True)
        if self.a.out is not None:
            with self.a.out.open("a") as file:
                file.write(f"{line}\n")

    def measure(self, what: str, work: Callable[..., None], **settings: Any) -> None:
        """Make a measurement within the time limit; a failure is a line, and not the end."""
        if time.monotonic() > self.deadline:
            self.emit("left_out", measurement=what, **settings)
            return
        try:
            work(**settings)
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            self.emit("failed", measurement=what, **settings, error=text[:500])

    def seconds(self, work: Callable[[], object]) -> float:
        """Seconds of work, with the time that the device needs to finish."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def ceilings(self) -> None:
        """Measure a copy and a product that are large for the device."""
        count, n = (2**28, 8192) if self.on_gpu else (2**22, 256)
        source = torch.randn(count, device=self.device)
        target = torch.empty_like(source)
        copy = min(self.seconds(lambda: target.copy_(source)) for _ in range(TRIES))
        dtype = torch.bfloat16 if self.a.precision == "bf16" else torch.float32
        one, other = torch.randn(2, n, n, device=self.device).to(dtype).unbind()
        product = min(self.seconds(lambda: one @ other) for _ in range(TRIES))
        self.product = 2 * n**3 / product
        self.emit("ceiling", copy_gb_per_s=8e-9 * count / copy, product_tflops=1e-12 * self.product)

    def peak(self) -> float | None:
        """Peak of the data sheet in FLOP per second; None if unknown."""
        if self.a.peak is not None:
            return 1e12 * self.a.peak
        if not self.on_gpu:
            return None
        name = torch.cuda.get_device_name().lower()
        for gpu, (bf16, fp32) in PEAKS.items():
            if gpu in name:
                return 1e12 * (bf16 if self.a.precision == "bf16" else fp32)
        return None

    def trainer(self, size: str, tokens: int) -> Trainer:
        """A trainer on the workload; ids reach the whole vocabulary."""
        config = row(size, self.a.precision, batch_tokens=tokens)
        return trainer(
            config,
            split(self.a.ids, TRAIN, vocab_size=self.a.vocab),
            str(self.device),
            self.a.vocab,
        )

    def train(self, size: str, tokens: int) -> None:
        """Measure steps with new shapes, then with shapes met before."""
        if self.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        t = self.trainer(size, tokens)
        first = self.seconds(lambda: t._step(1))
        new = [
            self.seconds(lambda step=step: t._step(step))
            for step in range(2, 2 + self.a.new_shapes)
        ]  # type: ignore[misc]
        steps = range(1, 2 + self.a.new_shapes)
        made, start, tokens_before, launched = 0, time.perf_counter(), t.progress.tokens, 0.0
        of_batches = []
        while made == 0 or time.perf_counter() - start < self.a.seconds:
            for step in steps:
                began = time.perf_counter()
                t._step(step)
                launched += time.perf_counter() - began
                of_batches.append(t.train_items.lengths(t.batches.items(step)))
            self.wait()
            made += len(steps)
        elapsed = time.perf_counter() - start
        sums = length_sums(t.train_items.fields, of_batches)
        lengths = Lengths.of_fields(sums, t.train_items.fields)
        flops = FORWARD_AND_BACKWARD * forward_flops(t.config, self.a.vocab, lengths) / elapsed
        peak = self.peak()
        self.emit(
            "train",
            size=size,
            tokens=tokens,
            first_step_s=first,
            new_shape_ms=1e3 * sum(new) / len(new),
            met_shape_ms=1e3 * elapsed / made,
            host_ms=1e3 * launched / made,
            kernels=self.kernels(t),
            tokens_per_s=(t.progress.tokens - tokens_before) / elapsed,
            tflops=1e-12 * flops,
            mfu=None if peak is None else flops / peak,
            share_of_product=None if self.product is None else flops / self.product,
            peak_gib=torch.cuda.max_memory_allocated() / 2**30 if self.on_gpu else None,
            estimated_gib=self.estimate(t) / 2**30,
        )
        self.save(size, tokens, t)

    def estimate(self, t: Trainer) -> int:
        """The estimate of the peak memory, in bytes, for the largest batch."""
        tokens = min(
            largest_padded_batch(t.train_items, t.config.batch_tokens), t.micro_batch_tokens
        )
        return peak_memory(t.config, self.a.vocab, tokens, self.device.type)

    def kernels(self, t: Trainer) -> float | None:
        """Kernels of a step; None on a CPU."""
        if not self.on_gpu:
            return None
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as found:
            for step in (1, 2, 3):
                t._step(step)
            self.wait()
        return (
            sum(event.device_type == torch.autograd.DeviceType.CUDA for event in found.events()) / 3
        )

    def save(self, size: str, tokens: int, t: Trainer) -> None:
        """Measure a checkpoint, for which training waits."""
        t.metrics.cut()
        start = time.perf_counter()
        t._save(scheduled=False)
        self.emit("save", size=size, tokens=tokens, stopped_s=time.perf_counter() - start)

    def jobs(self, size: str, count: int) -> None:
        """Measure several processes that train at once, each for the same time."""
        words = [
            sys.executable, __file__, "--only", "train", "--device", str(self.device), "--sizes", size,
            "--tokens", str(BATCH_TOKENS), "--vocab", str(self.a.vocab), "--seconds", str(self.a.seconds),
            "--precision", self.a.precision, "--new-shapes", str(self.a.new_shapes),
            *(["--ids", str(self.a.ids)] if self.a.ids else []),
            *(["--deterministic"] if self.a.deterministic else []),
        ]  # fmt: skip
        environment = worker_environment(1, (str(self.device),))
        started = [
            subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        rates = []
        for process in started:
            out, _ = process.communicate()
            found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            if process.returncode:
                sys.exit(f"a process of {count} at once failed")
            rates += [line["tokens_per_s"] for line in found if line["kind"] == "train"]
        self.emit("jobs", size=size, jobs=count, tokens_per_s=sum(rates))

    def decode(self, size: str, beam: int) -> None:
        """Measure translating sentences. With random weights, translations end at the length
        limit.
        """
        model = build(row(size), self.a.vocab, 1, self.device).eval()
        source = split(self.a.ids, TEST, self.a.sentences, vocab_size=self.a.vocab)["source"]
        sentences = [source[i].tolist() for i in range(len(source))]
        settings = DecodingConfig(beam=beam, alpha=0.6, max_extra_length=0)
        translate_ids(model, sentences[:64], settings, self.device)
        found: list[list[int]] = []
        seconds = self.seconds(
            lambda: found.extend(translate_ids(model, sentences, settings, self.device))
        )
        self.emit(
            "decode",
            size=size,
            beam=beam,
            sentences_per_s=len(found) / seconds,
            tokens_per_s=sum(map(len, found)) / seconds,
        )

    def table(self) -> None:
        """Print all measurements again, those of a kind below each other."""
        for kind in dict.fromkeys(line["kind"] for line in self.lines):
            rows = [
                {k: v for k, v in line.items() if k != "kind"}
                for line in self.lines
                if line["kind"] == kind
            ]
            heads = list(dict.fromkeys(name for row in rows for name in row))
            texts = [heads, *([_text(row.get(name)) for name in heads] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
            print(f"\n{kind}")
            for line in texts:
                print(
                    "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
                )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else (f"{value:,.0f}" if isinstance(value, (int, float)) else str(value))
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=["ceiling", "train", "jobs", "decode"])
    parser.add_argument("--sizes", nargs="+", default=["XS", "S", "base", "big"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 25_000])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--precision", choices=["bf16", "tf32", "fp32"], default="bf16")
    parser.add_argument("--peak", type=float)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--new-shapes", type=int, default=10)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--limit", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    if a.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; use --device cpu to try the script")
    bench = Bench(a)
    prepare(bench.device, a.deterministic)
    only = a.only or ["ceiling", "train", "jobs", "decode"]
    if "ceiling" in only:
        name = torch.cuda.get_device_name() if bench.on_gpu else "cpu"
        bench.emit("device", name=name, torch=torch.__version__)
        bench.measure("ceiling", bench.ceilings)
    for size in a.sizes if "train" in only else ():
        for tokens in a.tokens:
            bench.measure("train", bench.train, size=size, tokens=tokens)
    for count in a.jobs if "jobs" in only else ():
        bench.measure("jobs", bench.jobs, size=a.sizes[0], count=count)
    for size in a.sizes if "decode" in only else ():
        for beam in a.beams:
            bench.measure("decode", bench.decode, size=size, beam=beam)
    bench.table()
    sys.exit(any(line["kind"] == "failed" for line in bench.lines))


if __name__ == "__main__":
    main()
