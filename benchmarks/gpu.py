"""Training and decoding on a GPU: model FLOP utilization, tokens per second, and an estimate of the time for Table 3.

    python benchmarks/gpu.py [--sizes XS S base big] [--tokens 4096 25000] [--ids FILE] [--vocab 37000]
                             [--peak TFLOPS] [--device cuda|cpu] [--seconds 20]

FLOPs are those of matrix products (`ablate/config/cost.py`): the encoder counts source tokens only, the decoder target
tokens only, without padding. A step costs as much as three forward passes. Utilization is the share of the peak. Use
`--device cpu` to try the script without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from workload import TEST, TRAIN, row, split, trainer

from ablate.config import DecodingConfig
from ablate.config.cost import FORWARD_AND_BACKWARD, Lengths, flops_per_step, forward_flops
from ablate.data.corpus import LengthSums
from ablate.decoding.translate import translate_ids
from ablate.model import build
from ablate.study import read_study

# Dense bf16 products in TFLOP per second, from NVIDIA's data sheets.
PEAKS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "A10G": 70.0, "L4": 121.0, "V100": 125.0}
WARM_UP_STEPS = 10
TABLE3 = Path(__file__).parents[1] / "studies" / "table3.yaml"


def peak_of(device: str, given: float | None) -> float | None:
    """Peak in TFLOP per second; None if unknown."""
    if given is not None or device == "cpu":
        return given
    name = torch.cuda.get_device_name()
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def training(size: str, tokens: int, a: argparse.Namespace) -> tuple[float, float, float]:
    """Measure (target tokens per second without padding, FLOP per second, peak memory in GiB)."""
    pairs = split(a.ids, TRAIN)
    trainer_ = trainer(row(size, "bf16", batch_tokens=tokens), pairs, a.device, a.vocab)
    wait: Callable[[], None] = torch.cuda.synchronize if a.device != "cpu" else lambda: None
    for _ in range(WARM_UP_STEPS):
        trainer_._step(trainer_.progress.step + 1)
    wait()
    first, seen, start = trainer_.progress.step + 1, trainer_.progress.tokens, time.perf_counter()
    while time.perf_counter() - start < a.seconds:
        trainer_._step(trainer_.progress.step + 1)
    wait()
    elapsed, sums = time.perf_counter() - start, LengthSums(pairs.fields)
    for step in range(first, trainer_.progress.step + 1):
        chosen = trainer_.order.at(step)
        sums.add(pairs.lengths(chosen))
    flops = FORWARD_AND_BACKWARD * forward_flops(trainer_.config, a.vocab, Lengths.of_fields(sums.sums(), pairs.fields))
    memory = torch.cuda.max_memory_allocated() / 2**30 if a.device != "cpu" else float("nan")
    return (trainer_.progress.tokens - seen) / elapsed, flops / elapsed, memory


def decoding(size: str, beam: int, a: argparse.Namespace) -> float:
    """Measure sentences per second over 1000 sentences. With random weights, translations end at the length limit."""
    device = torch.device(a.device)
    model = build(row(size), a.vocab, 1, device).eval()
    source = split(a.ids, TEST, 1000)["source"]
    sentences = [source[i].tolist() for i in range(len(source))]
    settings = DecodingConfig(beam=beam, alpha=0.6, max_extra_length=0)
    translate_ids(model, sentences[:64], settings, device)
    start = time.perf_counter()
    translate_ids(model, sentences, settings, device)
    return len(sentences) / (time.perf_counter() - start)


def table3_hours(flops_per_second: float) -> float:
    """Hours for all runs of Table 3 at this rate."""
    study = read_study(TABLE3)
    total = sum(
        flops_per_step(row.config, study.data.vocab_size, Lengths.assumed()) * (row.config.train_steps or 0)
        for row in study.rows
        for _ in study.runs_of(row)
    )
    return total / flops_per_second / 3600


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["XS", "S", "base", "big"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 25_000])
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--peak", type=float)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=20.0)
    a = parser.parse_args()
    if a.device != "cpu" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device; use --device cpu to try the script")
    peak = peak_of(a.device, a.peak)
    name = "the CPU" if a.device == "cpu" else torch.cuda.get_device_name()
    print(f"{name}, bf16, V={a.vocab:,}, peak {f'{peak:,.0f} TFLOP/s' if peak else 'unknown'}", flush=True)
    rates: dict[tuple[str, int], float] = {}
    for size in a.sizes:
        for tokens in a.tokens:
            speed, flops, memory = training(size, tokens, a)
            rates[size, tokens] = flops
            share = f"{flops / peak / 1e12:6.1%} of peak" if peak else ""
            print(
                f"train  {size:5} {tokens:6,} tokens a batch  {speed:10,.0f} target tokens/s  "
                f"{flops / 1e12:7.2f} TFLOP/s {share}  {memory:5.1f} GiB",
                flush=True,
            )
    for size in a.sizes:
        for beam in (1, 4):
            print(f"decode {size:5} beam {beam}  {decoding(size, beam, a):8,.1f} sentences/s", flush=True)
    if ("base", max(a.tokens)) in rates:
        hours = table3_hours(rates["base", max(a.tokens)])
        print(f"Table 3 ({TABLE3.name}), every run at base's rate: {hours:,.0f} hours on one device")


if __name__ == "__main__":
    main()
