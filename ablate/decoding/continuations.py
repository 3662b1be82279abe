"""The best continuations of hypotheses, found without a full sort of the vocabulary."""

from __future__ import annotations

from torch import Tensor

MAX_GROUP_SIZE = 128  # number of tokens in a group of the vocabulary


def best_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the n best continuations of the hypotheses of each sentence.

    The vocabulary is divided into groups. Only the n groups with the highest maxima are searched: a
    token of any other group is worse than the n maxima of these groups. This takes half the time of
    torch's topk over all tokens (benchmarks/LOG.md, 2026-11-21, decoding).

    Args:
        log_probs: log-probability of each token after each hypothesis (B, K, V).
        scores: log-probabilities of the hypotheses (B, K).
        n: number of continuations, at most K * V.

    Returns:
        (scores, hypotheses, tokens), each (B, n), the best first: the score of each continuation,
        the index of the hypothesis that it extends, and its last token.
    """
    B, K, V = log_probs.shape
    # The largest group size that divides the vocabulary and leaves at least n groups. If it is 1,
    # such as for a prime V, all tokens are searched.
    sizes = range(1, MAX_GROUP_SIZE + 1)
    size = max(size for size in sizes if V % size == 0 and K * (V // size) >= n)
    groups = log_probs.view(B, K * (V // size), size)
    # The score of each group's hypothesis (B, groups), which is added to the maximum of the group:
    # adding it to all tokens would take a pass over (B, K, V).
    offsets = scores.repeat_interleave(V // size, 1)
    best_groups = (groups.amax(2) + offsets).topk(n).indices  # (B, n)
    members = groups.gather(1, best_groups[:, :, None].expand(-1, -1, size))  # (B, n, size)
    values, indices = (members + offsets.gather(1, best_groups)[:, :, None]).flatten(1).topk(n)
    # Indices into the flattened (K, V).
    flat = best_groups.gather(1, indices // size) * size + indices % size
    return values, flat // V, flat % V
