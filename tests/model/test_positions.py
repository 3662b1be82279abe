"""Positional encodings: closed forms of section 3.5, and the interface to the rest of the model."""

import math

import pytest
import torch

from ablate.model.positions import sinusoids
from ablate.parts.positions import POSITIONAL_ENCODINGS
from tests.model.small import ENCODINGS, normal, places, shape

POSITION_COUNT, D_MODEL = 53, 26


def positions_of(encoding, causal=True, **fields):
    config = shape(
        d_model=D_MODEL, max_positions=POSITION_COUNT, positional_encoding=encoding, **fields
    )
    return (
        POSITIONAL_ENCODINGS[encoding]
        .make(config, causal, torch.Generator().manual_seed(1))
        .requires_grad_(False)
    )


@pytest.mark.parametrize("d_model", [2, 26, 512])
def test_sinusoids_are_interleaved_sines_and_cosines(d_model):
    table = sinusoids(POSITION_COUNT, d_model)
    for pos in (0, 1, 2, 7, 52):
        for i in range(d_model // 2):
            angle = pos / 10_000 ** (2 * i / d_model)
            assert float(table[pos, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-6)
            assert float(table[pos, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_large_positions_are_as_exact_as_small_ones():
    """65535 radians and more: in fp32 the angle itself would be wrong in its third decimal."""
    table = sinusoids(65_536, D_MODEL)
    assert float(table[65_535, 0]) == pytest.approx(math.sin(65_535), abs=1e-7)
    assert float(table[65_535, 3]) == pytest.approx(
        math.cos(65_535 / 10_000 ** (2 / D_MODEL)), abs=1e-6
    )


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_of_a_sequence_in_parts_equal_those_of_the_whole(encoding):
    positions, x = positions_of(encoding), normal(2, 11, D_MODEL)
    whole = positions.embed(x, places(11))
    parts = [
        positions.embed(x[:, first:last], places(last - first, first))
        for first, last in ((0, 4), (4, 9), (9, 11))
    ]
    assert torch.equal(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_sentence_may_have_different_positions(encoding):
    """As in a decoder-only model, where each target begins at the end of its source."""
    positions, x = positions_of(encoding), normal(2, 3, D_MODEL)
    together = positions.embed(x, torch.tensor([[7, 8, 9], [2, 3, 4]]))
    apart = [positions.embed(x[:1], places(3, 7)), positions.embed(x[1:], places(3, 2))]
    assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_position_adds_the_same_vector_to_every_token(encoding):
    positions, x = positions_of(encoding), normal(3, 7, D_MODEL)
    added = positions.embed(torch.zeros(1, 7, D_MODEL), places(7))
    torch.testing.assert_close(
        positions.embed(x, places(7)) - x, added.expand(3, -1, -1), atol=1e-6, rtol=0
    )
    assert bool(added.any()) == (encoding in ("sinusoidal", "learned"))


@pytest.mark.parametrize("causal", [False, True])
def test_each_encoding_has_the_parameters_of_its_paper_and_saves_nothing_else(causal):
    clip, layers = 5, 2 if causal else 3
    fields = {
        "n_heads": 3, "d_k": 4, "d_v": 7, "relative_clip": clip, "encoder_layers": 3,
        "decoder_layers": 2,
    }  # fmt: skip
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
def test_max_positions_is_the_largest_usable_length(encoding):
    positions = positions_of(encoding)

    def place(at):
        x = torch.ones(1, 1, 1, 10) if encoding == "rope" else torch.ones(1, 1, D_MODEL)
        return (positions.rotate if encoding == "rope" else positions.embed)(x, torch.tensor([at]))

    assert place(POSITION_COUNT - 1).isfinite().all()
    with pytest.raises(IndexError, match="out of bounds"):
        place(POSITION_COUNT)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_acts_on_scores_is_true_for_encodings_with_a_bias_or_values(encoding):
    positions = positions_of(encoding, d_k=10)
    bias = positions.bias(0, normal(2, 3, 5, 10), places(5), places(7))
    assert (
        (bias is not None) == positions.acts_on_scores == (encoding in ("relative", "t5", "alibi"))
    )
    assert (positions.values(0, normal(2, 3, 5, 7), places(5), places(7)) is not None) == (
        encoding == "relative"
    )
