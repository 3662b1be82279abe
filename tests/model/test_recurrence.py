"""mixer=lstm and mixer=gru: equal to torch's networks on each sentence alone."""

import pytest
import torch

from ablate.model.attention_context import AttentionContext
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
