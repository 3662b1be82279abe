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
def test_a_position_adds_the_same_vector_to_every_token(encoding):
    positions, x = positions_of(encoding), normal(3, 7, D_MODEL)
    added = positions.embed(torch.zeros(1, 7, D_MODEL), places(7))
    torch.testing.assert_close(
        positions.embed(x, places(7)) - x, added.expand(3, -1, -1), atol=1e-6, rtol=0
    )
    assert bool(added.any()) == (encoding in ("sinusoidal", "learned"))


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned", "rope"])
def test_max_positions_is_the_largest_usable_length(encoding):
    positions = positions_of(encoding)

    def place(at):
        x = torch.ones(1, 1, 1, 10) if encoding == "rope" else torch.ones(1, 1, D_MODEL)
        return (positions.rotate if encoding == "rope" else positions.embed)(x, torch.tensor([at]))

    assert place(POSITION_COUNT - 1).isfinite().all()
    with pytest.raises(IndexError, match="out of bounds"):
        place(POSITION_COUNT)
