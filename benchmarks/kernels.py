"""What each CPU kernel gains: the time of a training step without it over that of one with it.

    python benchmarks/kernels.py [--sizes XS S] [--precisions fp32 bf16] [--threads 1] [--pairs 15]
                                 [--warm-up 10] [--only NAME ...] [--ids FILE]

Two trainers take the same steps in turn, one of them with plain torch in the place of a kernel.
Prints the median ratio over pairs of steps, above 1 where the kernel gains, and its quartiles. A
kernel that gains on no processor should go (benchmarks/LOG.md has the ratios of several).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from workload import TRAIN, row, split, trainer

from ablate.data.corpus import Split
from ablate.kernels import cpu_matmul, cross_entropy, linear, relu_feed_forward
from ablate.launch.devices import allocator, worker_environment


def plain_linears(x: Tensor, layers: Any) -> list[Tensor]:
    """Linear layers in torch's autocast, with outputs in the type of the input."""
    return [F.linear(x, weight, bias).to(x.dtype) for weight, bias in layers]


def plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear layer in torch's autocast, with its output in the type of the input."""
    return F.linear(x, weight, bias).to(x.dtype)


def plain_loss(
    states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, *_: Any
) -> Tensor:
    """The loss of all logits at once; the workload has no cap and no further terms."""
    return cross_entropy.reference(states, embedding, targets, smoothing)


def masked_gradient(gradient: Tensor, inner: Tensor) -> Tensor:
    """The gradient of ReLU by a mask."""
    return gradient.masked_fill_(inner <= 0, 0)


# What stands in the place of each kernel.
PLAIN: dict[str, list[tuple[Any, Any]]] = {
    "nothing, for comparison": [],
    "smoothed_cross_entropy": [(cross_entropy.smoothed_cross_entropy, plain_loss)],
    "RoundedWithin, by rounded operands": [(cpu_matmul.RoundedWithin, cpu_matmul.FusedBF16)],
    "RoundedWithin, by fp32 products": [(cpu_matmul.RoundedWithin, cpu_matmul.Matmul)],
    "relu_feed_forward": [(relu_feed_forward.relu_feed_forward, relu_feed_forward.reference)],
    "relu_backward_": [(relu_feed_forward.relu_backward_, masked_gradient)],
    "linear and linears": [(linear.linears, plain_linears), (linear.linear, plain_linear)],
    "bias and ReLU within products": [(cpu_matmul.FusedBF16, cpu_matmul.PaddedBF16)],
    "padded rows": [(cpu_matmul.FusedBF16, cpu_matmul.BF16)],
}


@contextmanager
def replaced(kernel: Any, plain: Any) -> Iterator[None]:
    """Replace a function or a class under every name that a module of ablate has for it."""
    names = []
    for module in list(sys.modules.values()):
        if not module.__name__.startswith("ablate."):
            continue
        for name, value in list(vars(module).items()):
            if value is kernel:
                names.append((module, name))
    for module, name in names:
        setattr(module, name, plain)
    try:
        yield
    finally:
        for module, name in names:
            setattr(module, name, kernel)


def ratios(
    warm_up: int, pairs: int, new_trainer: Callable[[], Any], replacements: list[tuple[Any, Any]]
) -> list[float]:
    """Seconds of a step without the kernel over those of the step with it, for each pair after the
    first ones.
    """
    with_kernel, without = new_trainer(), new_trainer()

    def step(trainer_: Any, step: int) -> float:
        with ExitStack() as stack:
            if trainer_ is without:
                for kernel, plain in replacements:
                    stack.enter_context(replaced(kernel, plain))
            began = time.perf_counter()
            trainer_._step(step)
            return time.perf_counter() - began

    measured = []
    for number in range(1, warm_up + pairs + 1):
        order = [with_kernel, without] if number % 2 else [without, with_kernel]
        seconds = {}
        for trainer_ in order:
            seconds[trainer_] = step(trainer_, number)
        measured.append(seconds[without] / seconds[with_kernel])
    return measured[warm_up:]


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", default=["XS", "S"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--warm-up", type=int, default=10, help="pairs, since batches differ")
    parser.add_argument("--only", nargs="+", choices=PLAIN, default=list(PLAIN), metavar="NAME")
    parser.add_argument("--ids", type=Path)
    a = parser.parse_args()
    if not allocator().keys() <= os.environ.keys():  # read when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], worker_environment(a.threads))
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    data: Split = split(a.ids, TRAIN)
    for size in a.sizes:
        for precision in a.precisions:
            print(f"\n{size}, {precision}, {a.threads} threads")
            config = row(size, precision)
            for name in a.only:
                new_trainer = partial(trainer, config, data)
                measured = ratios(a.warm_up, a.pairs, new_trainer, PLAIN[name])
                low, median, high = statistics.quantiles([*measured, *measured], n=4)
                print(f"  {median:5.2f} ({low:.2f} to {high:.2f})  {name}", flush=True)


if __name__ == "__main__":
    main()
