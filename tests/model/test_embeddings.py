"""Tied and untied embeddings: which matrices exist, and which outputs depend on each."""

import pytest
import torch

from tests.model.small import normal, small_model

D_MODEL = 26
SOURCE, TARGET = torch.tensor([[5, 7]]), torch.tensor([[11, 13]])

# (architecture, tied_embeddings): of each matrix, whether the encoded source, the target's states
# (given the encoded source) and the logits of given states depend on it. A decoder-only model has
# no encoder, and one row of states.
DEPENDENCE = {
    ("encoder-decoder", "all"): {"embedding": {"source", "target", "logits"}},
    ("encoder-decoder", "decoder"): {"embedding": {"target", "logits"}, "source_embedding": {"source"}},
    ("encoder-decoder", "none"): {"embedding": {"target"}, "source_embedding": {"source"}, "output": {"logits"}},
    ("decoder-only", "all"): {"embedding": {"source", "target", "logits"}},
    ("decoder-only", "none"): {"embedding": {"source", "target"}, "output": {"logits"}},
}  # fmt: skip
every_tie = pytest.mark.parametrize(("architecture", "tied"), DEPENDENCE)


def tied_model(architecture, tied):
    return small_model(architecture=architecture, tied_embeddings=tied, positional_encoding="none")


@every_tie
def test_each_matrix_affects_only_what_it_embeds_or_predicts(architecture, tied):
    model, states = tied_model(architecture, tied), normal(5, D_MODEL)
    matrices = {
        name: model.get_parameter(f"{name}.weight") for name in DEPENDENCE[architecture, tied]
    }
    found = {name: set() for name in matrices}

    def note(use, tokens, value):
        gradients = torch.autograd.grad(
            value.square().sum(), list(matrices.values()), allow_unused=True
        )
        for name, gradient in zip(matrices, gradients, strict=True):
            if gradient is not None and bool(gradient[tokens].any()):
                found[name].add(use)

    note("source", SOURCE[0], model(SOURCE, TARGET))
    note("target", TARGET[0], model(SOURCE, TARGET))
    note("logits", slice(None), model.logits(states))
    assert found == DEPENDENCE[architecture, tied]


@every_tie
def test_a_logit_is_the_product_of_the_state_and_the_tokens_row(architecture, tied):
    model, states = tied_model(architecture, tied), normal(2, 5, D_MODEL)
    output = model.output if tied == "none" else model.embedding
    assert model.output_matrix is output.weight
    torch.testing.assert_close(model.logits(states), states @ output.weight.T)


def test_the_first_layer_receives_scaled_embeddings_plus_positions():
    model = small_model(d_model=16, positional_encoding="learned", tied_embeddings="none")
    seen = []
    model.embedding_dropout.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    model(torch.tensor([[5, 3]]), torch.tensor([[2, 7, 11]]))
    of_source = 4.0 * model.source_embedding.weight[[5, 3]] + model.source_positions.weight[:2]
    of_target = 4.0 * model.embedding.weight[[2, 7, 11]] + model.target_positions.weight[:3]
    torch.testing.assert_close([x[0] for x in seen], [of_source, of_target])
