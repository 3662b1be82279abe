"""Cost formulas against the paper, the model, torch's FLOP counter and measured memory."""

from dataclasses import astuple
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.cost import (
    checkpoint_bytes,
    flops_per_step,
    forward_flops,
    idle_parameters,
    parameters,
    steps,
)
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.resolve import resolve_row
from ablate.data.batches import collate
from ablate.data.length_sums import length_sums
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.model import build
from ablate.model.experts import MixtureOfExperts
from ablate.parts import mixers
from ablate.store import checkpoints
from ablate.store.layout import RunFolder
from ablate.tasks.translation import Translation
from ablate.training import Trainer
from tests.data.small import split_of_lengths

V = 37_000

# Parameters

# Table 3 at V = 37000 with biases in the feed-forward networks and layer normalizations, none in
# attention.
TABLE_3 = {
    "base": ({}, 63_045_632),
    "A h=1": ({"n_heads": 1}, 63_045_632),
    "A h=4": ({"n_heads": 4}, 63_045_632),
    "A h=16": ({"n_heads": 16}, 63_045_632),
    "A h=32": ({"n_heads": 32}, 63_045_632),
    "B d_k=16": ({"d_k": 16}, 55_967_744),
    "B d_k=32": ({"d_k": 32}, 58_327_040),
    "C N=2": ({"n_layers": 2}, 33_644_544),
    "C N=4": ({"n_layers": 4}, 48_345_088),
    "C N=8": ({"n_layers": 8}, 77_746_176),
    "C d_model=256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 26_816_512),
    "C d_model=1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 163_815_424),
    "C d_ff=1024": ({"d_ff": 1024}, 50_450_432),
    "C d_ff=4096": ({"d_ff": 4096}, 88_236_032),
    "D dropout=0.0": ({"dropout": 0.0}, 63_045_632),
    "D dropout=0.2": ({"dropout": 0.2}, 63_045_632),
    "D label_smoothing=0.0": ({"label_smoothing": 0.0}, 63_045_632),
    "D label_smoothing=0.2": ({"label_smoothing": 0.2}, 63_045_632),
    "big": ({"preset": "big"}, 214_171_648),
}


@pytest.mark.parametrize("row", TABLE_3)
def test_parameters_of_table_3(row):
    fields, expected = TABLE_3[row]
    assert parameters(resolve_row(fields), V) == expected


# Sizes that differ from one another, so that no two can be confused.
SIZES = {"n_layers": 3, "d_model": 34, "d_ff": 41, "n_heads": 5, "d_k": 7, "d_v": 11}


