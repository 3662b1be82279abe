"""The table of variants: complete, and consistent with the classes of the model."""

import pytest

from ablate.config import ModelConfig, resolve_row
from ablate.config.variants import (
    ACTIVATIONS,
    ATTENTIONS,
    MIXERS,
    NORMS,
    POSITIONAL_ENCODINGS,
    VARIANTS,
)
from ablate.model import attention, feed_forward, norms, positions
from ablate.model.recurrent_mixers import RECURRENT_MIXERS
from ablate.model.token_mixer import RECURRENT_NETWORKS
from ablate.plugins import VariantName, plugin_fields

EVERY = [(field, name) for field, variants in VARIANTS.items() for name in variants]


def test_every_variant_has_a_class_and_an_entry():
    assert positions.POSITIONS.keys() == POSITIONAL_ENCODINGS.keys()
    assert feed_forward.ACTIVATIONS.keys() == ACTIVATIONS.keys()
    assert norms.NORMS.keys() == NORMS.keys()
    assert attention.MECHANISMS.keys() == ATTENTIONS.keys()
    assert {"attention", *RECURRENT_NETWORKS, *RECURRENT_MIXERS} == MIXERS.keys()


def test_the_fields_accept_exactly_the_variants_of_their_table():
    for field in plugin_fields(ModelConfig) & VARIANTS.keys():
        (allowed,) = [
            item.names
            for item in ModelConfig.model_fields[field].metadata
            if isinstance(item, VariantName)
        ]
        assert allowed == tuple(VARIANTS[field])
    # The values of these two are names, not classes with requirements of their own.
    without = {"feed_forward", "norm_position"}
    assert VARIANTS.keys() == plugin_fields(ModelConfig) - without


@pytest.mark.parametrize(("field", "name"), EVERY)
def test_every_variant_can_be_set_alone(field, name):
    beside = {}
    if name in RECURRENT_MIXERS:
        beside["architecture"] = "decoder-only"
    assert getattr(resolve_row({field: name, **beside}, written=[field]), field) == name


@pytest.mark.parametrize("name", RECURRENT_MIXERS)
def test_a_mixer_of_one_direction_is_refused_in_an_encoder(name):
    with pytest.raises(ValueError, match=f"mixer={name} .* needs architecture=decoder-only"):
        resolve_row({"mixer": name})
