"""Fields that alternate over the layers."""

import pytest
from pydantic import ValidationError

from ablate.config import ModelConfig
from ablate.config.cost import parameters
from ablate.config.identity import run_id
from ablate.config.inactive import InactiveSettings
from ablate.config.model import LAYER_FIELDS, shortest_pattern
from ablate.config.resolve import resolve_row
from ablate.fields import facts_of
from ablate.tasks import Translation

GEMMA = {
    "architecture": "decoder-only",
    "n_layers": 5,
    "positional_encoding": "none",
    "attention": ["local", "local", "full"],
    "attention_window": [4, 8, 8],
}


def test_the_values_are_repeated_over_the_layers():
    layers = resolve_row(GEMMA).all_layers
    assert [layer.attention for layer in layers] == ["local", "local", "full", "local", "local"]
    assert [layer.attention_window for layer in layers] == [4, 8, 8, 4, 8]
    assert all(layer.patterns == {} and layer.n_layers == 5 for layer in layers)


def test_each_stack_begins_with_the_first_value():
    config = resolve_row({"encoder_layers": 3, "decoder_layers": 2, "d_ff": [8, 16]})
    assert [layer.d_ff for layer in config.layers(3)] == [8, 16, 8]
    assert [layer.d_ff for layer in config.layers(2)] == [8, 16]


@pytest.mark.parametrize("name", LAYER_FIELDS)
def test_every_field_of_a_layer_takes_a_pattern(name):
    """And a value that is the same in all layers is that value, with the same id."""
    field = ModelConfig.model_fields[name]
    value = 64 if field.is_required() else field.default
    base = {"positional_encoding": "none", "n_layers": 2}
    same, plain = (resolve_row({**base, name: given}) for given in ([value, value], value))
    assert same == plain
    data = Translation().resolve_data({"corpus": "toy"})
    assert run_id(data, same, 1) == run_id(data, plain, 1)


def test_what_belongs_to_the_whole_model_takes_none():
    of_layers = {name for name, facts in facts_of(ModelConfig).items() if facts.per_layer}
    assert of_layers == set(LAYER_FIELDS)
    assert not of_layers & {"d_model", "n_layers", "max_positions", "tied_embeddings"}
    with pytest.raises(ValidationError, match="valid integer"):
        resolve_row({"d_model": [64, 32]})


def test_patterns_have_one_form():
    assert shortest_pattern((1, 2, 1, 2)) == (1, 2)
    assert shortest_pattern((1, 1)) == 1
    assert shortest_pattern((1, 2, 1)) == (1, 2, 1)
    assert shortest_pattern((True, True, False, True)) == (True, True, False, True)


def test_sizes_of_heads_follow_from_the_heads_of_each_layer():
    config = resolve_row({"d_model": 64, "n_heads": [2, 4], "n_layers": 2})
    assert (config.d_k, config.d_v) == ((32, 16), (32, 16))
    assert config.has_derived_heads("d_k")
    assert not resolve_row({"d_model": 64, "n_heads": [2, 4], "d_k": 16}).has_derived_heads("d_k")


def test_parameters_are_the_sum_over_the_layers():
    def count(**fields):
        return parameters(resolve_row({"n_layers": 2, "d_model": 64, **fields}), 100)

    assert 2 * count(d_ff=[16, 48]) == count(d_ff=16) + count(d_ff=48)
    assert 2 * count(n_kv_heads=[1, 4]) == count(n_kv_heads=1) + count(n_kv_heads=4)


def test_a_setting_needs_an_effect_in_one_layer():
    assert resolve_row(GEMMA, ["attention_window"]).attention_window == (4, 8, 8)
    with pytest.raises(InactiveSettings, match="attention_window"):
        resolve_row({**GEMMA, "attention": ["full", "linear"]}, ["attention_window"])
    linear = {**GEMMA, "attention": "linear", "attention_dropout": 0.5}
    del linear["attention_window"]
    with pytest.raises(InactiveSettings, match="attention_dropout"):
        resolve_row(linear, ["attention_dropout"])
    assert resolve_row({**linear, "attention": ["linear", "full"]}).attention_dropout == 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"attention_window": [4, 8, 5]},
            "attention_window: 5 stands only in layers where it has no effect: it belongs to "
            "attention=local, which is not chosen",
        ),
        (
            {"mixer": ["attention", "lstm", "attention"], "d_ff": [1, 2, 3]},
            None,  # the network beside a mixer has an effect, and local stands in layer 1
        ),
        (
            {"mixer": ["lstm", "lstm", "attention"]},
            "attention: local stands only in layers where it has no effect: it belongs to "
            "mixer=attention, which is not chosen",
        ),
    ],
    ids=str,
)
def test_each_value_of_a_pattern_has_an_effect_in_one_layer(fields, message):
    settings = {**GEMMA, "n_layers": 3, **fields}
    if message is None:
        assert resolve_row(settings, [*fields, "attention"]).n_layers == 3
        return
    with pytest.raises(InactiveSettings) as error:
        resolve_row(settings, [*fields, "attention"])
    assert message in str(error.value)


def test_a_pattern_survives_json():
    config = resolve_row(GEMMA)
    assert type(config).model_validate_json(config.model_dump_json()) == config


def test_a_layer_without_attention_needs_no_groups_of_heads():
    """And what a configuration says of itself is a valid configuration: the same one."""
    fields = {"architecture": "decoder-only", "n_layers": 2, "n_heads": 1, "n_cross_heads": 1}
    patterns = {"n_kv_heads": [None, 2], "mixer": ["attention", "lstm"]}
    config = resolve_row({**fields, **patterns})
    own_fields = {name: getattr(config, name) for name in type(config).model_fields}
    assert resolve_row(own_fields) == config