# One variant per field, some together with another field that acts on the same part.
VARIANTS = {
    **{
        name: {"positional_encoding": name}
        for name in ("learned", "rope", "relative", "t5", "alibi", "none")
    },
    "relative at 3": {"positional_encoding": "relative", "relative_clip": 3},
    "depths": {"encoder_layers": 1, "decoder_layers": 2},
    "grouped": {"n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1, "attention_bias": True},
    "source heads": {"n_cross_heads": 3},
    "source heads grouped": {"n_kv_heads": 2, "n_cross_heads": 6, "attention_bias": True},
    "biases": {"attention_bias": True},
    "scale": {"attention_scale": 1},
    "dropouts": {"attention_dropout": 0.1, "activation_dropout": 0.1},
    "local": {"attention": "local", "attention_window": 3},
    "gelu": {"activation": "gelu"},
    "swiglu": {"activation": "swiglu"},
    "rmsnorm": {"norm": "rmsnorm"},
    "pre-norm": {"norm_position": "pre"},
    "pre-norm rmsnorm": {"norm_position": "pre", "norm": "rmsnorm"},
    "no norm": {"norm_position": "none"},
    "no residual": {"residual": False},
    "tied in the decoder": {"tied_embeddings": "decoder"},
    "untied": {"tied_embeddings": "none"},
}
OF_TWO_STACKS = ("depths", "source heads", "source heads grouped", "tied in the decoder")
VARIANTS |= {f"decoder-only {name}": {"architecture": "decoder-only", **fields}
             for name, fields in (("", {}), *VARIANTS.items()) if name not in OF_TWO_STACKS}  # fmt: skip
# Variants for which torch counts slightly less, since some first or last gradients need no product.
ROUNDED = {
    f"{architecture} {name}": {"architecture": architecture, **fields}
    for name, fields in (
        ("linear", {"attention": "linear"}),
        ("lstm", {"mixer": "lstm"}),
        ("gru", {"mixer": "gru"}),
    )
    for architecture in ("encoder-decoder", "decoder-only")
}
MIXERS = {
    name: {"architecture": "decoder-only", "mixer": name}
    for name in mixers.MIXERS
    if name not in ("attention", "lstm", "gru")
}
MIXERS["rg_lru"]["d_v"] = 6  # that of d_k
EVEN = {
    **SIZES,
    "d_ff": 42,
    "n_heads": 4,
    "d_k": 6,
}  # divisible, as shared heads and rotated pairs need


@pytest.mark.parametrize("variant", ["base", *VARIANTS, *ROUNDED, *MIXERS])
def test_parameters_of_every_variant_match_the_model(variant):
    config = resolve_row({**EVEN, **(VARIANTS | ROUNDED | MIXERS).get(variant, {})})
    assert parameters(config, 97) == sum(p.numel() for p in build(config, 97, seed=1).parameters())


def test_idle_parameters_are_those_of_the_experts_that_a_token_does_not_meet():
    config = resolve_row({**SIZES, "n_experts": 4, "experts_per_token": 1, "shared_experts": 1})
    model = build(config, 97, seed=1)
    mixtures = [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
    of_an_expert = sum(p.numel() for p in mixtures[0].experts[0].parameters())
    assert idle_parameters(config) == 3 * of_an_expert * len(mixtures)


@pytest.mark.parametrize("mixer", MIXERS)
def test_flops_of_the_mixers_are_near_torchs_counter_in_long_sequences(mixer):
    """The counter leaves out products that are no matrix products, such as a triangular system."""
    config = resolve_row({**EVEN, **MIXERS[mixer], "max_positions": 400, "d_k": 16, "d_v": 16})
    model = build(config, 100, seed=1).requires_grad_(False)
    tokens = 4 + torch.arange(320)[None] % 90
    with FlopCounterMode(display=False) as counter:
        model.logits(model.read(tokens))
    lengths = Lengths(1, 0, 320, 320, 0, 0, 320**2)
    ratio = counter.get_total_flops() / forward_flops(config, 100, lengths)
    assert 0.8 < ratio < 1.1


# FLOPs


def test_flops_of_a_step_of_base():
    at_25k_a_side = resolve_row({"batch_tokens": 25_000})
    assert ASSUMED_LENGTH == 30
    assert flops_per_step(at_25k_a_side, V, Lengths.assumed()) == pytest.approx(9.53e12, rel=0.005)


def lengths_of(split):
    sums = length_sums(split.fields, [split.lengths(range(len(split)))])
    return Lengths.of_fields(sums, split.fields)


def counted(config):
    """Ratio of torch's count of FLOPs to the formula, for forward and backward over pairs of
    unequal lengths.

    Each is in a batch of its own, so that nothing is padding.
    """
    model, split = (
        build(config, 1000, seed=1).train(),
        split_of_lengths([(13, 8), (5, 17), (2, 31)]),
    )
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        for i in range(len(split)):
            batch = collate(split, [i], "source", "target")
            states = model(batch.source, batch.target_in)[0]
            smoothed_cross_entropy(states, model.output_matrix, batch.target_out[0], 0.1).backward()
    expected = 3 * forward_flops(config, 1000, lengths_of(split))
    return counter.get_total_flops(), expected


@pytest.mark.parametrize("variant", ["base", *VARIANTS])
def test_flops_match_torchs_counter(variant):
    found, expected = counted(resolve_row({**EVEN, **VARIANTS.get(variant, {})}))
    assert found == expected


@pytest.mark.filterwarnings("ignore:TF32")
@pytest.mark.parametrize("variant", ROUNDED)
def test_flops_of_linear_attention_and_lstm_are_close_to_torchs_counter(variant):
    with torch.backends.mkldnn.flags(
        enabled=False
    ):  # whose LSTM is one operation that torch does not count
        found, expected = counted(resolve_row({**EVEN, **ROUNDED[variant]}))
    assert 0.97 * expected < found < expected


def test_the_cost_of_a_step_is_the_cost_of_its_tokens():
    config = resolve_row({"batch_tokens": 3600})
    pairs = Lengths(100, 2500, 2600, 2700, 70_000, 72_000, 74_000)
    expected = 3 * forward_flops(config, V, pairs) * 3600 / 2700
    assert flops_per_step(config, V, pairs) == pytest.approx(expected)


@given(st.integers(1, 50), st.sampled_from([1, 10, 1000]), st.sampled_from([1, 7]))
def test_flops_grow_with_the_pairs_and_with_the_batch(scale, batch, layers):
    pairs = Lengths(2, 40, 50, 55, 900, 1000, 1300)
    many = Lengths(*(scale * n for n in astuple(pairs)))
    config = resolve_row({**SIZES, "n_layers": layers, "batch_tokens": batch})
    assert forward_flops(config, V, many) == scale * forward_flops(config, V, pairs)
    assert flops_per_step(config, V, many) == pytest.approx(flops_per_step(config, V, pairs))
    twice = resolve_row({**SIZES, "n_layers": layers, "batch_tokens": 2 * batch})
    assert flops_per_step(twice, V, pairs) == pytest.approx(2 * flops_per_step(config, V, pairs))


# Disk


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run folder after one real step, its configuration and its vocabulary size."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "0123456789ab")
    config = resolve_row(
        {
            "n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 4, "batch_tokens": 50,
            "train_steps": 1,
        }
    )  # fmt: skip
    vocab_size = 1000
    split = split_of_lengths([(9, 11)] * 10)
    corpus = SimpleNamespace(
        split=lambda name: split, tokenizer=SimpleNamespace(vocab_size=vocab_size)
    )
    folder.path.mkdir()
    Trainer(
        config,
        1,
        Translation(),
        corpus,
        folder,
        device=torch.device("cpu"),
        micro_batch_tokens=50,
        keep_checkpoints=1,
    ).fit()
    return folder.checkpoints, config, vocab_size


def test_checkpoint_bytes_match_a_written_checkpoint(trained):
    folder, config, vocab_size = trained
    generation, _ = checkpoints.newest(folder)
    files = (generation.weights, generation.state, generation.manifest)
    assert sum(path.stat().st_size for path in files) == pytest.approx(
        checkpoint_bytes(config, vocab_size), rel=0.02
    )


# Time


PAIRS = Lengths(100, 2500, 2600, 2701, 1, 1, 1)


@pytest.mark.parametrize(
    ("fields", "lengths", "expected"),
    [
        ({"train_steps": 300}, PAIRS, 300),
        ({"train_steps": 300}, None, 300),
        ({"epochs": 3, "batch_tokens": 100}, PAIRS, 3 * 28),
        ({"epochs": 3, "batch_tokens": 100}, None, None),
        ({"epochs": 3, "batch_tokens": 100, "train_steps": 50}, PAIRS, 50),
        ({"epochs": 1, "batch_tokens": 100, "train_steps": 50}, PAIRS, 28),
        ({"epochs": 1, "batch_tokens": 100, "train_steps": 50}, None, None),
        ({"patience": 3, "train_steps": None}, PAIRS, None),
        ({"patience": 3, "train_steps": 70}, PAIRS, 70),
    ],
)
def test_the_number_of_steps_is_the_first_limit_reached(fields, lengths, expected):
    assert steps(resolve_row(fields), lengths) == expected
