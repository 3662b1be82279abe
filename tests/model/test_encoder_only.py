"""Encoder-only models: one stack in which every token attends to all others and to no padding;
BERT's parts.
"""

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.model.attention_context import AttentionContext
from ablate.training.optimizer import hidden_matrices
from tests.model.small import ENCODINGS, normal, places, sentences, small_model

VARIANTS = [
    *({"positional_encoding": encoding} for encoding in ENCODINGS),
    {"mixer": "lstm"},
    {"mixer": "gru"},
    {"attention": "linear"},
    {"attention": "local", "attention_window": 3},
    {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu", "n_kv_heads": 1},
    {"embedding_norm": True, "token_types": 2, "output_transform": True, "output_bias": True},
]
PARTS = VARIANTS[-1]


def encoder_only(**fields):
    return small_model(architecture="encoder-only", **fields).requires_grad_(False)


def twin(encoder, fields):
    """An encoder-decoder model with the weights of this encoder."""
    both = small_model(**fields).requires_grad_(False)
    state = both.state_dict()
    names = {"positions.": "source_positions.", "embedding.": "embedding."}
    for name, value in encoder.state_dict().items():
        prefix = next((prefix for prefix in names if name.startswith(prefix)), None)
        state[name if prefix is None else names[prefix] + name.removeprefix(prefix)] = value
    both.load_state_dict(state)
    return both


def layer_by_layer(model, tokens):
    """States of one sentence (1, T) by the layers of the model, one after another."""
    at = places(tokens.shape[1])
    x = model.positions.embed(model.embedding(tokens), at)
    for i, layer in enumerate(model.encoder):
        context = AttentionContext(at, at, positional_encoding=model.positions, layer=i)
        x = layer.apply_feed_forward(layer.apply_mixer(x, None, context)[0])
    return model.encoder_norm(x)


@pytest.mark.parametrize("fields", VARIANTS[:-1], ids=str)
def test_states_are_those_of_the_encoder_of_both_stacks(fields):
    model, tokens = encoder_only(**fields), sentences(4, 7, 1)
    seen = []
    both = twin(model, fields)
    both.encoder_norm.register_forward_hook(lambda module, args, out: seen.append(out))
    both.encode(tokens)
    real = tokens != 0
    torch.testing.assert_close(model.read(tokens)[real], seen[0][real])
    torch.testing.assert_close(seen[0][1:2], layer_by_layer(model, tokens[1:2]))


def test_berts_parts_are_those_of_its_formulas():
    model, tokens, seen = encoder_only(**PARTS, activation="gelu"), sentences(5), []
    model.embedding_dropout.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    states = model.read(tokens)

    def normalized(x, norm):
        return F.layer_norm(x, (26,), norm.weight, norm.bias, norm.eps)

    embedded = (
        model.embedding(tokens) + model.positions.table[places(5)] + model.token_types.weight[0]
    )
    torch.testing.assert_close(seen[0], normalized(embedded, model.embedding_norm))
    head = model.output_transform
    hidden = normalized(F.gelu(states @ head.linear.weight.T + head.linear.bias), head.norm)
    expected = hidden @ model.embedding.weight.T + model.output_bias
    torch.testing.assert_close(model.logits(states), expected, atol=1e-5, rtol=1e-5)


def test_the_bias_of_the_logits_gets_the_gradient_of_torchs_loss():
    model = small_model(architecture="encoder-only", **PARTS)
    states, targets = normal(9, 26), torch.arange(4, 13)
    smoothed_cross_entropy(
        model.output_states(states), model.output_matrix, targets, 0.1
    ).backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    hidden = model.output_transform(states)
    logits = hidden @ model.embedding.weight.T + model.output_bias
    F.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum").backward()
    assert found.keys() == {name for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() >= {"output_bias", "embedding.weight", "output_transform.linear.weight"}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad, atol=1e-5, rtol=1e-4)


def test_muon_trains_the_output_transform_and_no_embedding():
    hidden = hidden_matrices(
        small_model(architecture="encoder-only", **PARTS, positional_encoding="learned")
    )
    assert "output_transform.linear.weight" in hidden
    assert not {
        name
        for name in hidden
        if name.startswith(("embedding", "token_types", "positions", "output_bias"))
    }
