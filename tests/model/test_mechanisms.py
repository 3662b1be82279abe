"""Local attention is full attention under a band, and linear attention its quadratic form."""

import math

import pytest
import torch

from ablate.model import attention
from ablate.model.attention import FullAttention, LinearAttention, LocalAttention
from ablate.model.attention_context import AttentionContext
from ablate.parts.attention import ATTENTIONS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from tests.model.small import normal, places, real, shape, small_model

B, H, D_K, D_V = 2, 3, 5, 7
SCALE = 0.37


def mechanism(name, **fields):
    return ATTENTIONS[name].make(shape(n_heads=H, d_k=D_K, d_v=D_V, attention=name, **fields))


def queries_keys_values(T, S, dtype=torch.float32):
    sizes = ((B, H, T, D_K), (B, H, S, D_K), (B, H, S, D_V))
    return [normal(*size, seed=seed).to(dtype) for seed, size in enumerate(sizes)]


def naive(Q, K, V, weigh, allowed):
    """The mean of values under weights `weigh(query, key)` of the keys that are allowed, one number
    at a time.
    """
    out = torch.zeros(*Q.shape[:3], V.shape[3], dtype=torch.float64)
    Q, K, V = (x.detach().double() for x in (Q, K, V))
    for b in range(Q.shape[0]):
        for h in range(Q.shape[1]):
            for t in range(Q.shape[2]):
                seen = [s for s in range(K.shape[2]) if allowed(b, t, s)]
                weights = [weigh(Q[b, h, t], K[b, h, s]) for s in seen]
                out[b, h, t] = sum(
                    w * V[b, h, s] for w, s in zip(weights, seen, strict=True)
                ) / sum(weights)
    return out


def softmaxed(q, k):
    return math.exp(SCALE * float(q @ k))


def kernel(q, k):
    """phi(q) . phi(k) with phi(x) = elu(x) + 1."""

    def phi(x):
        return x + 1 if x > 0 else math.exp(x)

    return sum(phi(float(a)) * phi(float(b)) for a, b in zip(q, k, strict=True))


def watch_nothing(weights):
    """Callback that makes a kind of attention compute its weights."""


every_way = pytest.mark.parametrize("watch", [None, watch_nothing], ids=["fused", "formed"])


@every_way
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 2, 5, 10, 11, 40])
def test_local_attention_reaches_exactly_its_window_on_both_sides(watch, causal, window):
    T = 11
    Q, K, V = queries_keys_values(T, T)
    context = AttentionContext(places(T), places(T), causal=causal, scale=SCALE, on_weights=watch)
    expected = naive(
        Q, K, V, softmaxed, lambda b, t, s: abs(t - s) <= window and (s <= t or not causal)
    )
    local = mechanism("local", attention_window=window)
    torch.testing.assert_close(local(Q, K, V, context), expected.float(), atol=1e-5, rtol=1e-5)
    if window >= T - 1:
        torch.testing.assert_close(local(Q, K, V, context), mechanism("full")(Q, K, V, context))


@every_way
def test_local_attention_ignores_padding_and_never_gives_nan(watch):
    """The first sentence has 4 of 11 positions: from the seventh on, a window of 2 reaches none of
    its tokens.
    """
    T, lengths, window = 11, (4, 11), 2
    Q, K, V = queries_keys_values(T, T)
    context = AttentionContext(places(T), places(T), real(*lengths), scale=SCALE, on_weights=watch)
    inputs = [x.requires_grad_() for x in (Q, K, V)]
    out = mechanism("local", attention_window=window)(*inputs, context)
    near = [[abs(t - s) <= window and s < n for s in range(T)] for n in lengths for t in range(T)]
    assert not all(any(row) for row in near)
    expected = naive(
        Q[:, :, :4], K, V, softmaxed, lambda b, t, s: abs(t - s) <= window and s < lengths[b]
    )
    torch.testing.assert_close(out[:, :, :4].double(), expected, atol=1e-5, rtol=1e-5)
    assert bool(out.isfinite().all())
    out.sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in inputs)


