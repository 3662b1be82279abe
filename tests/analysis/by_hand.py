"""Views whose weights are set by hand, without a model."""

import torch

from ablate.analysis.weights import View, Weights


def weights(rows, kind="encoder", layer=1, queries=None, keys=None, marks=()):
    """An attention of heads with these weights, [head][query][key]."""
    heads = torch.tensor(rows, dtype=torch.float32)
    _, T, S = heads.shape
    queries = queries or tuple(f"q{i}" for i in range(T))
    return Weights(kind, layer, heads, queries, keys or tuple(f"k{i}" for i in range(S)), marks)


def random_weights(h, T, S, kind="encoder", layer=1, seed=1, **labels):
    """Weights of h heads, drawn, whose rows sum to one; those of a decoder look back alone."""
    scores = 3 * torch.randn(h, T, S, generator=torch.Generator().manual_seed(seed))
    if kind == "decoder":
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(1), -torch.inf)
    return weights(scores.softmax(-1).tolist(), kind, layer, **labels)


def view_of(*attentions, hidden=(), in_a_row=False):
    """A view of these; its sides are what the attentions' labels say."""
    sides = {"source": ("s", "</s>"), "target": ("<s>", "t")}
    for attention in attentions:
        sides = {"source": attention.keys, "target": attention.queries} if attention.kind == "cross" else sides
    return View(sides["source"], sides["target"], in_a_row, tuple(attentions), tuple(hidden))
