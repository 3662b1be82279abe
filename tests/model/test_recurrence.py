"""Recurrence in the place of self-attention is torch's LSTM on each sentence by itself."""

import pytest
import torch
from torch import nn

from ablate.model.attention import MultiHeadAttention
from ablate.model.attention_context import AttentionContext
from ablate.model.token_mixer import LSTM, RecurrentState
from tests.model.small import normal, parts, places, real, sentences, small_model

D_MODEL = 26
LENGTHS = (4, 9, 1)
T = max(LENGTHS)
CLOSE = {"atol": 1e-6, "rtol": 1e-5}


def recurrence(causal):
    made = parts(mixer="lstm")
    return made.token_mixer(made.positions(causal), causal).requires_grad_(False)


def torchs(ours, causal):
    """An LSTM of torch with the same weights: of one direction, or of two that have half of the width each."""
    theirs = nn.LSTM(D_MODEL, D_MODEL if causal else D_MODEL // 2, batch_first=True, bidirectional=not causal)
    theirs.load_state_dict(ours.cells.state_dict())
    return theirs.requires_grad_(False)


@pytest.mark.parametrize("causal", [False, True])
def test_padded_sentences_come_out_as_torchs_lstm_gives_them_one_by_one(causal):
    ours, x = recurrence(causal), normal(len(LENGTHS), T, D_MODEL)
    theirs = torchs(ours, causal)
    seen = real(*LENGTHS)
    out, left = ours(x, None, AttentionContext(places(T), places(T), seen, causal=causal))
    assert out.shape == x.shape
    for b, length in enumerate(LENGTHS):
        alone, (state, cell) = theirs(x[b : b + 1, :length])
        torch.testing.assert_close(out[b : b + 1, :length], alone, **CLOSE)
        if causal:
            torch.testing.assert_close(left.hidden[:, b : b + 1], state, **CLOSE)
            torch.testing.assert_close(left.cell[:, b : b + 1], cell, **CLOSE)


@pytest.mark.parametrize("causal", [False, True])
def test_without_padding_it_is_torchs_lstm(causal):
    ours, x = recurrence(causal), normal(3, T, D_MODEL)
    out, _ = ours(x, None, AttentionContext(places(T), places(T), causal=causal))
    torch.testing.assert_close(out, torchs(ours, causal)(x)[0], **CLOSE)


@pytest.mark.parametrize("split", [1, 4, 8])
def test_what_the_past_leaves_is_gone_on_from(split):
    ours, x = recurrence(causal=True), normal(3, T, D_MODEL)
    whole, end = ours(x, None, AttentionContext(places(T), places(T), causal=True))
    first, left = ours(x[:, :split], None, AttentionContext(places(split), places(split), causal=True))
    second, both = ours(x[:, split:], left, AttentionContext(places(T - split, split), places(T)))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, **CLOSE)
    torch.testing.assert_close((both.hidden, both.cell), (end.hidden, end.cell), **CLOSE)


def test_rows_of_the_past_are_selected_in_the_order_asked_for():
    state, cell = normal(1, 3, 5), normal(1, 3, 5, seed=2)
    some = RecurrentState(state, cell).select(torch.tensor([2, 0, 2, 1]))
    assert torch.equal(some.hidden[0], torch.stack([state[0, i] for i in (2, 0, 2, 1)]))
    assert torch.equal(some.cell[0], torch.stack([cell[0, i] for i in (2, 0, 2, 1)]))


@pytest.mark.parametrize(("causal", "expected"), [(True, lambda s: s <= 4), (False, lambda s: True)])
def test_an_encoder_looks_both_ways_and_a_decoder_back(causal, expected):
    ours, x = recurrence(causal), normal(1, T, D_MODEL).requires_grad_()
    out, _ = ours(x, None, AttentionContext(places(T), places(T), causal=causal))
    (gradient,) = torch.autograd.grad(out[0, 4] @ normal(D_MODEL), x)
    assert (gradient[0].abs().sum(1) > 0).tolist() == [expected(s) for s in range(T)]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_it_stands_in_the_place_of_self_attention_and_of_nothing_else(architecture):
    model = small_model(mixer="lstm", architecture=architecture)
    names = {kind: [name for name, module in model.named_modules() if isinstance(module, kind)]
             for kind in (LSTM, MultiHeadAttention)}  # fmt: skip
    if architecture == "encoder-decoder":
        assert names[LSTM] == ["encoder.0.mixer", "encoder.1.mixer", "decoder.0.mixer", "decoder.1.mixer"]
        assert names[MultiHeadAttention] == ["decoder.0.cross_attention", "decoder.1.cross_attention"]
    else:
        assert names == {LSTM: ["decoder.0.mixer", "decoder.1.mixer"], MultiHeadAttention: []}


def test_weights_are_drawn_from_the_seeds_generator_within_their_bound():
    """torch's own rule: uniform within the inverse root of a direction's width."""
    torch.manual_seed(3)
    ours = recurrence(causal=False)
    torch.manual_seed(5)
    again = recurrence(causal=False)
    bound = (D_MODEL // 2) ** -0.5
    for one, other in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
        assert 0.9 * bound < float(one.abs().max()) <= bound


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_a_model_of_recurrence_trains_in_bf16_near_what_it_is_in_fp32(architecture):
    model = small_model(mixer="lstm", architecture=architecture)
    source, target = sentences(4, 9, 1), sentences(5, 3, 7, seed=2)
    expected = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        states = model(source, target)
    torch.testing.assert_close(states.float()[target != 0], expected[target != 0], atol=0.15, rtol=0.1)
    states.float().square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
