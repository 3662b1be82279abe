"""Label-smoothed cross-entropy over a large vocabulary (section 5.4; Szegedy et al., 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ablate.model.products import bf16_products

CHUNK = 256  # rows whose logits exist at once: the B x T x V tensor is never made, and a chunk stays near the cores


def smoothed_cross_entropy(states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens, in nats, of the cross-entropy against (1 - eps) on the target + eps / V on all.

    Logits are made, used for loss and gradient, and forgotten, CHUNK rows at a time.

    Args:
        states: decoder states (n, d_model).
        embedding: the tied embedding (V, d_model).
        targets: token ids (n), none of them padding.
        smoothing: eps_ls.

    Returns:
        A scalar.
    """
    low = torch.is_autocast_enabled(states.device.type)
    loss: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, embedding, targets, smoothing, low
    )
    return loss


@torch.no_grad()
def negative_log_likelihood(states: Tensor, embedding: Tensor, targets: Tensor) -> float:
    """Sum over tokens of -ln p(target), in nats; arguments as for `smoothed_cross_entropy`."""
    total = 0.0
    for rows in _chunks(len(targets)):
        logits = states[rows] @ embedding.T
        chosen = logits.gather(1, targets[rows, None])[:, 0]
        total += float((logits.logsumexp(1) - chosen).double().sum())
    return total


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes its own gradient in the forward pass: softmax minus the smoothed target."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, low: bool) -> Tensor:
        with torch.autocast(states.device.type, enabled=False), bf16_products(states.device, low) as dtype:
            V = embedding.shape[0]
            weight, inputs = embedding.to(dtype), states.to(dtype)
            d_states = torch.empty_like(inputs)
            d_embedding = torch.zeros_like(embedding)
            total = torch.zeros((), device=states.device)
            for rows in _chunks(len(targets)):
                goal = targets[rows, None]
                logits = (inputs[rows] @ weight.T).float()  # (c, V)
                largest, place = logits.max(1, keepdim=True)
                expected = (1 - smoothing) * logits.gather(1, goal)
                grad = logits.softmax(1)
                # The largest probability is never lost to underflow, so the normaliser follows from it.
                total += (largest - grad.gather(1, place).log() - expected).sum()
                grad.scatter_add_(1, goal, grad.new_full(goal.shape, smoothing - 1))
                grad = grad.to(dtype)
                d_states[rows] = grad @ weight
                d_embedding += grad.T @ inputs[rows]
            if smoothing:  # eps / V on every piece: the mean logit, for which no logits are needed
                mean = embedding.mean(0)
                total -= smoothing * (states.float() @ mean).sum()
                d_states -= (smoothing * mean).to(dtype)
                d_embedding -= smoothing / V * states.float().sum(0)
        ctx.save_for_backward(d_states, d_embedding)
        ctx.dtype = states.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_embedding = ctx.saved_tensors
        return (d_states * grads[0]).to(ctx.dtype), d_embedding * grads[0], None, None, None


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))
