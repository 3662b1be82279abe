"""Sizes of activations and the best learning rate over widths, in each parametrization.

Run `python -m benchmarks.parametrization`; benchmarks/LOG.md has the results. The tests use a part.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.config import RowConfig
from ablate.config.resolve import resolve_row
from ablate.model import Transformer, build
from ablate.training.optimizer import Optimizer

WIDTHS = (32, 64, 128, 256, 512)
VOCABULARY, LENGTH, BATCH = 61, 16, 8
RATES = tuple(2.0**-power for power in range(2, 12))


def row(width: int, **settings: Any) -> RowConfig:
    """A decoder-only model of two layers."""
    row = {
        "architecture": "decoder-only", "norm_position": "pre", "n_layers": 2, "n_heads": 4,
        "d_model": width, "d_ff": 4 * width, "dropout": 0.0, "learning_rate": 0.01, "base_width": 32,
        "schedule": "constant", "max_positions": 64,
    }  # fmt: skip
    return resolve_row({**row, **settings})


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: each sequence counts up from a random token by a random step."""
    drawn = torch.Generator().manual_seed(seed)
    start, by = (torch.randint(1, VOCABULARY - 1, (BATCH, 1), generator=drawn) for _ in range(2))
    tokens = 1 + (start + by * torch.arange(LENGTH + 1)) % (VOCABULARY - 1)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model: Transformer, seed: int) -> Tensor:
    """The mean loss on a batch."""
    inputs, targets = batch(seed)
    return F.cross_entropy(model.logits(model.read(inputs)).flatten(0, 1), targets.flatten())


def activations(config: RowConfig, steps: int = 4) -> dict[str, float]:
    """Root mean squares after some steps on one batch, and of the changes since the start."""
    model = build(config, VOCABULARY, seed=1)
    optimizer = Optimizer(model, config)
    inputs, _ = batch(0)
    before = _sizes(model, inputs)
    for _ in range(steps):
        loss_of(model, 0).backward()
        optimizer.step(config.learning_rate or 0.0)
    after = _sizes(model, inputs)
    sizes = {name: float(value.square().mean().sqrt()) for name, value in after.items()}
    for name, value in after.items():
        sizes[f"change of {name}"] = float((value - before[name]).square().mean().sqrt())
    return sizes


@torch.no_grad()
def _sizes(model: Transformer, inputs: Tensor) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    hooks = []
    for name, module in model.named_modules():
        if name.endswith((".mixer", ".feed_forward")) or name == "embedding":
            hooks.append(module.register_forward_hook(_keep(seen, name)))
    seen["states"] = model.read(inputs)
    seen["logits"] = model.logits(seen["states"])
    for hook in hooks:
        hook.remove()
    return seen


def _keep(seen: dict[str, Tensor], name: str) -> Any:
    def hook(module: torch.nn.Module, args: Any, output: Any) -> None:
        seen[name] = output[0] if isinstance(output, tuple) else output

    return hook


def trained_loss(width: int, rate: float, steps: int = 30, **settings: Any) -> float:
    """The mean loss of the last 5 steps; infinite if it is not a number."""
    config = row(width, learning_rate=rate, **settings)
    model = build(config, VOCABULARY, seed=1)
    optimizer, losses = Optimizer(model, config), []
    for step in range(steps):
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step(rate * min(1.0, (step + 1) / 5))
        losses.append(float(loss.detach()))
    mean = sum(losses[-5:]) / 5
    return mean if mean == mean else float("inf")


def best_rate(width: int, rates: Sequence[float] = RATES, **settings: Any) -> float:
    """The rate of the smallest loss."""
    losses = {rate: trained_loss(width, rate, **settings) for rate in rates}
    return min(losses, key=lambda rate: losses[rate])


def main() -> None:
    """Print a table of best rates, and one of sizes, for each parametrization."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    arguments = parser.parse_args()
    steps = arguments.steps
    for name in ("standard", "mup", "completep"):
        print(f"\n{name}: log2 of the best rate, and its loss, after {steps} steps")
        for width in arguments.widths:
            settings = {"parametrization": name, "tied_embeddings": "none"}
            losses = {rate: trained_loss(width, rate, steps, **settings) for rate in RATES}
            best = min(losses, key=lambda rate: losses[rate])
            power = round(torch.log2(torch.tensor(best)).item())
            sizes = activations(row(width, **settings))
            print(
                f"  {width:4}  2^{power}  {losses[best]:.3f}   logits {sizes['logits']:.3f}, "
                f"change {sizes['change of logits']:.3f}, states {sizes['change of states']:.3f}"
            )


if __name__ == "__main__":
    main()
