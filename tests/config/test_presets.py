"""Presets, and the steps between two of them."""

import itertools

import pytest

from ablate.config import PRESETS, resolve_row
from ablate.config.presets import steps_between

SIZES = {"n_layers": 6, "d_model": 64, "n_heads": 4, "d_ff": 96}
WITHOUT_SIZES = [name for name, fields in PRESETS.items() if "n_layers" not in fields]


def test_every_preset_resolves():
    for name in PRESETS:
        assert resolve_row({**SIZES, "preset": name}).n_layers


@pytest.mark.parametrize(("start", "end"), list(itertools.permutations(WITHOUT_SIZES, 2)), ids=str)
def test_all_steps_together_lead_from_one_to_the_other(start, end):
    """No field in which two architectures differ is left out."""
    in_a_row = resolve_row({**SIZES, **PRESETS[start], "preset": end})
    assert in_a_row == resolve_row({**SIZES, "preset": end})  # which keeps nothing of base's
    steps = steps_between(start, end)
    changed = {name: value for fields in steps.values() for name, value in fields.items()}
    given = {**PRESETS[start], **SIZES}
    assert resolve_row({**given, **changed}) == resolve_row({**PRESETS[end], **SIZES})
    for fields in steps.values():  # each of them is a valid row by itself
        resolve_row({**given, **fields}, written=fields)


def test_architectures_are_no_step():
    with pytest.raises(ValueError, match=r"bert-base is encoder-only.*gpt2|gpt2.*encoder-only"):
        steps_between("gpt2", "bert-base")
