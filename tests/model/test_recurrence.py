"""mixer=lstm and mixer=gru: equal to torch's networks on each sentence alone."""

import pytest
import torch

from ablate.model.attention_context import AttentionContext
from ablate.model.multi_head import MultiHeadAttention
from ablate.model.token_mixer import RecurrentNetwork, RecurrentState
from tests.model.random_shapes import RECURRENT_NETWORKS
from tests.model.small import normal, parts, places, real, sentences, small_model

D_MODEL = 26
LENGTHS = (4, 9, 1)
T = max(LENGTHS)
CLOSE = {"atol": 1e-6, "rtol": 1e-5}


def recurrence(causal, mixer="lstm"):
    made = parts(mixer=mixer)
    return made.token_mixer(made.positions(causal), causal).requires_grad_(False)


def torchs(ours, causal):
    """torch's network with the same weights: one direction, or two of half the width."""
    theirs = type(ours.cells)(
        D_MODEL, D_MODEL if causal else D_MODEL // 2, batch_first=True, bidirectional=not causal
    )
    theirs.load_state_dict(ours.cells.state_dict())
    return theirs.requires_grad_(False)


@pytest.mark.parametrize("mixer", RECURRENT_NETWORKS)
@pytest.mark.parametrize("causal", [False, True])
def test_padded_sentences_equal_torchs_network_on_each_sentence(causal, mixer):
    ours, x = recurrence(causal, mixer), normal(len(LENGTHS), T, D_MODEL)
    theirs = torchs(ours, causal)
    seen = real(*LENGTHS)
    out, left = ours(x, None, AttentionContext(places(T), places(T), seen, causal=causal))
    assert out.shape == x.shape
    for b, length in enumerate(LENGTHS):
        alone, state = theirs(x[b : b + 1, :length])
        torch.testing.assert_close(out[b : b + 1, :length], alone, **CLOSE)
        if causal:
            torch.testing.assert_close(left.select(torch.tensor([b])).hidden, state, **CLOSE)


@pytest.mark.parametrize("mixer", RECURRENT_NETWORKS)
@pytest.mark.parametrize("split", [1, 4, 8])
def test_the_network_continues_from_its_state(split, mixer):
    ours, x = recurrence(True, mixer), normal(3, T, D_MODEL)
    whole, end = ours(x, None, AttentionContext(places(T), places(T), causal=True))
    first, left = ours(
        x[:, :split], None, AttentionContext(places(split), places(split), causal=True)
    )
    second, both = ours(x[:, split:], left, AttentionContext(places(T - split, split), places(T)))
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, **CLOSE)
    torch.testing.assert_close(both.hidden, end.hidden, **CLOSE)


def test_selected_rows_of_the_state_keep_the_requested_order():
    state, cell = normal(3, 1, 5), normal(3, 1, 5, seed=2)
    some = RecurrentState((state, cell)).select(torch.tensor([2, 0, 2, 1]))
    for chosen, whole in zip(some.hidden, (state, cell), strict=True):
        assert torch.equal(chosen, torch.stack([whole[i] for i in (2, 0, 2, 1)]))


@pytest.mark.parametrize(
    ("causal", "expected"), [(True, lambda s: s <= 4), (False, lambda s: True)]
)
def test_an_encoder_is_bidirectional_and_a_decoder_causal(causal, expected):
    ours, x = recurrence(causal), normal(1, T, D_MODEL).requires_grad_()
    out, _ = ours(x, None, AttentionContext(places(T), places(T), causal=causal))
    (gradient,) = torch.autograd.grad(out[0, 4] @ normal(D_MODEL), x)
    assert (gradient[0].abs().sum(1) > 0).tolist() == [expected(s) for s in range(T)]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_the_lstm_replaces_self_attention_only(architecture):
    model = small_model(mixer="lstm", architecture=architecture)
    names = {kind: [name for name, module in model.named_modules() if isinstance(module, kind)]
             for kind in (RecurrentNetwork, MultiHeadAttention)}  # fmt: skip
    if architecture == "encoder-decoder":
        assert names[RecurrentNetwork] == [
            "encoder.0.mixer", "encoder.1.mixer", "decoder.0.mixer", "decoder.1.mixer",
        ]  # fmt: skip
        assert names[MultiHeadAttention] == [
            "decoder.0.cross_attention",
            "decoder.1.cross_attention",
        ]
    else:
        assert names == {
            RecurrentNetwork: ["decoder.0.mixer", "decoder.1.mixer"],
            MultiHeadAttention: [],
        }


def test_initial_weights_follow_from_the_seed_and_use_torchs_bound():
    """torch's rule: uniform within the inverse square root of the width of a direction."""
    torch.manual_seed(3)
    ours = recurrence(causal=False)
    torch.manual_seed(5)
    again = recurrence(causal=False)
    bound = (D_MODEL // 2) ** -0.5
    for one, other in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
        assert 0.9 * bound < float(one.abs().max()) <= bound


@pytest.mark.parametrize("mixer", RECURRENT_NETWORKS)
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_a_recurrent_model_in_bf16_is_close_to_fp32_and_has_finite_gradients(architecture, mixer):
    model = small_model(mixer=mixer, architecture=architecture)
    source, target = sentences(4, 9, 1), sentences(5, 3, 7, seed=2)
    expected = model(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        states = model(source, target)
    torch.testing.assert_close(
        states.float()[target != 0], expected[target != 0], atol=0.15, rtol=0.1
    )
    states.float().square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
