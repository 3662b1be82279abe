"""Label-smoothed cross-entropy over a large vocabulary (section 5.4; Szegedy et al., 2016)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.config.training import LOGIT_ROWS
from ablate.kernels.cpu_matmul import products


def smoothed_cross_entropy(states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Sum over tokens, in nats, of the cross-entropy against (1 - eps) on the target + eps / V on all.

    Logits are made, used for loss and gradient, and forgotten, a few hundred rows at a time.

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
    for rows in _chunks(targets):
        logits = states[rows] @ embedding.T
        chosen = logits.gather(1, targets[rows, None])[:, 0]
        total += float((logits.logsumexp(1) - chosen).double().sum())
    return total


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes its own gradient in the forward pass: softmax minus the smoothed target.

    The softmax is never divided by its sum Z: a row of d_model numbers is, which are far fewer. It takes
    half the time of torch's softmax and of the division (benchmarks/LOG.md).
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, low: bool) -> Tensor:
        wide, narrow = (products(states.device, low, wide) for wide in (True, False))  # by the width of what comes out
        dtype = states.dtype
        with torch.autocast(states.device.type, enabled=False):
            V = embedding.shape[0]
            states = states.to(embedding.dtype)
            weight = wide.matrix(embedding)
            of_narrow = narrow.matrix(weight)
            d_states = torch.empty_like(states)
            d_embedding = torch.zeros_like(embedding)
            total = torch.zeros((), device=states.device)
            for rows in _chunks(targets):
                goal = targets[rows, None]
                logits = wide.outputs(wide.rows(states[rows]), weight)[: len(goal)].to(states.dtype)  # (c, V)
                largest = logits.amax(1, keepdim=True)
                expected = (1 - smoothing) * logits.gather(1, goal)
                grad = logits.sub_(largest).exp_()
                Z = grad.sum(1, keepdim=True)
                total += (largest + Z.log() - expected).sum()
                grad.scatter_add_(1, goal, (smoothing - 1) * Z)
                grad = wide.rows(grad)
                d_states[rows] = narrow.to_inputs(narrow.rows(grad), of_narrow)[: len(goal)] / Z
                wide.to_weight(grad, wide.rows(states[rows] / Z), onto=d_embedding)
            if smoothing:  # eps / V on every piece: the mean logit, for which no logits are needed
                mean = embedding.mean(0)
                total -= smoothing * (states @ mean).sum()
                d_states -= smoothing * mean
                d_embedding -= smoothing / V * states.sum(0)
        ctx.save_for_backward(d_states, d_embedding)
        ctx.dtype = dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_embedding = ctx.saved_tensors
        return (d_states * grads[0]).to(ctx.dtype), d_embedding * grads[0], None, None, None


def _chunks(targets: Tensor) -> Iterator[slice]:
    size = LOGIT_ROWS[targets.device.type]
    return (slice(start, start + size) for start in range(0, len(targets), size))
