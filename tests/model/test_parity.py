"""The whole model equals stacks of torch.nn's layers, given the same weights."""

import pytest
import torch
from torch import nn

from tests.model.small import normal, places, sentences, small_model

EQUAL = {"atol": 1e-5, "rtol": 1e-5}
HEADS = {
    "d_model": 26,
    "n_heads": 2,
    "d_k": 13,
    "d_v": 13,
    "d_ff": 19,
}  # torch.nn supports only d_k = d_model / h
S, T = 7, 5
SOURCE_LENGTHS = (4, 7, 1)

# Variants that torch.nn has beside the paper's.
VARIANTS = [
    {},
    {"norm_position": "pre"},
    {"activation": "gelu"},
    {"attention_bias": True},
    {"norm_position": "pre", "activation": "gelu", "attention_bias": True},
]
every_variant = pytest.mark.parametrize("fields", VARIANTS, ids=str)


def as_ours(fields):
    return {
        "dropout": 0.0,
        "activation": fields.get("activation", "relu"),
        "batch_first": True,
        "norm_first": fields.get("norm_position") == "pre",
        "layer_norm_eps": 1e-6,
    }


def copy_attention(theirs, ours):
    projections = (ours.W_Q, ours.W_K, ours.W_V)
    theirs.in_proj_weight.copy_(torch.cat([w.weight for w in projections]))
    theirs.in_proj_bias.copy_(
        torch.cat([torch.zeros(26) if w.bias is None else w.bias for w in projections])
    )
    theirs.out_proj.weight.copy_(ours.W_O.weight)
    theirs.out_proj.bias.copy_(torch.zeros(26) if ours.W_O.bias is None else ours.W_O.bias)


def copy_feed_forward(theirs, ours):
    for linear, other in (
        (theirs.linear1, ours.feed_forward.W_1),
        (theirs.linear2, ours.feed_forward.W_2),
    ):
        linear.load_state_dict(other.state_dict())


@torch.no_grad()
def torch_encoder_layer(ours, fields):
    theirs = nn.TransformerEncoderLayer(
        HEADS["d_model"], HEADS["n_heads"], HEADS["d_ff"], **as_ours(fields)
    )
    copy_attention(theirs.self_attn, ours.mixer)
    copy_feed_forward(theirs, ours)
    theirs.norm1.load_state_dict(ours.around_mixer.norm.state_dict())
    theirs.norm2.load_state_dict(ours.around_feed_forward.norm.state_dict())
    return theirs


@torch.no_grad()
def torch_decoder_layer(ours, fields):
    theirs = nn.TransformerDecoderLayer(
        HEADS["d_model"], HEADS["n_heads"], HEADS["d_ff"], **as_ours(fields)
    )
    copy_attention(theirs.self_attn, ours.mixer)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    copy_feed_forward(theirs, ours)
    theirs.norm1.load_state_dict(ours.around_mixer.norm.state_dict())
    theirs.norm2.load_state_dict(ours.around_cross_attention.norm.state_dict())
    theirs.norm3.load_state_dict(ours.around_feed_forward.norm.state_dict())
    return theirs


def torch_norm(ours):
    """The last module of torch's stack: a norm for pre-norm, else None, because the last layer ends
    with one.
    """
    if isinstance(ours, nn.Identity):
        return None
    theirs = nn.LayerNorm(HEADS["d_model"], eps=1e-6)
    theirs.load_state_dict(ours.state_dict())
    return theirs


def stack(kind, theirs, norm):
    """torch's stack of these layers, which its constructor would copy."""
    nested = {"enable_nested_tensor": False} if kind is nn.TransformerEncoder else {}
    made = kind(theirs[0], 1, norm=norm, **nested)
    made.layers, made.num_layers = nn.ModuleList(theirs), len(theirs)
    return made


def not_ahead(length):
    """torch's masks are True for pairs that attention must not see."""
    return torch.triu(torch.ones(length, length, dtype=torch.bool), 1)


def assert_gradients_equal(ours, theirs, embedding):
    """Assert that two outputs have equal gradients with respect to the embeddings."""
    upstream = normal(*ours.shape, seed=7)
    (first,), (second,) = (
        torch.autograd.grad(out, [embedding], upstream) for out in (ours, theirs)
    )
    torch.testing.assert_close(first, second, **EQUAL)


def embedded(model, tokens, positions):
    looked_up = nn.functional.embedding(tokens, model.embedding.weight) * HEADS["d_model"] ** 0.5
    return positions.embed(looked_up, places(tokens.shape[1]))


@every_variant
@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "none"])
def test_the_whole_model_equals_stacks_of_torchs_layers(encoding, fields):
    model = small_model(
        encoder_layers=3, decoder_layers=2, positional_encoding=encoding, **HEADS, **fields
    )
    encoder = [torch_encoder_layer(layer, fields) for layer in model.encoder]
    decoder = [torch_decoder_layer(layer, fields) for layer in model.decoder]
    theirs = nn.Transformer(HEADS["d_model"], HEADS["n_heads"], 1, 1, batch_first=True)
    theirs.encoder = stack(nn.TransformerEncoder, encoder, torch_norm(model.encoder_norm))
    theirs.decoder = stack(nn.TransformerDecoder, decoder, torch_norm(model.decoder_norm))
    source, target = sentences(*SOURCE_LENGTHS), sentences(5, 2, 3, seed=2)
    other = theirs(
        embedded(model, source, model.source_positions),
        embedded(model, target, model.target_positions),
        tgt_mask=not_ahead(T),
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    mine, tokens = model(source, target), target != 0
    torch.testing.assert_close(mine[tokens], other[tokens], **EQUAL)
    assert_gradients_equal(mine[tokens], other[tokens], model.embedding.weight)
    logits = model.logits(mine[tokens])
    torch.testing.assert_close(
        logits, other[tokens] @ model.embedding.weight.T, atol=1e-4, rtol=1e-5
    )


@every_variant
def test_the_decoder_only_model_equals_torchs_encoder_with_a_causal_mask(fields):
    """torch.nn's encoder has no cross-attention; it runs on the concatenated source and target."""
    model = small_model(architecture="decoder-only", n_layers=3, **HEADS, **fields)
    layers = [torch_encoder_layer(layer, fields) for layer in model.decoder]
    theirs = stack(nn.TransformerEncoder, layers, torch_norm(model.decoder_norm))
    sources, targets = sentences(*SOURCE_LENGTHS), sentences(5, 2, 3, seed=2)
    mine = model(sources, targets)
    for b, (S, T) in enumerate(zip(SOURCE_LENGTHS, (5, 2, 3), strict=True)):
        packed = torch.cat([sources[b : b + 1, :S], targets[b : b + 1, :T]], dim=1)
        other = theirs(embedded(model, packed, model.positions), mask=not_ahead(S + T))
        torch.testing.assert_close(mine[b, :T], other[0, S:], **EQUAL)
