"""Parameters and FLOPs in closed form (`config/cost.py`) equal those that torch counts on the built
model.

Parameters of any shape are in test_properties.py.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.cost import forward_flops, parameters
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.model import ARCHITECTURES, attention, build
from ablate.model.builder import ModelBuilder
from ablate.parts import attention as of_attention
from tests.model.random_shapes import LONGEST, RECURRENT_NETWORKS, shapes
from tests.model.small import ENCODINGS, V, sentences, small_model

WMT = 37_000
# Table 3 with V = 37,000, biases in the feed-forward network and two vectors a LayerNorm, computed
# independently.
TABLE_3 = [
    ("base", {}, 63_045_632),
    ("A h=1", {"n_heads": 1}, 63_045_632),
    ("A h=4", {"n_heads": 4}, 63_045_632),
    ("A h=16", {"n_heads": 16}, 63_045_632),
    ("A h=32", {"n_heads": 32}, 63_045_632),
    ("B d_k=16", {"d_k": 16}, 55_967_744),
    ("B d_k=32", {"d_k": 32}, 58_327_040),
    ("C N=2", {"n_layers": 2}, 33_644_544),
    ("C N=4", {"n_layers": 4}, 48_345_088),
    ("C N=8", {"n_layers": 8}, 77_746_176),
    ("C d_model=256", {"d_model": 256, "d_k": 32, "d_v": 32}, 26_816_512),
    ("C d_model=1024", {"d_model": 1024, "d_k": 128, "d_v": 128}, 163_815_424),
    ("C d_ff=1024", {"d_ff": 1024}, 50_450_432),
    ("C d_ff=4096", {"d_ff": 4096}, 88_236_032),
    ("D dropout=0.0", {"dropout": 0.0}, 63_045_632),
    ("D dropout=0.2", {"dropout": 0.2}, 63_045_632),
    ("D eps_ls=0.0", {"label_smoothing": 0.0}, 63_045_632),
    ("D eps_ls=0.2", {"label_smoothing": 0.2}, 63_045_632),
    ("E learned", {"positional_encoding": "learned"}, 63_045_632 + 2 * 1024 * 512),
    ("big", {"preset": "big"}, 214_171_648),
]


def built_on_paper(config, vocab_size):
    """A model on torch's meta device, without memory for its weights."""
    with torch.device("meta"):
        generator = torch.Generator("cpu")
        return ARCHITECTURES[config.architecture](
            ModelBuilder(config, vocab_size, generator, generator)
        )


def counted(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("row", "settings", "count"), TABLE_3, ids=[row for row, _, _ in TABLE_3])
def test_rows_of_the_papers_table_3_have_their_exact_number_of_parameters(row, settings, count):
    config = resolve_row(settings)
    assert parameters(config, WMT) == count
    assert counted(built_on_paper(config, WMT)) == count


@pytest.fixture(scope="module", autouse=True)
def without_onednn():
    """With oneDNN, an LSTM is one kernel that torch counts as no FLOPs; without, it consists of
    matrix products.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = before


def pair(S, T):
    """Length sums of a corpus of one pair."""
    return Lengths(
        pairs=1,
        source_tokens=S,
        target_tokens=T,
        longer_tokens=max(S, T),
        source_squares=S * S,
        products=S * T,
        target_squares=T * T,
    )


def counted_flops(model, S, T):
    """FLOPs that torch counts in a forward pass, with attention unfused: its matrix products."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.logits(model(sentences(S), sentences(T, seed=2)))
    return counter.get_total_flops()


VARIANTS = [
    *({"positional_encoding": encoding} for encoding in ENCODINGS),
    {"n_layers": 1, "d_k": 12},
    {"n_heads": 5, "d_v": 2},
    {"d_model": 34, "d_ff": 3},
    {"encoder_layers": 3, "decoder_layers": 1},
    {"n_heads": 4, "n_kv_heads": 2},
    {"n_kv_heads": 1, "positional_encoding": "relative"},
    {"hyper_connections": "static", "expansion_rate": 2, "norm_position": "pre"},
    {"hyper_connections": "dynamic", "expansion_rate": 3, "norm_position": "pre"},
    {"n_cross_heads": 1},
    {"activation": "swiglu"},
    {"attention_bias": True, "norm_position": "pre", "norm": "rmsnorm", "tied_embeddings": "none"},
    {"attention": "local"},
    {"attention": "linear"},
    {"attention": "linear", "n_kv_heads": 1},
    {"mixer": "lstm"},
    {"mixer": "gru"},
]


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_the_closed_form_counts_the_flops_of_a_forward_pass(fields, architecture):
    S, T = 11, 17
    model = small_model(architecture=architecture, max_positions=31, **fields)
    assert counted_flops(model, S, T) == forward_flops(model.config, V, pair(S, T))


@settings(max_examples=60)
@given(config=shapes(output_bias=False), S=st.integers(1, LONGEST), T=st.integers(1, LONGEST))
def test_the_closed_form_counts_the_flops_of_any_shape(config, S, T):
    # A sum over one number is no product to einsum, which relative positions are multiplied by, and
    # is not counted.
    assume(config.positional_encoding != "relative" or min(S, T, config.d_k) > 1)
    # Nor is one over a single stream.
    assume(config.hyper_connections == "none" or config.expansion_rate > 1)
    # Those of a recurrence in chunks are an estimate.
    assume({layer.mixer for layer in config.all_layers} <= {"attention", *RECURRENT_NETWORKS})
    assert counted_flops(build(config, V, 1).eval(), S, T) == forward_flops(config, V, pair(S, T))


@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_causal_linear_attention_costs_one_chunk_of_weights_per_chunk(
    monkeypatch, architecture, chunks
):
    for module in (of_attention, attention):
        monkeypatch.setattr(module, "LINEAR_CHUNK", 7)
    T = 7 * chunks
    model = small_model(architecture=architecture, attention="linear", max_positions=80)
    assert counted_flops(model, T, T) == forward_flops(model.config, V, pair(T, T))


@pytest.mark.parametrize("T", [8, 10, 13, 20])
def test_a_partial_last_chunk_is_counted_as_a_full_one(monkeypatch, T):
    for module in (of_attention, attention):
        monkeypatch.setattr(module, "LINEAR_CHUNK", 7)
    model = small_model(attention="linear")
    c, rest = model.config, T % 7
    more = 2 * c.n_layers * rest * (7 - rest) * c.n_heads * (c.d_k + c.d_v + 1)
    assert forward_flops(c, V, pair(T, T)) - counted_flops(model, T, T) == more
