"""Attention by its formula (section 3.2), one pair of a query and a key at a time."""

import math

import torch


def attention_by_formula(module, x, y, seen, score=None, value=None):
    """Concat(head_1, ..., head_h) W^O with head_i = softmax(scores) V_i, of x (B, T, d_model) over
    y (B, S, d_model).

    Args:
        module: multi-head attention of h heads, of which h / g share keys and values.
        x: queries are projected from it.
        y: keys and values are projected from it.
        seen: whether query t of sentence b sees key s, of (b, t, s).
        score: score of (t, s, head, q, k); None for q k / sqrt(d_k).
        value: value of (t, s, v); None for v.
    """
    Q = _projected(module.W_Q, x).unflatten(-1, (module.h, -1))
    K = _projected(module.W_K, y).unflatten(-1, (module.g, -1))
    V = _projected(module.W_V, y).unflatten(-1, (module.g, -1))
    score = score or (lambda t, s, head, q, k: float(q @ k) * len(k) ** -0.5)
    value = value or (lambda t, s, v: v)
    out = torch.zeros(*x.shape[:2], module.W_V.weight.shape[0] // module.g * module.h).double()
    for b in range(len(x)):
        for t in range(x.shape[1]):
            keys = [s for s in range(y.shape[1]) if seen(b, t, s)]
            heads = []
            for head in range(module.h):
                shared = head // (module.h // module.g)
                weights = []
                for s in keys:
                    weights.append(math.exp(score(t, s, head, Q[b, t, head], K[b, s, shared])))
                values = [value(t, s, V[b, s, shared]) for s in keys]
                mixed = sum(w * v for w, v in zip(weights, values, strict=True))
                heads.append(mixed / sum(weights))
            out[b, t] = torch.cat(heads)
    return _projected(module.W_O, out).float()


def _projected(linear, x):
    bias = 0.0 if linear.bias is None else linear.bias.double()
    return x.double() @ linear.weight.double().T + bias
