"""Decoder-only models: one causal stack over the concatenated source and target."""

import pytest
import torch

from ablate.model.attention_context import AttentionContext
from tests.model.random_shapes import RECURRENT_MIXERS
from tests.model.small import ENCODINGS, V, places, sentences, small_model

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
# Every kind of positional encoding, and the mixers, which have none.
VARIANTS = [
    *({"positional_encoding": encoding} for encoding in ENCODINGS),
    {"mixer": "lstm"},
    {"mixer": "gru"},
    *({"mixer": name} for name in RECURRENT_MIXERS if name != "rg_lru"),
    {"mixer": "rg_lru", "d_v": 10},  # that of d_k
    {"attention": "linear"},
    {"attention": "local", "attention_window": 3},
    {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu"},
]
every_variant = pytest.mark.parametrize("fields", VARIANTS, ids=str)
SOURCE_LENGTHS, TARGET_LENGTHS = (4, 7, 1), (5, 2, 9)


def decoder_only(**fields):
    return small_model(architecture="decoder-only", **fields).requires_grad_(False)


def language_model(model, tokens):
    """States of one sequence (1, L) by the layers of the model, one after another."""
    at = places(tokens.shape[1])
    x = model.positions.embed(model.embedding(tokens), at)
    for i, layer in enumerate(model.decoder):
        context = AttentionContext(
            at, at, causal=True, positional_encoding=model.positions, layer=i
        )
        x = layer.apply_feed_forward(layer.apply_mixer(x, None, context)[0])
    return model.decoder_norm(x)


@every_variant
def test_states_equal_those_of_the_concatenated_sequence_without_padding(fields):
    model = decoder_only(**fields)
    sources, targets = sentences(*SOURCE_LENGTHS), sentences(*TARGET_LENGTHS, seed=2)
    together = model(sources, targets)
    assert together.shape == (3, 9, 26)
    for b, (S, T) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        packed = torch.cat([sources[b : b + 1, :S], targets[b : b + 1, :T]], dim=1)
        torch.testing.assert_close(
            together[b : b + 1, :T], language_model(model, packed)[:, S:], **CLOSE
        )


@every_variant
def test_the_first_decoding_step_equals_the_state_of_the_first_target_position(fields):
    """For every hypothesis of every sentence."""
    model, K = decoder_only(**fields), 2
    sources = sentences(*SOURCE_LENGTHS)
    first = torch.tensor([[2, 5], [7, 2], [11, 13]])
    states = model.step(first, model.start(sources, K))
    for b, S in enumerate(SOURCE_LENGTHS):
        for k in range(K):
            packed = torch.cat([sources[b : b + 1, :S], first[b : b + 1, k : k + 1]], dim=1)
            torch.testing.assert_close(states[b, k], language_model(model, packed)[0, -1], **CLOSE)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mixer": "lstm"},
        {"positional_encoding": "learned"},
        {"architecture": "encoder-decoder"},
    ],
    ids=str,
)
def test_padding_receives_no_gradient(fields):
    model = small_model(**{"architecture": "decoder-only", **fields})
    source, target = sentences(2, 7), sentences(5, 3, seed=2)
    model(source, target)[target != 0].sum().backward()
    assert not model.embedding.weight.grad[0].any()
    used = torch.zeros(V, dtype=torch.bool)
    used[torch.cat([source.flatten(), target.flatten()])] = True
    used[0] = False
    assert torch.equal(model.embedding.weight.grad.abs().sum(1) > 0, used)


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"positional_encoding": "rope", "rope_fraction": 0.4}, 5 + 4),
        ({"positional_encoding": "rope"}, 5 + 10),
        ({"positional_encoding": "none", "query_rank": 4}, 5),
        ({"positional_encoding": "learned", "attention": "local", "attention_window": 2}, 5),
        ({"positional_encoding": "none", "score_cap": 3.0, "attention_sinks": True}, 5),
        ({"positional_encoding": "alibi"}, None),
        ({"positional_encoding": "none", "qk_norm": "head"}, None),
        ({"positional_encoding": "none", "exclude_own_value": True}, None),
    ],
    ids=str,
)
def test_latent_attention_keeps_latent_vectors_where_nothing_changes_what_is_made_of_them(
    fields, kept
):
    model = small_model(architecture="decoder-only", kv_rank=5, **fields).double()
    tokens = sentences(9, 9)
    expected = model.read(tokens)
    cache = model.start(tokens[:, :4], 1)
    for t in range(4, 9):
        found = model.step(tokens[:, t : t + 1], cache)[:, 0]
        torch.testing.assert_close(found, expected[:, t], rtol=1e-8, atol=1e-9)
    state = cache.past[0].memory
    assert (state.tensor.shape[1:] == (1, 9, kept)) if kept else (state.K.shape[-1] == 10)
