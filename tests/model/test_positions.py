"""Positional encodings: closed forms of section 3.5."""

import math

import pytest
import torch

from ablate.model.positions import POSITIONS, sinusoids
from tests.model.small import ENCODINGS, normal

POSITION_COUNT, D_MODEL = 53, 26


def test_every_encoding_of_the_language_is_built():
    assert tuple(POSITIONS) == ENCODINGS


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
def test_an_offset_continues_where_the_first_tokens_ended(encoding):
    positions = POSITIONS[encoding](D_MODEL, POSITION_COUNT, torch.Generator().manual_seed(1))
    x = normal(2, 11, D_MODEL)
    whole = positions(x)
    parts = torch.cat([positions(x[:, :4]), positions(x[:, 4:9], 4), positions(x[:, 9:], 9)], dim=1)
    assert torch.equal(parts, whole)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_position_adds_the_same_to_every_token_that_stands_there(encoding):
    positions = POSITIONS[encoding](D_MODEL, POSITION_COUNT, torch.Generator().manual_seed(1))
    x = normal(3, 7, D_MODEL)
    added = positions(torch.zeros(1, 7, D_MODEL))
    torch.testing.assert_close(positions(x) - x, added.expand(3, -1, -1), atol=1e-6, rtol=0)
    assert bool(added.any()) == (encoding != "none")


def test_only_learned_positions_are_parameters_and_sinusoids_are_not_saved():
    built = {name: make(D_MODEL, POSITION_COUNT, torch.Generator()) for name, make in POSITIONS.items()}
    assert {name: [tuple(p.shape) for p in module.parameters()] for name, module in built.items()} == {
        "sinusoidal": [],
        "learned": [(POSITION_COUNT, D_MODEL)],
        "none": [],
    }
    assert not built["sinusoidal"].state_dict()


@pytest.mark.parametrize("encoding", ["sinusoidal", "learned"])
def test_the_last_position_can_be_used_and_none_beyond_it(encoding):
    positions = POSITIONS[encoding](D_MODEL, POSITION_COUNT, torch.Generator().manual_seed(1))
    assert positions(torch.zeros(1, POSITION_COUNT, D_MODEL)).shape == (1, POSITION_COUNT, D_MODEL)
    with pytest.raises(RuntimeError, match="size"):
        positions(torch.zeros(1, POSITION_COUNT + 1, D_MODEL))
