"""Positional encodings: closed forms of section 3.5, and what an encoding is to the rest of the model."""

import math

import pytest
import torch

from ablate.config.variants import POSITIONAL_ENCODINGS
from ablate.model.positions import POSITIONS, sinusoids
from tests.model.small import ENCODINGS, normal, places, shape

POSITION_COUNT, D_MODEL = 53, 26


def positions_of(encoding, causal=True, **fields):
    config = shape(d_model=D_MODEL, max_positions=POSITION_COUNT, positional_encoding=encoding, **fields)
    return POSITIONS[encoding](config, causal, torch.Generator().manual_seed(1)).requires_grad_(False)


def test_every_encoding_of_the_language_is_built():
    assert tuple(POSITIONS) == ENCODINGS == tuple(POSITIONAL_ENCODINGS)


@pytest.mark.parametrize("d_model", [2, 26, 512])
def test_sinusoids_are_interleaved_sines_and_cosines(d_model):
    table = sinusoids(POSITION_COUNT, d_model)
    for pos in (0, 1, 2, 7, 52):
        for i in range(d_model // 2):
            angle = pos / 10_000 ** (2 * i / d_model)
            assert float(table[pos, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-6)
            assert float(table[pos, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_position_zero_is_zeros_and_ones():
    assert sinusoids(1, D_MODEL)[0].tolist() == [0.0, 1.0] * (D_MODEL // 2)


def test_far_positions_are_as_exact_as_near_ones():
    """65535 radians and more: in fp32 the angle itself would be wrong in its third decimal."""
    table = sinusoids(65_536, D_MODEL)
    assert float(table[65_535, 0]) == pytest.approx(math.sin(65_535), abs=1e-7)
    assert float(table[65_535, 3]) == pytest.approx(math.cos(65_535 / 10_000 ** (2 / D_MODEL)), abs=1e-6)


@pytest.mark.parametrize("k", [1, 5, 31])
def test_a_shift_by_k_is_one_rotation_for_all_positions(k):
    """PE(pos + k) is a linear function of PE(pos), the same for every pos: why the paper chose sinusoids."""
    table = sinusoids(POSITION_COUNT, D_MODEL).double()
    rotation = torch.zeros(D_MODEL, D_MODEL, dtype=torch.float64)
    for i in range(D_MODEL // 2):
        angle = k / 10_000 ** (2 * i / D_MODEL)
        c, s = math.cos(angle), math.sin(angle)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]])
    torch.testing.assert_close(table[:-k] @ rotation.T, table[k:], atol=1e-6, rtol=0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tokens_know_their_places_whichever_of_them_come_together(encoding):
    positions, x = positions_of(encoding), normal(2, 11, D_MODEL)
    whole = positions.embed(x, places(11))
    parts = [
        positions.embed(x[:, first:last], places(last - first, first)) for first, last in ((0, 4), (4, 9), (9, 11))
    ]
    assert torch.equal(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_sentence_may_have_places_of_its_own(encoding):
    """As in a decoder-only model, where a target begins where its own source ends."""
    positions, x = positions_of(encoding), normal(2, 3, D_MODEL)
    together = positions.embed(x, torch.tensor([[7, 8, 9], [2, 3, 4]]))
    apart = [positions.embed(x[:1], places(3, 7)), positions.embed(x[1:], places(3, 2))]
    assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_position_adds_the_same_to_every_token_that_stands_there(encoding):
    positions, x = positions_of(encoding), normal(3, 7, D_MODEL)
    added = positions.embed(torch.zeros(1, 7, D_MODEL), places(7))
    torch.testing.assert_close(positions.embed(x, places(7)) - x, added.expand(3, -1, -1), atol=1e-6, rtol=0)
    assert bool(added.any()) == (encoding in ("sinusoidal", "learned"))


@pytest.mark.parametrize("causal", [False, True])
def test_parameters_are_those_of_the_papers_that_have_them_and_nothing_else_is_saved(causal):
    clip, layers = 5, 2 if causal else 3
    fields = {"n_heads": 3, "d_k": 4, "d_v": 7, "relative_clip": clip, "encoder_layers": 3, "decoder_layers": 2}
    distances = clip + 1 if causal else 2 * clip + 1
    found = {}
    for encoding in ENCODINGS:
        positions = positions_of(encoding, causal, **fields)
        found[encoding] = [tuple(p.shape) for p in positions.parameters()]
        assert positions.state_dict().keys() == dict(positions.named_parameters()).keys()
    assert found == {
        "sinusoidal": [],
        "learned": [(POSITION_COUNT, D_MODEL)],
        "none": [],
        "rope": [],
        "relative": [(layers, distances, 4), (layers, distances, 7)],
        "t5": [(32, 3)],
        "alibi": [],
    }


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "rope"])
def test_the_last_position_can_be_used_and_none_beyond_it(encoding):
    positions = positions_of(encoding)

    def place(at):
        x = torch.ones(1, 1, 1, 10) if encoding == "rope" else torch.ones(1, 1, D_MODEL)
        return (positions.rotate if encoding == "rope" else positions.embed)(x, torch.tensor([at]))

    assert place(POSITION_COUNT - 1).isfinite().all()
    with pytest.raises(IndexError, match="out of bounds"):
        place(POSITION_COUNT)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_says_whether_it_has_something_to_say_on_scores(encoding):
    positions = positions_of(encoding, d_k=10)
    bias = positions.bias(0, normal(2, 3, 5, 10), places(5), places(7))
    assert (bias is not None) == positions.acts_on_scores == (encoding in ("relative", "t5", "alibi"))
    assert (positions.values(0, normal(2, 3, 5, 7), places(5), places(7)) is not None) == (encoding == "relative")
