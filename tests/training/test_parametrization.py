"""muP and CompleteP: sizes of activations and of their changes, and the best rate, stay over widths
and depths; with the standard parametrization they do not.
"""

import math

import pytest
import torch
from torch.nn import functional as F

from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.parts.initialization import Factors, factors
from ablate.training.optimizer import Optimizer
from benchmarks.parametrization import RATES, WIDTHS, activations, best_rate, row


def slope(sizes, of):
    """Of the logarithm of a size over the logarithm of width or depth, by least squares."""
    x = torch.tensor([math.log(value) for value in of])
    y = torch.tensor([math.log(size) for size in sizes])
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def slopes(widths=WIDTHS, **settings):
    """For each activation, how its size grows with the width after four steps."""
    sizes = [activations(row(width, **settings)) for width in widths]
    return {name: slope([size[name] for size in sizes], widths) for name in sizes[0]}


KINDS = {
    "tied": {},
    "untied": {"tied_embeddings": "none"},
    "unscaled": {"tied_embeddings": "none", "embedding_scale": 1},
    "normal": {"initialization": "normal"},
    "learned positions": {"positional_encoding": "learned"},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1},
    "muon": {"optimizer": "normuon"},
    "lion": {"optimizer": "lion", "learning_rate": 0.003},
}


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_activations_do_not_grow_with_the_width_in_mup(kind):
    widths = WIDTHS[:4] if kind == "muon" else WIDTHS
    found = slopes(widths, parametrization="mup", **KINDS[kind])
    assert {name: value for name, value in found.items() if value > 0.15} == {}
    # Initial logits may fall by the root of the width, which is 0.5 here.
    assert all(value > -0.25 for name, value in found.items() if "logits" not in name)


def test_changes_grow_with_the_width_in_the_standard_parametrization():
    found = slopes()
    for name in ("logits", "decoder.0.mixer", "decoder.1.feed_forward"):
        assert found[f"change of {name}"] > 0.4


def test_changes_of_the_stream_do_not_grow_with_the_depth_in_completep():
    depths = (2, 4, 8, 16)
    found = {}
    for name in ("mup", "completep"):
        sizes = [activations(row(64, n_layers=N, parametrization=name)) for N in depths]
        found[name] = slope([size["change of states"] for size in sizes], depths)
    assert abs(found["completep"]) < 0.12
    assert found["mup"] > found["completep"] + 0.1


@pytest.mark.slow
def test_the_best_rate_stays_over_widths_in_mup_and_falls_in_the_standard_parametrization():
    """On a grid of factors of 2; measured over five widths in benchmarks/LOG.md."""
    powers = {}
    for name in ("standard", "mup"):
        settings = {"parametrization": name, "tied_embeddings": "none"}
        best = [best_rate(width, rates=RATES[2:7], **settings) for width in (32, 256)]
        powers[name] = [round(math.log2(rate)) for rate in best]
    assert abs(powers["mup"][0] - powers["mup"][1]) <= 1
    assert powers["standard"][0] - powers["standard"][1] >= 3


@pytest.mark.parametrize("name", ["mup", "completep"])
def test_at_the_base_it_is_the_standard_parametrization(name):
    at_base = {"base_width": 256, "n_heads": 4, "n_layers": 2}  # heads of 64
    standard, scaled = row(256, n_heads=4), row(256, parametrization=name, **at_base)
    assert factors(scaled) == Factors() == factors(standard)
    models = [build(config, 17, seed=1) for config in (standard, scaled)]
    tokens = torch.arange(1, 17).view(2, 8)
    states = [model.output_states(model.read(tokens)) for model in models]
    assert torch.equal(*states)


def test_wider_than_the_base_each_kind_has_its_rate_and_decay_times_rate_stays():
    config = row(256, parametrization="mup", base_width=64, optimizer="adamw", weight_decay=0.1)
    model = build(config, 17, seed=1)
    rates = {}
    for group in Optimizer(model, config).groups:
        rates.update(dict.fromkeys(group.parameters, (group.rate, group.rate * group.decay)))
    assert rates["embedding.weight"] == (0.5, 0.1)  # by the root of 4, as its scale grows
    assert rates["decoder.0.mixer.W_Q.weight"] == (0.25, pytest.approx(0.1))
    assert rates["decoder.0.feed_forward.W_1.bias"] == (1.0, 0.0)


def test_convolutions_of_each_channel_keep_their_rate_over_widths():
    """A kernel has a fan-in of 4 at every width; the gate of `smear` one that grows."""
    fields = {"attention_convolution": "qkv", "smear": True, "optimizer": "normuon"}
    config = row(256, parametrization="mup", base_width=64, **fields)
    rates = {}
    for group in Optimizer(build(config, 17, seed=1), config).groups:
        rates.update(dict.fromkeys(group.parameters, group.rate))
    kernels = [rate for name, rate in rates.items() if name.endswith("convolution.weight")]
    assert kernels == [1.0, 1.0]
    assert rates["token_pairs.0.gate"] == 0.25


def test_tables_without_the_factor_of_embeddings_keep_rate_and_size_over_widths():
    """As the table of docs/variants.md says of `embedding_scale: 1`."""
    fields = {"value_embeddings": "added", "bigram_embeddings": 8}
    sizes = {}
    for width in (64, 256):
        config = row(width, parametrization="mup", base_width=64, **fields)
        model = build(config, 997, seed=1)
        rates = {}
        for group in Optimizer(model, config).groups:
            rates.update(dict.fromkeys(group.parameters, group.rate))
        tables = [name for name in rates if name.endswith("table.weight")]
        assert len(tables) == 1 + config.n_layers
        assert {rates[name] for name in tables} == {1.0}
        sizes[width] = float(model.get_parameter(tables[-1]).detach().std())
    assert sizes[256] == pytest.approx(sizes[64], rel=0.02)


def test_logits_fall_by_the_width_or_by_its_root_where_embeddings_are_scaled():
    tokens = torch.arange(1, 17).view(2, 8)
    for settings, factor in (({}, 0.5), ({"tied_embeddings": "none"}, 0.25)):
        model = build(row(256, parametrization="mup", base_width=64, **settings), 17, seed=1)
        states = model.read(tokens)
        matrix = model.embedding.weight if model.output is None else model.output.weight
        torch.testing.assert_close(model.logits(states), factor * F.linear(states, matrix))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "sgd"}, "not for optimizer=sgd"),
        ({"optimizer": "a:B"}, "not for optimizer=a:B"),
        ({"learning_rate": None}, "set learning_rate"),
        ({"mixer": "lstm"}, "no rules for mixer=lstm"),
        (
            {"parametrization": "completep", "residual_scale": "depth"},
            "residual_scale must be none; it is depth",
        ),
    ],
)
def test_what_the_rules_do_not_cover_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        resolve_row({"parametrization": "mup", "learning_rate": 0.1, **settings})
