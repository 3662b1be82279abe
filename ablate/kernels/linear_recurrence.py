"""Linear recurrences over matrices, chunk by chunk, for retention, gated linear attention, Mamba 2,
DeltaNet and gated DeltaNet; and over vectors, for RWKV and RG-LRU.

The state S (d_k, d_v) of a head follows, for the decay a_t = exp(g_t) of each row of S, the rule

    S_t = a_t S_{t-1} + k_t u_t^T,   o_t = S_t^T q_t

where u_t is the value v_t; or, with the delta rule, b_t (v_t - (a_t S_{t-1})^T k_t): the difference
between the value and the old value that the state has for the key.

Sources: for the chunked form, section 4 of "Gated Linear Attention Transformers" (Yang et al.,
2023); for the chunked delta rule, which solves one triangular system for each chunk, section 3 of
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length" (Yang et al., 2024).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.kernels.device import on_gpu
from ablate.parts.mixer_variants import RECURRENCE_CHUNK, VECTOR_CHUNK


def linear_recurrence(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    log_decay: Tensor,
    beta: Tensor | None = None,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Apply the recurrence to a sequence.

    Args:
        Q: queries (B, h, T, d_k).
        K: keys (B, h, T, d_k). A token with a key of 0, a decay of 1 and a beta of 0 leaves the
            state unchanged.
        V: values (B, h, T, d_v).
        log_decay: logarithms of the decay, at most 0: (B, h, T, 1) for one decay of a head, or (B,
            h, T, d_k) for a decay of each row of its state.
        beta: strength of the delta rule (B, h, T, 1); None to add values as they are.
        state: (B, h, d_k, d_v) before the first token; None for 0.

    Returns:
        Outputs (B, h, T, d_v), and the state after the last token.
    """
    B, h, T, d_k = Q.shape
    if state is None:
        state = Q.new_zeros(B, h, d_k, V.shape[-1])
    if T == 1:
        return _step(Q, K, V, log_decay, beta, state)
    C = min(T, RECURRENCE_CHUNK) if log_decay.shape[-1] == 1 else VECTOR_CHUNK
    Q, K, V, log_decay = (_chunks(x, C) for x in (Q, K, V, log_decay))  # (B, h, n, C, .)
    G = running_sum(log_decay, -2)
    pairs = _decayed_products(Q, K, G)  # (B, h, n, C, C): query i with key j <= i
    queries = Q * G.exp()  # read the state before the chunk
    keys = K * (G[..., -1:, :] - G).exp()  # write the state after the chunk
    decay = G[..., -1, :, None].exp()  # (B, h, n, d_k or 1, 1): of the state, over a chunk
    if beta is not None:
        beta = _chunks(beta, C)
        V, reads = _delta_rule(K, V, G, beta)
    outputs = []
    for n in range(Q.shape[2]):
        U = V[:, :, n] if beta is None else V[:, :, n] - reads[:, :, n] @ state
        outputs.append(queries[:, :, n] @ state + pairs[:, :, n] @ U)
        state = decay[:, :, n] * state + keys[:, :, n].mT @ U
    return torch.cat(outputs, dim=2)[:, :, :T], state


