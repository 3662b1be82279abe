"""Positional encodings inside attention: rope, relative, t5 and alibi against the formulas of their
papers.
"""

import cmath
import math

import pytest
import torch

from ablate.model.attention_context import AttentionContext
from ablate.model.positions import buckets, slopes
from ablate.parts.attention import ATTENTIONS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from tests.model.formula import attention_by_formula
from tests.model.small import drawn, normal, parts, places, real, shape

H, D_K, D_V, CLIP = 3, 6, 7, 3
SIZES = {"n_heads": H, "d_k": D_K, "d_v": D_V, "relative_clip": CLIP, "max_positions": 64}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
both_ways = pytest.mark.parametrize("causal", [False, True])


def positions_of(encoding, causal, **fields):
    config = shape(positional_encoding=encoding, **{**SIZES, **fields})
    return (
        POSITIONAL_ENCODINGS[encoding]
        .make(config, causal, torch.Generator().manual_seed(1))
        .requires_grad_(False)
    )


def attended(encoding, causal, lengths, layer=1, **fields):
    """Self-attention of sentences of these lengths: the module, its positions, the input and the
    output.
    """
    made = parts(positional_encoding=encoding, **{**SIZES, **fields})
    positions = made.positions(causal).requires_grad_(False)
    module = drawn(made.token_mixer(positions, causal)).requires_grad_(False).eval()
    T = max(lengths)
    x = normal(len(lengths), T, made.config.d_model)
    seen = None if causal else real(*lengths)
    out, _ = module(
        x,
        None,
        AttentionContext(
            places(T), places(T), seen, causal=causal, positional_encoding=positions, layer=layer
        ),
    )
    return module, positions, x, out


def by_the_formula(module, x, lengths, causal, score, value=None):
    """Self-attention of sentences of these lengths, with the scores and values of an encoding."""

    def seen(b, t, s):
        return s < lengths[b] and (s <= t or not causal)

    return attention_by_formula(module, x, x, seen, score, value)


def assert_equal(out, expected, lengths):
    for b, length in enumerate(lengths):
        torch.testing.assert_close(out[b, :length], expected[b, :length], **CLOSE)


LENGTHS = (9, 2, 5)  # the first is longer than any clip


# Rotary (Su et al., 2021)


