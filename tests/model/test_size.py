"""What `cost` says of a model in closed form is what torch counts on the model that is built."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config import resolve_row
from ablate.cost import Lengths, forward_flops, parameters
from ablate.model import Transformer
from tests.model.small import ENCODINGS, sentences, shape, small_model

WMT = 37_000
# Table 3 with V = 37,000, biases in the feed-forward network and two vectors a LayerNorm, computed apart from us.
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
    """A model without memory behind its weights."""
    with torch.device("meta"):
        return Transformer(config, vocab_size, torch.Generator("cpu"), torch.Generator("cpu"))


def counted(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("row", "settings", "count"), TABLE_3, ids=[row for row, _, _ in TABLE_3])
def test_each_row_of_the_papers_table_3_has_its_exact_number_of_parameters(row, settings, count):
    config = resolve_row(settings)
    assert parameters(config, WMT) == count
    assert counted(built_on_paper(config, WMT)) == count


@settings(max_examples=30, deadline=None)
@given(
    vocab_size=st.integers(5, 99),
    fields=st.fixed_dictionaries(
        {
            "n_layers": st.integers(1, 3),
            "d_model": st.integers(1, 20).map(lambda half: 2 * half),
            "d_ff": st.integers(1, 41),
            "n_heads": st.integers(1, 7),
            "d_k": st.integers(1, 13),
            "d_v": st.integers(1, 13),
            "max_positions": st.integers(8, 40),
            "positional_encoding": st.sampled_from(ENCODINGS),
        }
    ),
)
def test_the_closed_form_counts_the_parameters_of_any_shape(vocab_size, fields):
    config = shape(**fields)
    assert counted(built_on_paper(config, vocab_size)) == parameters(config, vocab_size)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "fields", [{}, {"n_layers": 1, "d_k": 11}, {"n_heads": 5, "d_v": 2}, {"d_model": 34, "d_ff": 3}]
)
def test_the_closed_form_counts_the_flops_of_a_forward_pass(encoding, fields):
    S, T = 11, 17
    model = small_model(positional_encoding=encoding, **fields)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model.logits(model(sentences(S), sentences(T, seed=2)))
    pair = Lengths(
        pairs=1,
        source_tokens=S,
        target_tokens=T,
        longer_tokens=T,
        source_squares=S * S,
        products=S * T,
        target_squares=T * T,
    )
    assert counter.get_total_flops() == forward_flops(model.config, model.embedding.weight.shape[0], pair)
