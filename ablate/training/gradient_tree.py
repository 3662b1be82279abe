"""Sum the gradients of a batch's parts in a fixed binary tree, so that any number of processes
gives the same bits.

A plain all-reduce adds in an order that depends on the number of processes. The last digits then
differ, and after some hundred steps all digits do. EasyScale (Li et al., SC 2023) fixes the order
for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ablate.kernels.ranks import Ranks


def parts_of_rank(parts: int, ranks: Ranks) -> range:
    """The parts of a batch that a rank works on: neighbors, whose sum is a branch of the tree."""
    share = parts // ranks.size
    return range(ranks.index * share, (ranks.index + 1) * share)


def part_seed(seed: int, step: int, part: int) -> int:
    """The seed of dropout masks of a part of a step; a run without parts keeps one stream."""
    # SeedSequence mixes its entropy, so neighboring seeds, steps and parts have unrelated streams.
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1)[0])


class GradientTree:
    """Adds up gradients and losses of parts: first those of this rank, then those of all ranks.

    Attributes:
        has_gradient: whether each parameter has had a gradient in any part so far. The ranks agree
            on it before `sum`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        self.parameters = parameters
        self.ranks = ranks
        self.lengths = [parameter.numel() for parameter in parameters]
        used = sum(self.lengths) + 1  # the last one is the loss
        # all_to_all_single sends equal shares, so the vector is padded to a multiple of the ranks.
        self.length = -(-used // ranks.size) * ranks.size
        self.clear()

    def clear(self) -> None:
        """Forget all parts."""
        self.has_gradient = [False] * len(self.parameters)
        self._sums: list[tuple[int, Tensor]] = []  # of whole branches, with their heights

    def add(self, loss: Tensor) -> None:
        """Add the next part: its loss (a scalar), and the parameters' gradients, then cleared."""
        total = torch.zeros(self.length, device=loss.device)
        pieces = total[: sum(self.lengths) + 1].split([*self.lengths, 1])
        for i, (parameter, piece) in enumerate(zip(self.parameters, pieces, strict=False)):
            if parameter.grad is not None:
                piece.copy_(parameter.grad.flatten())
                parameter.grad = None
                self.has_gradient[i] = True
        pieces[-1].copy_(loss)
        height = 0
        # As in a binary counter: two branches of equal height become one, a vector for each level.
        while self._sums and self._sums[-1][0] == height:
            total = self._sums.pop()[1].add_(total)
            height += 1
        self._sums.append((height, total))

    def sum(self) -> Tensor:
        """Set gradients to the sum over all parts of all ranks; returns that of the losses."""
        ((_, total),) = self._sums  # the parts of a rank are a power of two
        self.ranks.sum_in_tree(total)
        pieces = total[: sum(self.lengths)].split(self.lengths)
        for i, (parameter, piece) in enumerate(zip(self.parameters, pieces, strict=True)):
            # None and not zeros for an unused parameter: an optimizer skips None, but still moves a
            # parameter with a zero gradient by its momentum.
            parameter.grad = piece.view_as(parameter) if self.has_gradient[i] else None
        self.clear()
        return total[sum(self.lengths)]
