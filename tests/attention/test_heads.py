"""Every attention of a model is found once, and named by kind and layer."""

import pytest

from ablate.attention.weights import attention_layers
from ablate.errors import UsageError
from tests.model.small import small_model


def names(model, *chosen):
    return [(attention.kind, attention.layer) for attention in attention_layers(model, *chosen)]


def test_an_encoder_decoder_has_three_kinds_in_each_layer():
    model = small_model(encoder_layers=1, decoder_layers=3)
    assert names(model) == [
        ("encoder", 1), ("decoder", 1), ("decoder", 2), ("decoder", 3), ("cross", 1), ("cross", 2), ("cross", 3),
    ]  # fmt: skip
    found = {attention: attention.module for attention in attention_layers(model)}
    assert next(
        module for attention, module in found.items() if str(attention) == "cross layer 2"
    ) is (model.decoder[1].cross_attention)
    assert len(set(map(id, found.values()))) == 7


def test_a_decoder_only_model_has_one_kind():
    assert names(small_model(architecture="decoder-only")) == [("decoder", 1), ("decoder", 2)]


def test_an_lstm_model_has_only_cross_attention():
    assert names(small_model(mixer="lstm")) == [("cross", 1), ("cross", 2)]


def test_a_model_without_attention_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="architecture=decoder-only with mixer=lstm/mamba2"):
        attention_layers(small_model(mixer=["lstm", "mamba2"], architecture="decoder-only"))


@pytest.mark.parametrize(
    ("kinds", "layers", "expected"),
    [
        (["cross"], [], [("cross", 1), ("cross", 2)]),
        ([], [2], [("encoder", 2), ("decoder", 2), ("cross", 2)]),
        (["decoder", "encoder"], [1, 7], [("encoder", 1), ("decoder", 1)]),
    ],
)
def test_layers_are_selected_by_kind_and_number(kinds, layers, expected):
    assert names(small_model(), kinds, layers) == expected


def test_an_empty_selection_is_an_error_with_the_available_layers():
    expected = (
        "--kind cross --layer 7: the run has no such attention; it has encoder layers 1 to 2, "
        "decoder layers"
    )
    with pytest.raises(UsageError, match=expected):
        attention_layers(small_model(), ["cross"], [7])
