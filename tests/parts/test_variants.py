"""The variants of the parts: each is built by its class, and can be set alone."""

from importlib import import_module

import pytest

from ablate.config import ModelConfig
from ablate.config.resolve import resolve_row
from ablate.parts.attention import ATTENTIONS
from ablate.parts.feed_forward import ACTIVATIONS
from ablate.parts.mixers import MIXERS
from ablate.parts.norms import NORM_POSITIONS, NORMS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from ablate.parts.residual import HYPER_CONNECTIONS
from ablate.parts.variant import VariantName, class_fields
from tests.model.random_shapes import RECURRENT_MIXERS

# By the field that selects one.
VARIANTS = {
    "positional_encoding": POSITIONAL_ENCODINGS,
    "attention": ATTENTIONS,
    "activation": ACTIVATIONS,
    "norm": NORMS,
    "norm_position": NORM_POSITIONS,
    "mixer": MIXERS,
    "hyper_connections": HYPER_CONNECTIONS,
}
EVERY = [(field, name) for field, variants in VARIANTS.items() for name in variants]
HERE = {"attention"}  # the mixer that the builder makes itself


@pytest.mark.parametrize(("field", "name"), EVERY)
def test_every_variant_names_what_makes_it(field, name):
    build = VARIANTS[field][name].build
    if field == "mixer" and name in HERE:
        assert build == ""
    else:
        module, made = build.split(":")
        assert callable(getattr(import_module(module), made))


def test_the_fields_accept_exactly_the_variants_of_their_part():
    for field in class_fields(ModelConfig) & VARIANTS.keys():
        (allowed,) = [
            item.names
            for item in ModelConfig.model_fields[field].metadata
            if isinstance(item, VariantName)
        ]
        assert allowed == tuple(VARIANTS[field])
    # The values of one are names, and not variants with facts of their own.
    assert class_fields(ModelConfig) - VARIANTS.keys() == {"feed_forward"}


@pytest.mark.parametrize(("field", "name"), EVERY)
def test_every_variant_can_be_set_alone(field, name):
    beside = {}
    if name in RECURRENT_MIXERS:
        beside["architecture"] = "decoder-only"
    if field == "hyper_connections":
        beside = {"architecture": "decoder-only", "norm_position": "pre"}
    assert getattr(resolve_row({field: name, **beside}, written=[field]), field) == name


@pytest.mark.parametrize("name", RECURRENT_MIXERS)
def test_a_mixer_of_one_direction_is_refused_in_an_encoder(name):
    with pytest.raises(ValueError, match=f"mixer={name} .* needs architecture=decoder-only"):
        resolve_row({"mixer": name})
