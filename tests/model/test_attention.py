"""Attention is the formula of section 3.2, for heads of any size and number."""

import math

import pytest
import torch

from ablate.model.attention_context import AttentionContext
from tests.model.formula import attention_by_formula
from tests.model.small import drawn, normal, parts, places, real

D_MODEL, H, D_K, D_V = 13, 3, 5, 11  # h * d_k = 15 and h * d_v = 33 are not d_model
S, T = 7, 5
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


SIZES = {"d_model": D_MODEL, "n_heads": H, "d_k": D_K, "d_v": D_V, "positional_encoding": "none"}


def attention(**fields):
    return drawn(parts(**{**SIZES, **fields}).cross_attention()).requires_grad_(False).eval()


def over(module, x, y, seen=None):
    """Attention of x over y, limited to the keys that the mask `seen` (B, 1, 1, S) allows."""
    memory = module.key_values(y, AttentionContext(places(y.shape[1]), places(y.shape[1])))
    return module.cross_attend(
        x, memory, AttentionContext(places(x.shape[1]), places(y.shape[1]), seen)
    )


def causal(module, x):
    """Self-attention of x, each position over itself and those before it."""
    return module(x, None, AttentionContext(places(x.shape[1]), places(x.shape[1]), causal=True))


def everything(b, t, s):
    """Every query sees every key."""
    return True


def x_and_y():
    return normal(2, T, D_MODEL), normal(2, S, D_MODEL, seed=2)


def test_masked_keys_have_no_weight():
    module, (x, y) = attention(), x_and_y()
    lengths = (4, 7)
    expected = attention_by_formula(module, x, y, lambda b, t, s: s < lengths[b])
    torch.testing.assert_close(over(module, x, y, real(*lengths)), expected)


def test_causal_attention_sees_the_position_itself_and_those_before_it():
    module, x = attention(), normal(2, S, D_MODEL)
    expected = attention_by_formula(module, x, x, lambda b, t, s: s <= t)
    torch.testing.assert_close(causal(module, x)[0], expected)


def test_attention_scale_1_leaves_scores_unscaled():
    module, (x, y) = attention(attention_scale=1), x_and_y()
    expected = attention_by_formula(module, x, y, everything, lambda t, s, head, q, k: float(q @ k))
    torch.testing.assert_close(over(module, x, y), expected)
    assert not torch.allclose(over(attention(), x, y), expected, atol=0.01)


def test_heads_set_by_hand_mix_values_as_computed_by_hand():
    """Head 1 weighs three keys 1 : 2 : 5, head 2 weighs them alike; d_k = 4, so scores are
    halved.
    """
    module = attention(d_model=3, n_heads=2, d_k=4, d_v=1)
    for projection in (module.W_Q, module.W_K, module.W_V, module.W_O):
        projection.weight.zero_()
    module.W_Q.weight[0, 0] = 2.0  # head 1 asks 2 x_0 of the first of its four key entries
    module.W_K.weight[0, 1] = 1.0  # where keys hold y_1; head 2 asks nothing
    module.W_V.weight[0, 2] = 1.0  # values are y_2, times 1 for head 1
    module.W_V.weight[1, 2] = 10.0  # and times 10 for head 2
    module.W_O.weight[1, 0] = 1.0  # head 1 goes out at 1
    module.W_O.weight[2, 1] = 1.0  # head 2 goes out at 2
    x = torch.tensor([[[1.0, 0.0, 0.0]]])
    y = torch.tensor(
        [[[0.0, math.log(1), 8.0], [0.0, math.log(2), 16.0], [0.0, math.log(5), 48.0]]]
    )
    # (1 * 8 + 2 * 16 + 5 * 48) / 8 = 35, and 10 * (8 + 16 + 48) / 3 = 240
    torch.testing.assert_close(over(module, x, y), torch.tensor([[[0.0, 35.0, 240.0]]]))


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_grouped_heads_attend_attention_by_formula(kv_heads):
    module, (x, y) = attention(n_heads=6, n_kv_heads=kv_heads), x_and_y()
    torch.testing.assert_close(over(module, x, y), attention_by_formula(module, x, y, everything))


def test_attention_is_computed_in_fp32_on_a_cpu_under_bf16_autocast():
    module, x, shown = attention(), normal(2, S, D_MODEL), []
    expected, _ = causal(module, x)
    module.on_weights = shown.append
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = causal(module, x)
    assert shown[0].dtype == torch.float32
    torch.testing.assert_close(
        shown[0].sum(-1), torch.ones(2, H, S)
    )  # rounded weights would not sum to 1
    torch.testing.assert_close(out.float(), expected, atol=0.03, rtol=0.03)


