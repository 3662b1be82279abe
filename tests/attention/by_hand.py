"""Attention weights set by hand, without a model."""

import torch

from ablate.attention.weights import AttentionWeights, LayerWeights


def weights(rows, kind="encoder", layer=1, queries=None, keys=None, marks=()):
    """A layer with these weights, [head][query][key]."""
    heads = torch.tensor(rows, dtype=torch.float32)
    _, T, S = heads.shape
    queries = queries or tuple(f"q{i}" for i in range(T))
    keys = keys or tuple("</s>" if i in marks else f"k{i}" for i in range(S))
    return LayerWeights(kind, layer, heads, queries, keys)


def random_weights(h, T, S, kind="encoder", layer=1, seed=1, **labels):
    """A layer of h heads with random weights whose rows sum to one; those of a decoder are
    causal.
    """
    scores = 3 * torch.randn(h, T, S, generator=torch.Generator().manual_seed(seed))
    if kind == "decoder":
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(1), -torch.inf)
    return weights(scores.softmax(-1).tolist(), kind, layer, **labels)


def all_weights(*attentions, hidden=()):
    """The weights of these layers; the sentences are the labels of a cross-attention among them."""
    sides = {"source": ("s", "</s>"), "target": ("<s>", "t")}
    for attention in attentions:
        sides = (
            {"source": attention.keys, "target": attention.queries}
            if attention.kind == "cross"
            else sides
        )
    return AttentionWeights(sides["source"], sides["target"], tuple(attentions), tuple(hidden))
