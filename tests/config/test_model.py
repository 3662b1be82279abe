"""Compatibility of model settings, and values derived from them."""

import pytest
from pydantic import ValidationError

from ablate.config.resolve import resolve_row
from ablate.fields import field_faults

# (incompatible settings, the reason)
INCOMPATIBLE = [
    ({"d_model": 15, "n_heads": 3}, "d_model=15 is odd, and sinusoidal positions pair a sine with a cosine"),
    ({"positional_encoding": "rope", "d_k": 7}, "d_k=7 is odd, and rope rotates pairs of a head's entries"),
    ({"rope_fraction": 0.5, "positional_encoding": "rope", "n_layers": 2, "d_k": [8, 6], "mixer": ["lstm", "attention"]},
     "layer 2: rope_fraction=0.5 of d_k=6 is 3 entries, and rope rotates pairs of entries"),
    ({"n_kv_heads": 3}, "n_kv_heads=3 does not divide h=8: groups of query heads must be equal"),
    ({"n_kv_heads": 16}, "n_kv_heads=16 does not divide h=8: groups of query heads must be equal"),
    (
        {"n_kv_heads": 4, "n_cross_heads": 6},
        "n_kv_heads=4 does not divide n_cross_heads=6: groups of query heads must be equal",
    ),
    *(
        (
            {"positional_encoding": name, "mixer": "lstm"},
            f"positional_encoding={name} acts inside self-attention, which mixer=lstm replaces",
        )
        for name in ("rope", "relative", "t5", "alibi")
    ),
    *(
        (
            {"positional_encoding": name, "attention": "linear"},
            f"positional_encoding={name} acts inside of attention with scores, and "
            "attention=linear computes none",
        )
        for name in ("rope", "relative", "t5", "alibi")
    ),
    (
        {"mixer": "lstm", "d_model": 15, "n_heads": 3, "positional_encoding": "none"},
        "d_model=15 is odd, and in the encoder each direction of mixer=lstm has half of d_model",
    ),
    (
        {"architecture": "decoder-only", "tied_embeddings": "decoder"},
        "tied_embeddings=decoder does not work without an encoder: there is one embedding; use all "
        "or none",
    ),
    ({"schedule": "linear", "train_steps": None, "patience": 5},
     "schedule=linear falls to its end at the last step; set train_steps or epochs"),
    ({"schedule": "cosine", "train_steps": None, "patience": 5},
     "schedule=cosine falls to its end at the last step; set train_steps or epochs"),
    ({"attention": "differential", "n_heads": 1, "d_k": 8, "d_v": 8},
     "attention=differential takes heads in pairs, and h=1 is odd"),
    ({"attention": "differential", "positional_encoding": "relative"},
     "attention=differential concatenates the values of two heads, so positional_encoding=relative, which "
     "adds to the values of each head, does not fit"),
    ({"kv_rank": 16, "n_kv_heads": 4}, "kv_rank=16 makes keys and values for all heads, so n_kv_heads must be unset; it is 4"),
    ({"architecture": "decoder-only", "embedding_skip": True, "stream_scale": True},
     "stream_scale=true has no effect beside embedding_skip=true, which already multiplies the stream by a trained number"),
    ({"architecture": "decoder-only", "value_residual": True, "n_kv_heads": [8, 4]},
     "value_residual=true needs values of one width in all layers that set it; widths are 256 and 512"),
    ({"optimizer": "adamw"}, "optimizer=adamw without weight_decay is adam; set weight_decay above 0"),
]  # fmt: skip

# Similar settings that are compatible.
COMPATIBLE = [
    {"positional_encoding": "rope", "d_k": 8, "d_v": 7},
    {"n_kv_heads": 1, "n_cross_heads": 3},
    {"n_kv_heads": 4, "n_cross_heads": 12},
    {"n_kv_heads": 8, "n_cross_heads": 16},
    {"architecture": "decoder-only", "mixer": "lstm", "d_model": 15, "n_heads": 3, "positional_encoding": "none"},
    {"mixer": "lstm", "positional_encoding": "learned"},
    {"positional_encoding": "rope", "rope_fraction": 0.5, "n_layers": 2, "d_k": (8, 6), "mixer": ("attention", "lstm")},
    {"attention": "linear", "positional_encoding": "learned", "activation_dropout": 0.1},
    {"attention": "local", "positional_encoding": "relative", "attention_dropout": 0.1},
    {"schedule": "cosine", "epochs": 3},
    {"schedule": "constant", "train_steps": None, "patience": 5},
    {"weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1},
]  # fmt: skip


@pytest.mark.parametrize(("settings", "reason"), INCOMPATIBLE)
def test_incompatible_settings_are_errors(settings, reason):
    with pytest.raises(ValidationError) as caught:
        resolve_row(settings)
    [fault] = field_faults(caught.value)
    assert fault.sentence == reason
    assert set(fault.fields) & settings.keys()


@pytest.mark.parametrize("settings", COMPATIBLE, ids=str)
def test_compatible_settings_are_accepted(settings):
    config = resolve_row(settings)
    assert {name: getattr(config, name) for name in settings} == settings


def test_all_reasons_are_reported_together():
    with pytest.raises(ValidationError) as caught:
        resolve_row({"mixer": "lstm", "positional_encoding": "t5", "n_kv_heads": 3})
    assert [fault.fields for fault in field_faults(caught.value)] == [
        ("n_kv_heads", "n_heads"),
        ("positional_encoding", "mixer"),
    ]


@pytest.mark.parametrize("scale", [1, 1.0])
def test_every_spelling_of_a_scale_of_one_is_the_same_setting(scale):
    assert repr(resolve_row({"attention_scale": scale}).attention_scale) == "1"


@pytest.mark.parametrize(
    ("settings", "depths"),
    [
        ({}, (6, 6)),
        ({"n_layers": 3}, (3, 3)),
        ({"encoder_layers": 2}, (2, 6)),
        ({"n_layers": 3, "decoder_layers": 1}, (3, 1)),
        ({"encoder_layers": 12, "decoder_layers": 1}, (12, 1)),
        ({"architecture": "decoder-only"}, (0, 6)),
        ({"architecture": "decoder-only", "decoder_layers": 4}, (0, 4)),
    ],
)
def test_depths_are_n_unless_a_side_sets_its_depth(settings, depths):
    assert resolve_row(settings).depths == depths


def test_positions_of_a_pair_with_begin_and_end_tokens():
    """Encoder-decoder: `5 tokens </s>` and `<s> 7 tokens`; decoder-only: `5 tokens </s> <s> 7
    tokens`.
    """
    assert resolve_row({}).positions_needed(5, 7) == 8
    assert resolve_row({}).positions_needed(9, 7) == 10
    assert resolve_row({"architecture": "decoder-only"}).positions_needed(5, 7) == 14


@pytest.mark.parametrize(("d_ff", "gated"), [(2048, 1365), (255, 170), (3, 2), (1, 1)])
def test_a_gated_network_has_two_thirds_of_d_ff(d_ff, gated):
    """Three matrices of 2/3 d_ff have as many weights as two of d_ff."""
    config = resolve_row({"d_ff": d_ff})
    assert (config.inner_width(False), config.inner_width(True)) == (d_ff, gated)
