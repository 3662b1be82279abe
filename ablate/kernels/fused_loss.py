"""The smoothed cross-entropy and its gradient from logits, in one pass over them; for GPUs.

Eager torch makes a tensor of fp32 logits for each operation: 42 bytes of traffic for each logit, counted from the
operators. Compiled, the logits are read in bf16, and their gradient is written in bf16. The compiled function has not
run on a GPU yet; `loss_and_gradient` itself is its reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ablate.kernels.device import fused_on_gpu

MULTIPLE = 8  # a bf16 product is fast on tensor cores if its sizes are multiples of this


def loss_and_gradient(logits: Tensor, targets: Tensor, V: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of `smoothed_cross_entropy`, and its gradient by the logits.

    Args:
        logits: (n, V'), of which the columns from V on are padding.
        targets: token ids (n).
        V: size of the vocabulary.
        smoothing: eps_ls.

    Returns:
        The loss in nats, summed over tokens, in fp32 at least; and the gradient (n, V') in the type of the logits,
        zero in the padding.
    """
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    columns = torch.arange(logits.shape[1], device=logits.device)
    real = columns < V
    # Padding columns must not count in the softmax: exp(-inf) = 0.
    x = torch.where(real, x, float("-inf"))
    Z = x.logsumexp(1, keepdim=True)  # (n, 1)
    hit = columns == targets[:, None]
    goal = (1 - smoothing) * hit.to(x.dtype) + smoothing / V  # on the real columns
    loss = Z[:, 0] - torch.where(real, x * goal, 0.0).sum(1)  # the goals of a token add up to 1
    # In the padding the goal would be eps / V.
    gradient = torch.where(real, (x - Z).exp() - goal, 0.0)
    return loss.sum(), gradient.to(logits.dtype)


fused_loss_and_gradient = fused_on_gpu(loss_and_gradient)


def padded_matrix(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix (V, d) in a type, with rows of zeros up to a multiple of 8."""
    rows = -(-len(matrix) // MULTIPLE) * MULTIPLE
    if rows == len(matrix):
        return matrix.to(dtype)
    out = matrix.new_zeros(rows, matrix.shape[1], dtype=dtype)
    out[: len(matrix)] = matrix
    return out


def smoothed_cross_entropy_with_gradients(
    states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, rows: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of `smoothed_cross_entropy`, with products in a type and `rows` tokens at a time.

    Returns:
        The loss, and its gradients by the states (n, d_model) and by the embedding (V, d_model), in their types.
    """
    V, W = len(embedding), padded_matrix(embedding, dtype)
    operands = states.to(dtype)
    d_states = torch.empty_like(states)
    # In the type of the embedding: a sum over chunks in bf16 would lose small terms.
    d_W = torch.zeros(W.shape, dtype=embedding.dtype, device=embedding.device)
    loss = torch.zeros((), dtype=embedding.dtype, device=embedding.device)
    for start in range(0, len(targets), rows):
        part = slice(start, start + rows)
        some, d_logits = fused_loss_and_gradient(operands[part] @ W.T, targets[part], V, smoothing)
        loss += some
        d_states[part] = d_logits @ W
        d_W += d_logits.T @ operands[part]
    return loss, d_states, d_W[:V]
