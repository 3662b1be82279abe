"""FLOPs in closed form (`config/cost.py`) equal those that torch counts on models of any shape.

Parameters of any shape are in test_properties.py, those of Table 3 in tests/config/test_cost.py.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.cost import forward_flops
from ablate.config.lengths import Lengths
from ablate.model import attention, build
from ablate.parts import attention as of_attention
from tests.model.random_shapes import LONGEST, RECURRENT_NETWORKS, shapes
from tests.model.small import V, sentences, small_model


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