@pytest.mark.parametrize("d_k", [2, 6, 64])
def test_rope_rotates_pairs_of_entries_like_complex_numbers(d_k):
    x = normal(1, 1, 7, d_k)
    out = positions_of("rope", True, d_k=d_k).rotate(x, places(7, first=40))
    for t, pos in enumerate(range(40, 47)):
        for i in range(d_k // 2):
            theta = 10_000 ** (-2 * i / d_k)
            turned = complex(*x[0, 0, t, 2 * i : 2 * i + 2].tolist()) * cmath.exp(1j * pos * theta)
            expected = torch.tensor([turned.real, turned.imag])
            torch.testing.assert_close(
                out[0, 0, t, 2 * i : 2 * i + 2], expected, atol=1e-5, rtol=1e-5
            )


@both_ways
@pytest.mark.parametrize("kv_heads", [None, 1])
def test_rope_rotates_queries_and_keys_but_not_values(causal, kv_heads):
    module, _, x, out = attended("rope", causal, LENGTHS, n_kv_heads=kv_heads)

    def score(i, j, head, q, k):
        total = 0.0
        for a in range(D_K // 2):
            turn = cmath.exp(1j * (i - j) * 10_000 ** (-2 * a / D_K))
            total += (
                complex(*q[2 * a : 2 * a + 2]) * turn * complex(*k[2 * a : 2 * a + 2]).conjugate()
            ).real
        return total / math.sqrt(D_K)

    assert_equal(out, by_the_formula(module, x, LENGTHS, causal, score), LENGTHS)


def test_rope_preserves_dtype_and_norm():
    rope, x = positions_of("rope", True), normal(2, H, 11, D_K)
    turned = rope.rotate(x, places(11))
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert rope.rotate(x.bfloat16(), places(11)).dtype == torch.bfloat16


@pytest.mark.parametrize("size", [(1, 1, 1, D_K + 1), (2, H, 11, D_K + 1)])
def test_rope_rotates_heads_that_lie_anywhere_and_has_their_gradient(size):
    x = normal(*size).double()[..., 1:]  # from an odd place on, at odd distances
    rope = positions_of("rope", True).double()
    at = places(size[2], first=5)
    assert torch.equal(rope.rotate(x, at), rope.rotate(x.clone(), at))
    assert torch.autograd.gradcheck(rope.rotate, [x.clone().requires_grad_(), at])


# Relative (Shaw et al., 2018)


@both_ways
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    "fields", [{}, {"n_kv_heads": 1}, {"attention_scale": 1}, {"relative_clip": 20}], ids=str
)
def test_relative_positions_are_added_to_keys_and_to_values(causal, layer, fields):
    """Eq. 3: sum_j alpha_ij (x_j W^V + a^V_ij); eq. 4: x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(d_z)."""
    module, positions, x, out = attended("relative", causal, LENGTHS, layer, **fields)
    scale = 1.0 if "attention_scale" in fields else D_K**-0.5
    k = fields.get("relative_clip", CLIP)

    def vector(table, i, j):
        """a_ij = w_clip(j - i, k) with clip(x, k) = max(-k, min(k, x)); w_(-k) is the table's
        first.
        """
        return table[layer][max(-k, min(k, j - i)) + k].double()

    def score(i, j, head, q, key):
        return float(q @ (key + vector(positions.keys, i, j))) * scale

    def value(i, j, v):
        return v + vector(positions.of_values, i, j)

    assert_equal(out, by_the_formula(module, x, LENGTHS, causal, score, value), LENGTHS)


# Buckets of distances (T5; Raffel et al., 2020)

DISTANCES = range(-1000, 1001)


def bucket_by_the_rule(distance, causal, count=32, farthest=128):
    """T5's rule, in whole numbers: distance is the key's position minus the query's.

    Half of the buckets are for keys ahead, where there are any. Of those for one direction, the
    first half hold a distance each. The others share the logarithm between there and `farthest`: n
    is in the m-th of M of them, counted from 0, where log(n / exact) / log(farthest / exact) >= m /
    M, which is n^M exact^m >= farthest^m exact^M.
    """
    first, n = 0, max(-distance, 0)
    if not causal:
        count //= 2
        first, n = (count if distance > 0 else 0), abs(distance)
    exact = count // 2
    if n < exact:
        return first + n
    M = count - exact
    reached = [m for m in range(M) if n**M * exact**m >= farthest**m * exact**M]
    return first + exact + reached[-1]


@both_ways
def test_t5_looks_up_the_bucket_of_every_distance(causal):
    t5, distances = positions_of("t5", causal), torch.arange(-600, 601)
    found = t5.bias(0, normal(1, H, 1, D_K), torch.tensor([600]), 600 + distances)
    assert torch.equal(found[:, 0], t5.weight[buckets(distances, causal)].T)


@both_ways
def test_buckets_of_distances_follow_the_rule_of_t5(causal):
    found = buckets(torch.tensor(DISTANCES), causal).tolist()
    assert found == [bucket_by_the_rule(distance, causal) for distance in DISTANCES]


@both_ways
def test_t5_adds_a_scalar_per_head_and_bucket_to_the_scores(causal):
    module, positions, x, out = attended("t5", causal, LENGTHS)

    def score(i, j, head, q, k):
        return float(q @ k) / math.sqrt(D_K) + float(
            positions.weight[bucket_by_the_rule(j - i, causal), head]
        )

    assert_equal(out, by_the_formula(module, x, LENGTHS, causal, score), LENGTHS)


# Slopes (ALiBi; Press et al., 2022)


@pytest.mark.parametrize(
    ("n_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (16, [i / 2 for i in range(1, 17)]),
        (3, [4, 8, 2]),  # the slopes of 2 heads, and the first one of 4
        (6, [2, 4, 6, 8, 1, 3]),  # the slopes of 4 heads, and the first and third of 8
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_slopes_are_geometric_and_interleaved_for_other_numbers_of_heads(n_heads, exponents):
    assert slopes(n_heads) == pytest.approx([2**-exponent for exponent in exponents], rel=1e-12)


@both_ways
@pytest.mark.parametrize("fields", [{}, {"n_heads": 4, "n_kv_heads": 2}], ids=str)
def test_alibi_subtracts_slope_times_distance_after_the_scaling(causal, fields):
    module, _, x, out = attended("alibi", causal, LENGTHS, **fields)
    of_heads = slopes(module.h)

    def score(i, j, head, q, k):
        return float(q @ k) / math.sqrt(D_K) - of_heads[head] * abs(i - j)

    assert_equal(out, by_the_formula(module, x, LENGTHS, causal, score), LENGTHS)


@both_ways
@pytest.mark.parametrize("encoding", ["relative", "t5", "alibi"])
def test_local_attention_adds_the_same_biases_within_its_window(causal, encoding):
    """Equal to full attention with minus infinity added outside of the window."""
    window, T = 2, 9
    positions = positions_of(encoding, causal)
    Q, K, V = normal(2, H, T, D_K), normal(2, H, T, D_K, seed=2), normal(2, H, T, D_V, seed=3)
    out = ATTENTIONS["local"].make(shape(attention="local", attention_window=window, **SIZES))(
        Q,
        K,
        V,
        AttentionContext(
            places(T), places(T), causal=causal, positional_encoding=positions, layer=1
        ),
    )
    far = (torch.arange(T)[:, None] - torch.arange(T)).abs() > window
    scores = Q @ K.transpose(-1, -2) + positions.bias(1, Q, places(T), places(T))
    ahead = torch.ones(T, T).triu(1).bool() & causal
    weights = scores.masked_fill(far | ahead, -math.inf).softmax(-1)
    expected, added = weights @ V, positions.values(1, weights, places(T), places(T))
    torch.testing.assert_close(out, expected if added is None else expected + added, **CLOSE)
