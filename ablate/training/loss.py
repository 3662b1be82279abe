"""Label-smoothed cross-entropy over a large vocabulary (section 5.4; Szegedy et al., 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ablate.training.precision import bf16_products

CHUNK = 1024  # rows whose logits exist at once: the B x T x V tensor is never made


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
                expected = (1 - smoothing) * logits.gather(1, goal)
                if smoothing:
                    expected += smoothing * logits.mean(1, keepdim=True)
                largest = logits.amax(1, keepdim=True)
                grad = logits.sub_(largest).exp_()  # from here on, in place: softmax, then its gradient
                normaliser = grad.sum(1, keepdim=True)
                total += (normaliser.log() + largest - expected).sum()
                grad.div_(normaliser)
                if smoothing:
                    grad.sub_(smoothing / V)
                grad.scatter_add_(1, goal, grad.new_full(goal.shape, smoothing - 1))
                grad = grad.to(dtype)
                d_states[rows] = grad @ weight
                d_embedding += grad.T @ inputs[rows]
        ctx.save_for_backward(d_states, d_embedding)
        ctx.dtype = states.dtype
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_embedding = ctx.saved_tensors
        return (d_states * grads[0]).to(ctx.dtype), d_embedding * grads[0], None, None, None


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))