def _step(
    Q: Tensor, K: Tensor, V: Tensor, log_decay: Tensor, beta: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence for a single token."""
    state = log_decay.exp().mT * state
    U = V if beta is None else beta * (V - K @ state)
    state = state + K.mT @ U
    return Q @ state, state


def _chunks(x: Tensor, C: int) -> Tensor:
    """(B, h, T, d) -> (B, h, n, C, d), padded with zeros, which do not change the state."""
    B, h, T, d = x.shape
    return F.pad(x, (0, 0, 0, -T % C)).view(B, h, -1, C, d)


def _decayed_products(Q: Tensor, K: Tensor, G: Tensor) -> Tensor:
    """q_i . k_j for j <= i, times the decays from token j to token i; 0 for j > i: (..., C, C)."""
    C = Q.shape[-2]
    if G.shape[-1] == 1:
        seen = torch.ones(C, C, dtype=torch.bool, device=Q.device).tril()
        # Masked before the exponential, which would overflow for a later j.
        return Q @ K.mT * (G - G.mT).masked_fill(~seen, -torch.inf).exp()
    return _products_by_halves(Q, K, G)


def _products_by_halves(Q: Tensor, K: Tensor, G: Tensor) -> Tensor:
    """`_decayed_products` with a decay for each row of the state, where C is a power of two.

    A decay for each pair of tokens and row would take C exponentials for each token and row. From a
    token of the first half to a token of the second half, the decay is a product of two: to the end
    of the first half, and from there on. So log2(C) exponentials are enough, and none overflows.
    """
    C = Q.shape[-2]
    if C == 1:
        return (Q * K).sum(-1, keepdim=True)
    Q, K, G = (x.unflatten(-2, (2, C // 2)) for x in (Q, K, G))
    first, second = _products_by_halves(Q, K, G).unbind(-3)
    border = G[..., 0, -1:, :]
    queries = Q[..., 1, :, :] * (G[..., 1, :, :] - border).exp()
    keys = K[..., 0, :, :] * (border - G[..., 0, :, :]).exp()
    later = torch.cat([queries @ keys.mT, second], dim=-1)
    return torch.cat([F.pad(first, (0, C // 2)), later], dim=-2)


def _delta_rule(K: Tensor, V: Tensor, G: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """`values` and `reads` in u = values - reads @ state, for all chunks at once.

    Within a chunk u_t depends on every earlier u_j: (I + L) u = b (v - (a k)^T S), where L contains
    the decayed products of keys below the diagonal.
    """
    L = beta * _decayed_products(K, K, G)
    right = torch.cat([beta * V, beta * K * G.exp()], dim=-1)
    solved = torch.linalg.solve_triangular(L, right, upper=False, unitriangular=True)
    values, reads = solved.split([V.shape[-1], K.shape[-1]], dim=-1)
    return values, reads


def running_sum(x: Tensor, dim: int) -> Tensor:
    """Cumulative sums along an axis, in the shape of x.

    On a GPU, torch's cumulative sum has no fixed order, and raises RuntimeError with
    `deterministic: true`. With this setting, each entry becomes the sum of the last 2, 4, 8, ...
    entries in turn (Hillis and Steele, 1986).
    """
    if not (on_gpu(x) and torch.are_deterministic_algorithms_enabled()):
        return x.cumsum(dim)
    x = x.movedim(dim, -1)
    reach = 1
    while reach < x.shape[-1]:
        x = x + F.pad(x[..., :-reach], (reach, 0))
        reach *= 2
    return x.movedim(-1, dim)


def decayed_average(
    K: Tensor, V: Tensor, decay: Tensor, bonus: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Averages of the values so far in each channel (Peng et al., 2023, eq. 16). At token t, an
    earlier token i has the weight exp(k_i - w (t - 1 - i)), and token t has exp(u + k_t).

    Sums are divided by the largest weight so far, so that no exponential overflows.

    Args:
        K: logarithms of weights (B, T, width); the most negative number leaves a token out.
        V: values (B, T, width).
        decay: w of each token (B, T, width) or (1, T, width), not below 0.
        bonus: u (width).
        state: before the first token, the logarithm of the sum of weights and the average (B, 2
            width); None at the beginning of a sequence.

    Returns:
        (B, T, width), and the state after the last token.
    """
    if state is None:
        mass = torch.full_like(K[:, 0], torch.finfo(K.dtype).min / 4)
        average = V.new_zeros(())
        average = average.expand_as(mass)
    else:
        mass, average = state.chunk(2, dim=-1)
    with torch.no_grad():  # the largest weight cancels
        passed = F.pad(running_sum(decay.double(), 1), (0, 0, 1, 0))  # (B, T + 1, width)
        weights = torch.cat([mass[:, None], K], dim=1).double() + passed
        largest = (weights.cummax(1).values - passed).to(K.dtype)
    added = (K - largest[:, 1:]).exp()
    factor = (largest[:, :-1] - decay - largest[:, 1:]).exp()  # of the earlier sums
    sums = vector_recurrence(
        factor.repeat(1, 1, 2),
        torch.cat([added * V, added], dim=-1),
        torch.cat([average, torch.ones_like(mass)], dim=-1),
    )
    values, total = sums.chunk(2, dim=-1)
    masses = torch.cat([mass[:, None], total.log() + largest[:, 1:]], dim=1)
    averages = torch.cat([average[:, None], values / total], dim=1)
    share = (bonus + K - masses[:, :-1]).sigmoid()  # of the token itself
    out = averages[:, :-1].lerp(V, share)
    return out, torch.cat([masses[:, -1], averages[:, -1]], dim=-1)


def vector_recurrence(decay: Tensor, x: Tensor, state: Tensor | None = None) -> Tensor:
    """States s_t = a_t s_{t-1} + x_t of each channel, for all tokens at once.

    Neighboring tokens are joined to pairs. The states of pairs follow the same rule at half of the
    length, so the function calls itself (Blelloch, 1990).

    Args:
        decay: a (B, T, width).
        x: (B, T, width).
        state: (B, width) before the first token; None for 0.

    Returns:
        (B, T, width).
    """
    if state is not None:
        first = x[:, :1] + decay[:, :1] * state[:, None]
        x = first if x.shape[1] == 1 else torch.cat([first, x[:, 1:]], dim=1)
    T = x.shape[1]
    if T == 1:
        return x
    pairs = T // 2
    later = decay[:, 1 : 2 * pairs : 2]
    pair_x = torch.addcmul(x[:, 1 : 2 * pairs : 2], later, x[:, : 2 * pairs : 2])
    second = vector_recurrence(decay[:, : 2 * pairs : 2] * later, pair_x)
    between = torch.addcmul(x[:, 2::2], decay[:, 2::2], second[:, : (T - 1) // 2])
    first = torch.cat([x[:, :1], between], dim=1)
    states = torch.stack([first[:, :pairs], second], dim=2).flatten(1, 2)
    return states if T % 2 == 0 else torch.cat([states, first[:, -1:]], dim=1)
