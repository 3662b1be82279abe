"""Mixers with a state of fixed size: equal to published models, and to themselves token by token."""

import dataclasses

import pytest
import torch

from ablate.model.attention_context import AttentionContext
from ablate.parts.mixers import MIXERS
from tests.model.random_shapes import RECURRENT_MIXERS
from tests.model.small import normal, places, shape

D_MODEL, H, D_K, D_V, T = 26, 3, 10, 7, 9
CLOSE = {"atol": 1e-9, "rtol": 1e-8}


def mixer(name, **fields):
    """A mixer in double precision, with random vectors in the place of its ones and zeros."""
    draw = torch.Generator().manual_seed(2)
    made = MIXERS[name].make(shape(**fields), True, draw).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    return made.requires_grad_(False)


def context(T, first=0, mask=None):
    return AttentionContext(places(T, first), places(first + T), mask, causal=True)


def drawn(*size, seed=1):
    return normal(*size, seed=seed).double()


@pytest.mark.parametrize("name", RECURRENT_MIXERS)
def test_a_sequence_is_mixed_as_its_tokens_one_by_one(name):
    ours, x = mixer(name), drawn(2, T, D_MODEL)
    whole, end = ours(x, None, context(T))
    state, outputs = None, []
    for t in range(T):
        out, state = ours(x[:, t : t + 1], state, context(1, t))
        outputs.append(out)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, **CLOSE)
    torch.testing.assert_close(dataclasses.astuple(state), dataclasses.astuple(end), **CLOSE)


@pytest.mark.parametrize("name", RECURRENT_MIXERS)
def test_gradients_of_the_weights_are_those_of_differences(name):
    ours, x = mixer(name).requires_grad_(), drawn(1, 5, D_MODEL)
    names, weights = zip(*ours.named_parameters(), strict=True)

    def loss(*values):
        out, _ = torch.func.functional_call(
            ours, dict(zip(names, values, strict=True)), (x, None, context(5))
        )
        return out.square().sum()

    assert torch.autograd.gradcheck(loss, weights, fast_mode=True)


def test_retention_beside_rope_reads_its_fields_only_where_it_has_rope_itself():
    x = drawn(1, T, D_MODEL)
    plain = mixer("retention")(x, None, context(T))[0]
    rope = {"rope_base": 100.0, "rope_fraction": 0.2}
    own = {"mixer": ("retention", "attention"), **rope}
    for encoding in ("none", "rope"):
        config = shape(
            **own, architecture="decoder-only", positional_encoding=(encoding, "rope")
        ).all_layers[0]
        draw = torch.Generator().manual_seed(2)
        layer = MIXERS["retention"].make(config, True, draw).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            assert torch.equal(layer(x, None, context(T))[0], plain) == (encoding == "none")
