"""Presets, and the steps between two of them."""

import pytest

from ablate.config import ModelConfig
from ablate.config.inactive import inactive_fields
from ablate.config.presets import PARTS, PRESETS
from ablate.config.presets import SIZES as SIZES_OF_MODELS
from ablate.config.resolve import resolve_row
from ablate.config.steps import steps_between

SIZES = {"n_layers": 6, "d_model": 64, "n_heads": 4, "d_ff": 96}
WITHOUT_SIZES = [
    name
    for name, fields in PRESETS.items()
    if "n_layers" not in fields and fields["architecture"] == "decoder-only"
]


def test_every_preset_resolves():
    for name in PRESETS:
        assert resolve_row({**SIZES, "preset": name}).n_layers


def used(config):
    """The fields with an effect: a model without heads may have any size of heads."""
    idle = inactive_fields(config)
    return {name: value for name, value in config if name not in idle}


@pytest.mark.parametrize("start", WITHOUT_SIZES)
@pytest.mark.parametrize("end", ["gpt2", "qwen3", "gpt-j", "mamba2"])
def test_all_steps_together_lead_from_one_to_the_other(start, end):
    """No field in which two architectures differ is left out, and each step is a valid row."""
    for first, last in ((start, end), (end, start)):
        given = {**PRESETS[first], **SIZES}
        whole = resolve_row({**given, "preset": last})
        sizes = {name: value for name, value in given.items() if name not in PRESETS[last]}
        assert whole == resolve_row({"preset": last, **SIZES, **sizes})  # it keeps no part of base
        steps, changed = steps_between(given, {"preset": last}), {}
        for fields in steps.values():
            resolve_row({**given, **fields}, written=fields)
            changed |= fields
        assert used(resolve_row({**given, **changed})) == used(whole)
        for fields in steps.values():
            others = {name: value for name, value in changed.items() if name not in fields}
            resolve_row({**given, **others}, written=others)


def test_parts_that_depend_on_each_other_are_one_step():
    steps = steps_between({**PRESETS["qwen3"], **SIZES}, {"preset": "mamba2"})
    assert steps["positions-mixer"] == {"positional_encoding": "none", "mixer": "mamba2"}
    assert not {"positions", "mixer", "biases"} & steps.keys()
    # A setting of its own is a step by itself, and base's value is none.
    start = {**PRESETS["gpt2"], **SIZES, "attention_window": 4, "learning_rate": 0.1}
    steps = steps_between(start, {"preset": "gpt2", "n_kv_heads": 2, "learning_rate": 0.2})
    assert steps == {"sizes": {"n_kv_heads": 2}, "learning_rate": {"learning_rate": 0.2}}


def test_architectures_are_no_step():
    with pytest.raises(ValueError, match=r"architecture=decoder-only and architecture=encoder-onl"):
        steps_between({**PRESETS["gpt2"], **SIZES}, {"preset": "bert-base"})


def test_every_field_of_the_model_is_a_part_or_a_size_or_of_no_architecture():
    named = [name for names in PARTS.values() for name in names] + list(SIZES_OF_MODELS)
    assert len(set(named)) == len(named)
    assert ModelConfig.model_fields.keys() - set(named) == {
        "architecture", "max_positions", "initialization", "initialization_std",
        "output_initialization", "parametrization", "base_width", "base_depth", "z_loss",
        "document_masks", "future_tokens", "future_loss",
    }  # fmt: skip