@every_way
@pytest.mark.parametrize("T", [1, 4])
def test_linear_attention_is_its_quadratic_form(watch, T):
    lengths = (6, 9)
    Q, K, V = queries_keys_values(T, 9)
    context = AttentionContext(places(T), places(9), real(*lengths), on_weights=watch)
    expected = naive(Q, K, V, kernel, lambda b, t, s: s < lengths[b])
    torch.testing.assert_close(
        mechanism("linear")(Q, K, V, context), expected.float(), atol=1e-5, rtol=1e-5
    )


@every_way
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 10, 11, 12, 64])
def test_causal_linear_attention_is_its_quadratic_form_for_every_chunk_size(
    monkeypatch, watch, chunk
):
    T = 11
    monkeypatch.setattr(attention, "LINEAR_CHUNK", chunk)
    Q, K, V = queries_keys_values(T, T)
    context = AttentionContext(places(T), places(T), causal=True, on_weights=watch)
    expected = naive(Q, K, V, kernel, lambda b, t, s: s <= t)
    torch.testing.assert_close(
        mechanism("linear")(Q, K, V, context), expected.float(), atol=1e-5, rtol=1e-5
    )


def test_causal_linear_attention_ignores_padding(monkeypatch):
    monkeypatch.setattr(attention, "LINEAR_CHUNK", 3)
    T, lengths = 7, (4, 7)
    Q, K, V = queries_keys_values(T, T)
    out = mechanism("linear")(
        Q, K, V, AttentionContext(places(T), places(T), real(*lengths), causal=True)
    )
    expected = naive(Q, K, V, kernel, lambda b, t, s: s <= t and s < lengths[b])
    torch.testing.assert_close(out, expected.float(), atol=1e-5, rtol=1e-5)


@every_way
@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_with_zero_weights_gives_zeros_and_finite_gradients(watch, causal):
    """In fp32 elu(x) + 1 is 0 below -17, and a mean under such weights would be 0 / 0."""
    T = 5
    Q, K, V = queries_keys_values(T, T)
    inputs = [x.detach().requires_grad_() for x in (Q, K - 40, V)]
    out = mechanism("linear")(
        *inputs, AttentionContext(places(T), places(T), causal=causal, on_weights=watch)
    )
    assert not out.any()
    out.sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in inputs)


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("full", "none"), ("full", "relative"), ("full", "t5"), ("full", "alibi"), ("local", "none"), ("local", "t5"),
     ("linear", "none")],
)  # fmt: skip
def test_bf16_queries_keys_and_values_give_bf16_heads(name, encoding):
    """As on a GPU, where attention is computed in the type that the projections have."""
    config = shape(n_heads=H, d_k=D_K, d_v=D_V, attention=name, positional_encoding=encoding)
    order = (
        POSITIONAL_ENCODINGS[encoding]
        .make(config, True, torch.Generator().manual_seed(1))
        .requires_grad_(False)
    )
    T = 11
    Q, K, V = queries_keys_values(T, T)
    context = AttentionContext(
        places(T), places(T), causal=True, positional_encoding=order, scale=SCALE
    )
    expected = ATTENTIONS[name].make(config)(Q, K, V, context)
    out = ATTENTIONS[name].make(config)(*(x.bfloat16() for x in (Q, K, V)), context)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.05)


def test_cross_attention_is_full_for_every_kind_of_self_attention():
    for name, kind in (("local", LocalAttention), ("linear", LinearAttention)):
        model = small_model(attention=name, attention_window=1)
        kinds = {type(layer.cross_attention.mechanism) for layer in model.decoder}
        assert kinds == {FullAttention}
        assert {type(layer.mixer.mechanism) for layer in model.decoder} == {kind}
