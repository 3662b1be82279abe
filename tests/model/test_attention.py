"""Attention is the formula of section 3.2, for heads of any size."""

import math

import pytest
import torch

from ablate.model.attention import KeysValues, MultiHeadAttention
from tests.model.small import normal

D_MODEL, H, D_K, D_V = 13, 3, 5, 11  # h * d_k = 15 and h * d_v = 33 are not d_model


def attention(seed=1):
    return MultiHeadAttention(D_MODEL, H, D_K, D_V, torch.Generator().manual_seed(seed))


def by_the_formula(module, x, y, allowed):
    """Concat(head_1 ... head_h) W^O with head_i = softmax(Q_i K_i^T / sqrt(d_k)) V_i, one number at a time."""
    B, T, S = len(x), x.shape[1], y.shape[1]
    out = torch.zeros(B, T, D_MODEL, dtype=torch.float64)
    W_Q, W_K, W_V, W_O = (w.weight.detach().double() for w in (module.W_Q, module.W_K, module.W_V, module.W_O))
    for b in range(B):
        for t in range(T):
            heads = []
            for i in range(H):
                q = W_Q[i * D_K : (i + 1) * D_K] @ x[b, t].double()
                keys = [W_K[i * D_K : (i + 1) * D_K] @ y[b, s].double() for s in range(S)]
                values = [W_V[i * D_V : (i + 1) * D_V] @ y[b, s].double() for s in range(S)]
                weights = [math.exp(float(q @ k) / math.sqrt(D_K)) * allowed(b, t, s) for s, k in enumerate(keys)]
                heads.append(sum(w / sum(weights) * v for w, v in zip(weights, values, strict=True)))
            out[b, t] = W_O @ torch.cat(heads)
    return out.float()


def test_every_position_attends_by_the_formula():
    module, x, y = attention(), normal(2, 5, D_MODEL), normal(2, 7, D_MODEL, seed=2)
    expected = by_the_formula(module, x, y, lambda b, t, s: True)
    torch.testing.assert_close(module(x, module.keys_values(y)), expected)


def test_masked_keys_have_no_weight():
    module, x, y = attention(), normal(2, 5, D_MODEL), normal(2, 7, D_MODEL, seed=2)
    lengths = (4, 7)
    mask = (torch.arange(7) < torch.tensor(lengths)[:, None])[:, None, None, :]
    expected = by_the_formula(module, x, y, lambda b, t, s: s < lengths[b])
    torch.testing.assert_close(module(x, module.keys_values(y), mask), expected)


def test_causal_attention_sees_the_position_itself_and_those_before_it():
    module, x = attention(), normal(2, 7, D_MODEL)
    expected = by_the_formula(module, x, x, lambda b, t, s: s <= t)
    torch.testing.assert_close(module(x, module.keys_values(x), causal=True), expected)


def test_heads_set_by_hand_mix_values_as_computed_by_hand():
    """Head 1 weighs three keys 1 : 2 : 5, head 2 weighs them alike; d_k = 4, so scores are halved."""
    module = MultiHeadAttention(d_model=3, n_heads=2, d_k=4, d_v=1, init=torch.Generator())
    with torch.no_grad():
        for projection in (module.W_Q, module.W_K, module.W_V, module.W_O):
            projection.weight.zero_()
        module.W_Q.weight[0, 0] = 2.0  # head 1 asks 2 x_0 of the first of its four key entries
        module.W_K.weight[0, 1] = 1.0  # where keys hold y_1; head 2 asks nothing
        module.W_V.weight[0, 2] = 1.0  # values are y_2, times 1 for head 1
        module.W_V.weight[1, 2] = 10.0  # and times 10 for head 2
        module.W_O.weight[1, 0] = 1.0  # head 1 goes out at 1
        module.W_O.weight[2, 1] = 1.0  # head 2 goes out at 2
    x = torch.tensor([[[1.0, 0.0, 0.0]]])
    y = torch.tensor([[[0.0, math.log(1), 8.0], [0.0, math.log(2), 16.0], [0.0, math.log(5), 48.0]]])
    # (1 * 8 + 2 * 16 + 5 * 48) / 8 = 35, and 10 * (8 + 16 + 48) / 3 = 240
    torch.testing.assert_close(module(x, module.keys_values(y)), torch.tensor([[[0.0, 35.0, 240.0]]]))


def test_projections_have_the_papers_sizes_and_no_biases():
    sizes = {name: tuple(parameter.shape) for name, parameter in attention().named_parameters()}
    assert sizes == {
        "W_Q.weight": (H * D_K, D_MODEL),
        "W_K.weight": (H * D_K, D_MODEL),
        "W_V.weight": (H * D_V, D_MODEL),
        "W_O.weight": (D_MODEL, H * D_V),
    }


@pytest.mark.parametrize("split", [1, 3, 6])
def test_keys_and_values_may_come_in_two_parts(split):
    module, x, y = attention(), normal(2, 5, D_MODEL), normal(2, 7, D_MODEL, seed=2)
    parts = module.keys_values(y[:, :split]).append(module.keys_values(y[:, split:]))
    torch.testing.assert_close(module(x, parts), module(x, module.keys_values(y)))


def test_rows_of_keys_and_values_are_selected_in_the_order_asked_for():
    K, V = normal(3, 2, 5, 7), normal(3, 2, 5, 11, seed=2)
    some = KeysValues(K, V).select(torch.tensor([2, 0, 2, 1]))
    assert torch.equal(some.K, torch.stack([K[2], K[0], K[2], K[1]]))
    assert torch.equal(some.V, torch.stack([V[2], V[0], V[2], V[1]]))


def test_attention_is_computed_in_fp32_on_a_cpu_whatever_the_products_around_it():
    module, x = attention(), normal(2, 7, D_MODEL)
    with torch.autocast("cpu", torch.bfloat16):
        Q = module.W_Q(x)
        out = module(x, module.keys_values(x), causal=True)
    assert Q.dtype == out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), module(x, module.keys_values(x), causal=True), atol=0.03, rtol=0.03)
