"""Initial weights that a study asks for."""

import pytest
import torch

from ablate.model.embeddings import Embedding
from ablate.model.layers import Linear
from tests.model.small import build, shape

ONE_STACK = {"architecture": "decoder-only", "n_layers": 2, "d_model": 64, "d_ff": 96, "n_heads": 4}


def model(**fields):
    return build(shape(**ONE_STACK, d_k=16, d_v=16, **fields), 97, 3)


def weights(of, kind=Linear):
    return {name: m.weight for name, m in of.named_modules() if isinstance(m, kind)}


def test_normal_weights_have_the_deviation_that_is_given():
    for of in (Linear, Embedding):
        for name, weight in weights(model(initialization="normal"), of).items():
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.1), name
            assert abs(float(weight.detach().mean())) < 0.002, name
    other = model(initialization="normal", initialization_std=0.1)
    assert float(other.embedding.weight.detach().std()) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("mixer", ["attention", "gated_deltanet", "short_convolution"])
@pytest.mark.parametrize("kind", ["xavier", "normal"])
def test_only_the_projections_that_add_to_the_stream_are_scaled_or_zero(mixer, kind):
    fields = {"initialization": kind, "mixer": mixer, "positional_encoding": "none"}
    plain = weights(model(**fields))
    scaled = weights(model(**fields, output_initialization="depth"))
    zero = weights(model(**fields, output_initialization="zero"))
    added = {name for name in plain if name.rpartition(".")[2] in ("W_O", "W_2", "output")}
    assert len(added) == 4  # of two sub-layers in two layers
    for name, weight in plain.items():
        if name in added:
            torch.testing.assert_close(scaled[name], weight / 2)
            assert not zero[name].any()
        else:
            assert torch.equal(scaled[name], weight)
            assert torch.equal(zero[name], weight)


def test_a_model_whose_sub_layers_put_out_zero_begins_as_its_embeddings():
    made = model(output_initialization="zero", norm_position="pre", positional_encoding="none")
    tokens = torch.tensor([[5, 7, 11]])
    expected = made.decoder_norm(made.embedding(tokens))
    torch.testing.assert_close(made.eval().read(tokens), expected)