# Reported weights and factors of heads

# One configuration for each way in which a kind of attention and an encoding form the weights.
WATCHED = [
    {},
    {"n_kv_heads": 1},
    {"attention": "local", "attention_window": 2},
    {"attention": "linear"},
    {"positional_encoding": "rope", "d_k": 6},
    {"positional_encoding": "t5"},
    {"positional_encoding": "alibi"},
]
every_watched = pytest.mark.parametrize("fields", WATCHED, ids=str)


def self_attention(**fields):
    """Causal self-attention, with its positions."""
    made = parts(**{**SIZES, **fields})
    positions = made.positions(causal=True).requires_grad_(False)
    return made.token_mixer(positions, causal=True).requires_grad_(False).eval(), positions


def watched(module, *args):
    """The output, and the reported weights."""
    shown = []
    module.on_weights = shown.append
    out = module(*args)
    module.on_weights = None
    (weights,) = shown
    return out[0], weights


@every_watched
def test_reported_weights_sum_to_one_are_causal_and_reproduce_the_output(fields):
    module, positions = self_attention(**fields)
    x, context = (
        normal(2, S, D_MODEL),
        AttentionContext(places(S), places(S), causal=True, positional_encoding=positions),
    )
    expected, left = module(x, None, context)
    out, weights = watched(module, x, None, context)
    torch.testing.assert_close(out, expected, **CLOSE)
    assert weights.shape == (2, H, S, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, S))
    assert not weights.triu(1).any()
    assert float(weights.min()) >= 0
    values = left.memory.V.repeat_interleave(H // module.g, dim=1)
    heads = weights @ values  # (B, h, T, d_v)
    torch.testing.assert_close(module.W_O(heads.transpose(1, 2).flatten(2)), out, **CLOSE)


def test_reported_weights_are_zero_on_padding():
    module, shown = attention(), []
    module.on_weights = shown.append
    x, y = x_and_y()
    out = over(module, x, y, real(4, 7))
    module.on_weights = None
    torch.testing.assert_close(out, over(module, x, y, real(4, 7)))
    assert not shown[0][0, :, :, 4:].any()
    assert float(shown[0][1].min()) > 0


# Dropout on weights


def revealing(rate):
    """One head whose output is its weights: values are one-hot, and W_V and W_O the identity."""
    module = attention(d_model=S, n_heads=1, d_k=D_K, d_v=S, attention_dropout=rate)
    for projection in (module.W_V, module.W_O):
        projection.weight.copy_(torch.eye(S))
    return module


def test_dropout_acts_on_attention_weights_after_the_softmax():
    rate, B = 0.25, 400
    module, x, y = revealing(rate), normal(1, T, S), torch.eye(S)[None]
    weights = over(module, x, y).expand(B, -1, -1)
    dropped = over(module.train(), x.expand(B, -1, -1), y.expand(B, -1, -1))
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / (1 - rate))[kept], atol=1e-5, rtol=1e-4)
    n = kept.numel()
    assert float((~kept).float().mean()) == pytest.approx(
        rate, abs=5 * math.sqrt(rate * (1 - rate) / n)
    )
    # Each weight is w / (1 - rate) or 0, so its variance is w^2 rate / (1 - rate).
    deviation = weights[0] * math.sqrt(rate / (1 - rate) / B)
    assert bool(((dropped.mean(0) - weights[0]).abs() < 5 * deviation).all())


def test_reported_weights_are_those_before_dropout():
    module, shown = revealing(0.5).train(), []
    x, y = normal(1, T, S), torch.eye(S)[None]
    module.on_weights = shown.append
    out = over(module, x, y)
    torch.testing.assert_close(shown[0].sum(-1), torch.ones(1, 1, T))
    assert (out == 0).any()


def test_the_query_mask_limits_each_query_to_its_keys():
    """Hypotheses of one sentence are decoded in this way."""
    module, x = attention(), normal(2, S, D_MODEL)
    seen = torch.rand(2, S, S, generator=torch.Generator().manual_seed(1)) < 0.6
    seen |= torch.eye(S, dtype=torch.bool)
    out, _ = module(x, None, AttentionContext(places(S), places(S), query_mask=seen[:, None]))
    torch.testing.assert_close(
        out, attention_by_formula(module, x, x, lambda b, t, s: bool(seen[b, t, s])), **CLOSE
    )
