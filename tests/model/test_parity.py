"""The layers and the whole stack equal torch.nn's, given the same weights."""

import pytest
import torch
from torch import nn

from ablate.model.layers import Dropout
from ablate.model.transformer import AddNorm, DecoderLayer, EncoderLayer
from tests.model.small import normal, sentences, shape, small_model

EQUAL = {"atol": 1e-5, "rtol": 1e-5}
HEADS = {"d_model": 26, "n_heads": 2, "d_k": 13, "d_v": 13, "d_ff": 19}  # torch.nn knows d_k = d_model / h alone
AS_OURS = {"dropout": 0.0, "activation": "relu", "batch_first": True, "norm_first": False, "layer_norm_eps": 1e-6}
B, S, T = 3, 7, 5
SOURCE_LENGTHS = (4, 7, 1)


def copy_attention(theirs, ours):
    theirs.in_proj_weight.copy_(torch.cat([ours.W_Q.weight, ours.W_K.weight, ours.W_V.weight]))
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(ours.W_O.weight)
    theirs.out_proj.bias.zero_()


def copy_feed_forward(theirs, ours):
    for linear, other in ((theirs.linear1, ours.feed_forward.W_1), (theirs.linear2, ours.feed_forward.W_2)):
        linear.load_state_dict(other.state_dict())


@torch.no_grad()
def torch_encoder_layer(ours):
    theirs = nn.TransformerEncoderLayer(HEADS["d_model"], HEADS["n_heads"], HEADS["d_ff"], **AS_OURS)
    copy_attention(theirs.self_attn, ours.attention)
    copy_feed_forward(theirs, ours)
    theirs.norm1.load_state_dict(ours.after_attention.norm.state_dict())
    theirs.norm2.load_state_dict(ours.after_feed_forward.norm.state_dict())
    return theirs


@torch.no_grad()
def torch_decoder_layer(ours):
    theirs = nn.TransformerDecoderLayer(HEADS["d_model"], HEADS["n_heads"], HEADS["d_ff"], **AS_OURS)
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    copy_feed_forward(theirs, ours)
    theirs.norm1.load_state_dict(ours.after_self_attention.norm.state_dict())
    theirs.norm2.load_state_dict(ours.after_cross_attention.norm.state_dict())
    theirs.norm3.load_state_dict(ours.after_feed_forward.norm.state_dict())
    return theirs


def drawn(layer):
    """Gains and biases are 1 and 0 at first, and would hide being left out."""
    for i, parameter in enumerate(layer.parameters()):
        if parameter.dim() == 1:
            parameter.data += 0.5 * normal(*parameter.shape, seed=i)
    return layer


def layer(kind, seed=1):
    return drawn(kind(shape(**HEADS), torch.Generator().manual_seed(seed), torch.Generator()))


@pytest.fixture
def padded():
    """True at tokens, (B, S)."""
    return torch.arange(S) < torch.tensor(SOURCE_LENGTHS)[:, None]


def assert_gradients_equal(ours, theirs, *inputs):
    """Two outputs have equal gradients for every one of these inputs."""
    upstream = normal(*ours.shape, seed=7)
    first = torch.autograd.grad(ours, inputs, upstream)
    second = torch.autograd.grad(theirs, inputs, upstream)
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, **EQUAL)


@pytest.mark.parametrize("with_padding", [False, True])
def test_the_encoder_layer_is_torchs(padded, with_padding):
    ours = layer(EncoderLayer)
    theirs = torch_encoder_layer(ours)
    x = normal(B, S, HEADS["d_model"]).requires_grad_()
    real = padded if with_padding else torch.ones_like(padded)
    mine = ours(x, padded[:, None, None, :] if with_padding else None)[real]
    other = theirs(x, src_key_padding_mask=~padded if with_padding else None)[real]
    torch.testing.assert_close(mine, other, **EQUAL)
    assert_gradients_equal(mine, other, x)


@pytest.mark.parametrize("with_padding", [False, True])
def test_the_decoder_layer_is_torchs(padded, with_padding):
    ours = layer(DecoderLayer)
    theirs = torch_decoder_layer(ours)
    x = normal(B, T, HEADS["d_model"]).requires_grad_()
    source = normal(B, S, HEADS["d_model"], seed=2).requires_grad_()
    mask = padded[:, None, None, :] if with_padding else None
    mine = ours(x, ours.cross_attention.keys_values(source), mask)
    other = theirs(
        x,
        source,
        tgt_mask=torch.triu(torch.ones(T, T, dtype=torch.bool), 1),
        memory_key_padding_mask=~padded if with_padding else None,
    )
    torch.testing.assert_close(mine, other, **EQUAL)
    assert_gradients_equal(mine, other, x, source)


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "none"])
def test_the_whole_model_is_a_stack_of_torchs_layers(encoding):
    model = small_model(n_layers=3, positional_encoding=encoding, **HEADS)
    d = HEADS["d_model"]
    theirs = nn.Transformer(d, HEADS["n_heads"], 3, 3, HEADS["d_ff"], **AS_OURS)
    theirs.encoder.norm = theirs.decoder.norm = (
        None  # post-norm layers end normalised, and the paper has no further one
    )
    theirs.encoder.layers = nn.ModuleList(torch_encoder_layer(layer) for layer in model.encoder)
    theirs.decoder.layers = nn.ModuleList(torch_decoder_layer(layer) for layer in model.decoder)
    source, target = sentences(4, 7, 1), sentences(5, 2, 3, seed=2)
    embedded = [
        positions(nn.functional.embedding(tokens, model.embedding.weight) * d**0.5)
        for tokens, positions in ((source, model.source_positions), (target, model.target_positions))
    ]
    other = theirs(
        *embedded,
        tgt_mask=torch.triu(torch.ones(T, T, dtype=torch.bool), 1),
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    mine = model(source, target)
    real = target != 0
    torch.testing.assert_close(mine[real], other[real], **EQUAL)
    logits = model.logits(mine[real])
    torch.testing.assert_close(logits, other[real] @ model.embedding.weight.T, atol=1e-4, rtol=1e-5)


def test_dropout_is_on_every_sublayer_and_on_both_embedding_sums_and_nowhere_else(monkeypatch):
    """Section 5.4: with N = 2 that is 2 sums, 2 * 2 sub-layers of the encoder and 2 * 3 of the decoder."""
    places = []

    def recorded(self, x):
        places.append(next(name for name, module in model.named_modules() if module is self))
        return x

    model = small_model(dropout=0.1).train()
    monkeypatch.setattr(Dropout, "forward", recorded)
    model(sentences(5), sentences(7))
    encoder = [f"encoder.{i}.{part}.dropout" for i in (0, 1) for part in ("after_attention", "after_feed_forward")]
    decoder = [
        f"decoder.{i}.{part}.dropout"
        for i in (0, 1)
        for part in ("after_self_attention", "after_cross_attention", "after_feed_forward")
    ]
    assert places == ["embedding_dropout", *encoder, "embedding_dropout", *decoder]


def test_dropout_is_on_the_sublayer_before_it_is_added_and_never_on_the_residual():
    """LayerNorm(x + Dropout(Sublayer(x))): with all of the sub-layer dropped, what is left is LayerNorm(x)."""
    x, sublayer = normal(3, 5, 26), normal(3, 5, 26, seed=2)
    residual = AddNorm(26, 1 - 1e-9, torch.Generator().manual_seed(1)).train()
    torch.testing.assert_close(residual(x, sublayer), residual.norm(x))
    torch.testing.assert_close(residual.eval()(x, sublayer), residual.norm(x + sublayer))
