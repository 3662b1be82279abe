"""Sum gradients over the parts of a batch in a fixed binary tree, so that the bits of the sum do
not depend on the number of processes.

A plain all-reduce adds in an order that depends on the number of processes. The last digits of the
sums then differ, and after some hundred steps all digits differ. EasyScale (Li et al., SC 2023)
fixes the order for the same reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ablate.kernels.ranks import Ranks


def rank_parts(parts: int, ranks: Ranks) -> range:
    """Indices of the parts that a rank computes: consecutive, so that their sum is a subtree."""
    share = parts // ranks.size
    return range(ranks.index * share, (ranks.index + 1) * share)


def part_seed(seed: int, step: int, part: int) -> int:
    """Seed of the dropout masks for one part of the batch of a step."""
    # SeedSequence hashes its entropy, so that the masks of consecutive seeds, steps and parts are
    # independent.
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1)[0])


class GradientTree:
    """Sums gradients and losses over the parts of a batch, first on this rank, then over all ranks.

    Attributes:
        gradient_flags: for each parameter, whether it has a gradient from any part so far. The
            ranks agree on this list before `sum_gradients`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        self.parameters = parameters
        self.ranks = ranks
        self.lengths = [parameter.numel() for parameter in parameters]
        size = sum(self.lengths) + 1  # gradients, then the loss
        # Padded to a multiple of the number of ranks, because all_to_all_single sends equal shares.
        self.length = math.ceil(size / ranks.size) * ranks.size
        self.clear()

    def clear(self) -> None:
        """Drop all parts that were added."""
        self.gradient_flags = [False] * len(self.parameters)
        self._subtrees: list[tuple[int, Tensor]] = []  # height and sum of each complete subtree

    def add(self, loss: Tensor) -> None:
        """Add the next part: its loss (a scalar) and the gradients of the parameters, which are
        then cleared.
        """
        total = torch.zeros(self.length, device=loss.device)
        pieces = total[: sum(self.lengths) + 1].split([*self.lengths, 1])
        for i, (parameter, piece) in enumerate(zip(self.parameters, pieces, strict=False)):
            if parameter.grad is not None:
                piece.copy_(parameter.grad.flatten())
                parameter.grad = None
                self.gradient_flags[i] = True
        pieces[-1].copy_(loss)
        height = 0
        # As in a binary counter, two subtrees of equal height are merged, so that memory holds at
        # most one sum for each height.
        while self._subtrees and self._subtrees[-1][0] == height:
            total = self._subtrees.pop()[1].add_(total)
            height += 1
        self._subtrees.append((height, total))

    def sum_gradients(self) -> Tensor:
        """Set the gradients to their sums over all parts of all ranks; return the summed loss."""
        # A single subtree, because the number of a rank's parts is a power of two.
        ((_, total),) = self._subtrees
        self.ranks.sum_in_tree(total)
        pieces = total[: sum(self.lengths)].split(self.lengths)
        for i, (parameter, piece) in enumerate(zip(self.parameters, pieces, strict=True)):
            # An unused parameter has None, not zeros: an optimizer skips None, but moves a
            # parameter with a zero gradient by its momentum.
            parameter.grad = piece.view_as(parameter) if self.gradient_flags[i] else None
        self.clear()
        return total[sum(self.lengths)]
