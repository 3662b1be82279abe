"""Label-smoothed cross-entropy over a large vocabulary (section 5.4; Szegedy et al., 2016).

The logits (n, V) are the largest tensor of a training step. They are made a few hundred rows at a time, used for the
loss and its gradient, and freed; and the softmax is never divided by its sum, which the far smaller gradient of the
states is instead.

Gain: the loss and its gradient in 0.4 to 0.7 of the time of torch's softmax and division (benchmarks/LOG.md,
2026-11-21, the training step); the gradient of the states in bf16 another 2 to 4 % of a step at XS and S (2026-11-22).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ablate.config.training import LOGIT_CHUNK_TOKENS
from ablate.kernels.cpu_matmul import matmul_for
from ablate.kernels.device import on_gpu
from ablate.kernels.fused_loss import smoothed_cross_entropy_with_gradients


def smoothed_cross_entropy(states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy in nats against (1 - eps) on the target + eps / V on every token, summed over tokens.

    Args:
        states: decoder states (n, d_model).
        embedding: the matrix that turns states into logits (V, d_model).
        targets: token ids (n), none of them padding.
        smoothing: eps_ls.

    Returns:
        A scalar.
    """
    bf16 = torch.is_autocast_enabled(states.device.type)
    loss: Tensor = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, embedding, targets, smoothing, bf16
    )
    return loss


def reference(states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """`smoothed_cross_entropy` in plain torch, with all logits at once."""
    return F.cross_entropy(states @ embedding.T, targets, label_smoothing=smoothing, reduction="sum")


@torch.no_grad()
def negative_log_likelihood(states: Tensor, embedding: Tensor, targets: Tensor) -> float:
    """Sum over tokens of -ln p(target), in nats; arguments as for `smoothed_cross_entropy`."""
    total = 0.0
    for rows in _chunks(targets):
        logits = states[rows] @ embedding.T  # (c, V)
        chosen = logits.gather(1, targets[rows, None])[:, 0]
        # In double, because a sum over many tokens in fp32 would lose digits.
        total += float((logits.logsumexp(1) - chosen).double().sum())
    return total


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes its gradient in the forward pass: softmax minus the smoothed target."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, embedding: Tensor, targets: Tensor, smoothing: float, bf16: bool) -> Tensor:
        ctx.dtype = states.dtype
        if bf16 and on_gpu(states):
            with torch.autocast(states.device.type, enabled=False):
                total, *gradients = smoothed_cross_entropy_with_gradients(
                    states, embedding, targets, smoothing, LOGIT_CHUNK_TOKENS["cuda"], torch.bfloat16
                )
            ctx.save_for_backward(*gradients)
            return total
        # Products whose output is (c, V), and those whose output is (c, d_model).
        to_logits, to_states = (matmul_for(states.device, bf16, wide) for wide in (True, False))
        with torch.autocast(states.device.type, enabled=False):
            V = embedding.shape[0]
            states = states.to(embedding.dtype)
            weight = to_logits.cast(embedding)
            weight_to_states = to_states.cast(weight)
            d_states = torch.empty_like(states)
            d_embedding = torch.zeros_like(embedding)
            # On the device: reading the value of each chunk from a GPU would wait for it.
            total = torch.zeros((), device=states.device)
            for rows in _chunks(targets):
                target = targets[rows, None]  # (c, 1)
                logits = to_logits.linear(to_logits.pack(states[rows]), weight)[: len(target)].to(
                    states.dtype
                )  # (c, V)
                # exp would overflow without it; the softmax does not change.
                largest = logits.amax(1, keepdim=True)
                expected = (1 - smoothing) * logits.gather(1, target)
                exp = logits.sub_(largest).exp_()  # softmax times Z, in the memory of the logits
                Z = exp.sum(1, keepdim=True)  # (c, 1)
                total += (largest + Z.log() - expected).sum()
                # Z times the gradient by the logits: softmax - (1 - eps) on the target. The division by Z follows
                # below, on (c, d_model) and not on (c, V).
                grad = to_logits.pack(exp.scatter_add_(1, target, (smoothing - 1) * Z))
                d_states[rows] = to_states.grad_input(to_states.pack(grad), weight_to_states)[: len(target)] / Z
                to_logits.grad_weight(grad, to_logits.pack(states[rows] / Z), out=d_embedding)
            if smoothing:  # eps / V on every token is eps times the mean logit, for which no logits are needed
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
        # The incoming gradient is a scalar, since the loss is one: it scales the gradients of the forward pass.
        return (d_states * grads[0]).to(ctx.dtype), d_embedding * grads[0], None, None, None


def _chunks(targets: Tensor) -> Iterator[slice]:
    """Slices of LOGIT_CHUNK_TOKENS tokens."""
    size = LOGIT_CHUNK_TOKENS[targets.device.type]
    return (slice(start, start + size) for start in range(0, len(targets), size))
