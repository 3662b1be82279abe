"""Time per token of each mixer and of a mixture of experts, as a multiple of attention's.

Run `python benchmarks/mixers.py`; benchmarks/LOG.md has the results. A round is a training step of
each model, forward and backward, one after another, so that other work on the machine meets all.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from workload import SIZES

from ablate.config.resolve import resolve_row
from ablate.model import Transformer, build
from ablate.parts.mixers import MIXERS

VOCABULARY = 256
CAUSAL = {
    "architecture": "decoder-only", "norm_position": "pre", "norm": "rmsnorm", "dropout": 0.0,
    "positional_encoding": "none", "activation": "swiglu", "feed_forward_bias": False,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"mixer": name} for name in MIXERS},
    # As many active weights as one network of d_ff.
    "8 experts, 2 a token": {"n_experts": 8, "experts_per_token": 2, "d_ff": 0.5},
    "hyper-connections, static": {"hyper_connections": "static"},
    "hyper-connections, dynamic": {"hyper_connections": "dynamic"},
}


def model(size: str, length: int, fields: dict[str, Any]) -> Transformer:
    """A model of this size; `d_ff` among the fields is a share of that of the size."""
    row = {**SIZES[size], **CAUSAL, **fields, "max_positions": max(length, 8)}
    if "d_ff" in fields:
        row["d_ff"] = round(fields["d_ff"] * SIZES[size]["d_ff"])
    return build(resolve_row(row), VOCABULARY, seed=1).train()


def step(network: Transformer, tokens: torch.Tensor) -> float:
    """Seconds of forward and backward on one batch."""
    start = time.perf_counter()
    logits = network.logits(network.read(tokens)).flatten(0, 1)
    F.cross_entropy(logits, tokens.flatten()).backward()
    network.zero_grad(set_to_none=True)
    return time.perf_counter() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="S", choices=SIZES)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    models = {name: model(given.size, given.length, fields) for name, fields in KINDS.items()}
    rows = given.tokens // given.length
    tokens = torch.randint(1, VOCABULARY, (rows, given.length))
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(given.rounds + 1):
        for name, network in models.items():
            seconds = step(network, tokens)
            if number:  # the first round warms up
                times[name].append(seconds)
    print(f"{given.size}, {rows} x {given.length} tokens, {torch.get_num_threads()} threads")
    for name, seconds in times.items():
        ratios = [a / b for a, b in zip(seconds, times["attention"], strict=True)]
        of_token = 1e6 * median(seconds) / tokens.numel()
        print(f"{name:28} {of_token:8.1f} us a token {median(ratios):6.2f} x attention")


if __name__ == "__main__":
    main()
