"""Label-smoothed cross-entropy over a large vocabulary (section 5.4; Szegedy et al., 2016).

The logits (n, V) are the largest tensor of a training step. They are computed in chunks of a few
hundred rows, used for the loss and its gradient, and freed. The exponentials are not divided by
their sum: the gradient by the states, which is far smaller, is divided instead.

On a GPU in bf16, the loss and its gradient are computed in one pass over the logits. Torch without
compilation writes fp32 logits for each operation: 42 bytes of memory traffic for each logit,
counted from the operators. The compiled function reads logits in bf16 and writes their gradient in
bf16. It has not run on a GPU yet; its reference is `loss_and_gradient`.

Gain: the loss and its gradient in 0.4 to 0.7 of the time of torch's softmax and division
(benchmarks/LOG.md, 2026-11-21, the training step); the gradient of the states in bf16 another 2 to
4 % of a step at XS and S (2026-11-22). On a CPU, torch's `linear_cross_entropy` (2.13) takes 1.2
to 1.9 times as long, in chunks or whole (2026-11-27).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ablate.config.training import LOGIT_CHUNK_TOKENS
from ablate.kernels.cpu_matmul import matmul_for
from ablate.kernels.device import fused_on_gpu, on_gpu

LossTerm = Callable[[Tensor, Tensor], Tensor]
MULTIPLE = 8  # a bf16 product is fast on tensor cores if its dimensions are multiples of this


def smoothed_cross_entropy(
    states: Tensor,
    embedding: Tensor,
    targets: Tensor,
    smoothing: float,
    cap: float | None = None,
    z_loss: float = 0.0,
    term: LossTerm | None = None,
) -> Tensor:
    """Cross-entropy in nats, summed over tokens, against the smoothed target: (1 - eps) on the
    target token plus eps / V on every token.

    Args:
        states: decoder states (n, d_model).
        embedding: the matrix (V, d_model) that maps states to logits.
        targets: token ids (n), none of them padding.
        smoothing: eps_ls.
        cap: soft cap of the logits; None for no cap.
        z_loss: weight of the squared logarithm of the softmax denominator.
        term: a further term of the loss, as a function of logits (n, V) and targets (n), summed
            over tokens.

    Returns:
        A scalar.
    """
    if cap is not None or z_loss or term is not None:
        total = states.new_zeros((), dtype=embedding.dtype)
        for rows in _chunks(targets):
            # Recomputed in the backward pass, so that memory holds the logits of a single chunk.
            total = total + checkpoint(
                _loss_of_chunk, states[rows], embedding, targets[rows], smoothing, cap, z_loss,
                term, use_reentrant=False,
            )  # fmt: skip
        return total
    bf16 = torch.is_autocast_enabled(states.device.type)
    loss: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, embedding, targets, smoothing, bf16
    )
    return loss


def _loss_of_chunk(
    states: Tensor,
    embedding: Tensor,
    targets: Tensor,
    smoothing: float,
    cap: float | None,
    z_loss: float,
    term: LossTerm | None,
) -> Tensor:
    logits = soft_cap(F.linear(states, embedding).to(embedding.dtype), cap)
    loss = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    if term is not None:
        loss = loss + term(logits, targets)
    return loss + z_loss * logits.logsumexp(1).square().sum()


def soft_cap(logits: Tensor, cap: float | None) -> Tensor:
    """Cap * tanh(logits / cap), for any shape; the logits if `cap` is None."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def reference(states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """`smoothed_cross_entropy` in plain torch, with all logits at once."""
    return F.cross_entropy(
        states @ embedding.T, targets, label_smoothing=smoothing, reduction="sum"
    )


@torch.no_grad()
def negative_log_likelihood(
    states: Tensor, embedding: Tensor, targets: Tensor, cap: float | None = None
) -> float:
    """Sum over tokens of -ln p(target), in nats; arguments as for `smoothed_cross_entropy`."""
    total = 0.0
    for rows in _chunks(targets):
        logits = soft_cap(states[rows] @ embedding.T, cap)  # (c, V)
        chosen = logits.gather(1, targets[rows, None])[:, 0]
        # In double, because a sum over many tokens in fp32 would lose digits.
        total += float((logits.logsumexp(1) - chosen).double().sum())
    return total


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes its gradient in the forward pass: softmax minus the smoothed target."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, bf16: bool
    ) -> Tensor:
        ctx.dtype = states.dtype
        if bf16 and on_gpu(states):
            with torch.autocast(states.device.type, enabled=False):
                rows_at_once = LOGIT_CHUNK_TOKENS["cuda"]
                total, *gradients = smoothed_cross_entropy_with_gradients(
                    states, embedding, targets, smoothing, rows_at_once, torch.bfloat16
                )
            ctx.save_for_backward(*gradients)
            return total
        # For products with outputs (c, V), and for products with outputs (c, d_model).
        logit_matmul = matmul_for(states.device, bf16, wide=True)
        state_matmul = matmul_for(states.device, bf16)
        with torch.autocast(states.device.type, enabled=False):
            V = embedding.shape[0]
            states = states.to(embedding.dtype)
            weight = logit_matmul.cast(embedding)
            state_weight = state_matmul.cast(weight)
            d_states = torch.empty_like(states)
            d_embedding = torch.zeros_like(embedding)
            # A tensor on the device, because reading the value of a chunk would wait for the GPU.
            total = torch.zeros((), device=states.device)
            for rows in _chunks(targets):
                target = targets[rows, None]  # (c, 1)
                # (c', V), perhaps with padding rows
                logits = logit_matmul.linear(logit_matmul.pack(states[rows]), weight)
                logits = logits[: len(target)].to(states.dtype)  # (c, V)
                # Subtracted to prevent overflow of exp; the softmax is the same without it.
                largest = logits.amax(1, keepdim=True)
                expected = (1 - smoothing) * logits.gather(1, target)
                exp = logits.sub_(largest).exp_()  # softmax times Z, in the memory of the logits
                Z = exp.sum(1, keepdim=True)  # (c, 1)
                total += (largest + Z.log() - expected).sum()
                # Z times the gradient by the logits, which is softmax - (1 - eps) on the target.
                # The division by Z follows below, on (c, d_model) and not on (c, V).
                grad = logit_matmul.pack(exp.scatter_add_(1, target, (smoothing - 1) * Z))
                d_rows = state_matmul.grad_input(state_matmul.pack(grad), state_weight)
                d_states[rows] = d_rows[: len(target)] / Z
                scaled = logit_matmul.pack(states[rows] / Z)
                logit_matmul.grad_weight(grad, scaled, out=d_embedding)
            # The term eps / V on every token is eps times the mean logit, which needs no logits.
            if smoothing:
                mean = embedding.mean(0)
                total -= smoothing * (states @ mean).sum()
                d_states -= smoothing * mean
                d_embedding -= smoothing / V * states.sum(0)
        ctx.save_for_backward(d_states, d_embedding)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_embedding = ctx.saved_tensors
        # The loss is a scalar, and so is the incoming gradient: it scales the gradients that the
        # forward pass has computed.
        return (d_states * grads[0]).to(ctx.dtype), d_embedding * grads[0], None, None, None


def _chunks(targets: Tensor) -> Iterator[slice]:
    """Slices of LOGIT_CHUNK_TOKENS tokens each."""
    size = LOGIT_CHUNK_TOKENS[targets.device.type]
    return (slice(start, start + size) for start in range(0, len(targets), size))


def loss_and_gradient(
    logits: Tensor, targets: Tensor, V: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The loss of `smoothed_cross_entropy`, and its gradient by the logits.

    Args:
        logits: (n, V'); columns from V on are padding.
        targets: token ids (n).
        V: size of the vocabulary.
        smoothing: eps_ls.

    Returns:
        The loss in nats, summed over tokens, in fp32 at least; and the gradient (n, V') in the type
        of the logits, zero in the padding.
    """
    x = logits.to(torch.promote_types(logits.dtype, torch.float32))
    columns = torch.arange(logits.shape[1], device=logits.device)
    real = columns < V
    # exp(-inf) = 0, so that padding columns add nothing to the softmax.
    x = torch.where(real, x, float("-inf"))
    Z = x.logsumexp(1, keepdim=True)  # (n, 1)
    hit = columns == targets[:, None]
    target = (1 - smoothing) * hit.to(x.dtype) + smoothing / V  # on the real columns
    loss = Z[:, 0] - torch.where(real, x * target, 0.0).sum(1)  # the smoothed target adds up to 1
    # In the padding the smoothed target would be eps / V.
    gradient = torch.where(real, (x - Z).exp() - target, 0.0)
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
    states: Tensor,
    embedding: Tensor,
    targets: Tensor,
    smoothing: float,
    rows: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of `smoothed_cross_entropy`, with products in `dtype` and `rows` tokens at a time.

    Returns:
        The loss, and its gradients by the states (n, d_model) and by the embedding (V, d_model), in
        their types.
    """
    V = len(embedding)
    W = padded_matrix(embedding, dtype)
    operands = states.to(dtype)
    d_states = torch.empty_like(states)
    # In the type of the embedding, because a sum over chunks in bf16 would lose small terms.
    d_W = torch.zeros(W.shape, dtype=embedding.dtype, device=embedding.device)
    loss = torch.zeros((), dtype=embedding.dtype, device=embedding.device)
    for start in range(0, len(targets), rows):
        chunk = slice(start, start + rows)
        logits = operands[chunk] @ W.T
        chunk_loss, d_logits = fused_loss_and_gradient(logits, targets[chunk], V, smoothing)
        loss += chunk_loss
        d_states[chunk] = d_logits @ W
        d_W += d_logits.T @ operands[chunk]
    return loss, d_states, d_W[:V]
