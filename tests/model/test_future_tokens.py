"""Heads of future tokens: loss and gradients against a loop over tokens, in which each head stands
in the place of the last layer; evaluation and decoding without them.
"""

from itertools import product

import pytest
import torch

from ablate.config.cost import flops_per_step, hidden_weights, parameters
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.tasks import LanguageModel
from ablate.training.optimizer import hidden_matrices
from tests.model.small import EOS, SIZES, V, batch_of, small_model

CAUSAL = {"architecture": "decoder-only", "norm_position": "pre", "label_smoothing": 0.0}
PARTS = [
    {},
    {"tied_embeddings": "none", "output_bias": True, "positional_encoding": "relative"},
    {"n_layers": 1, "positional_encoding": "rope", "norm": "rmsnorm", "activation": "swiglu"},
    {"loops": 2, "embedding_skip": True, "norm_position": "post", "logit_cap": 3.0},
    {"mixer": ("mamba2", "attention"), "d_ff": (7, 9), "positional_encoding": "none"},
    {"mixer": "gated_deltanet", "feed_forward": "none", "positional_encoding": "none"},
    {"value_residual": True, "value_embeddings": "gated", "layer_skips": "unet"},
    {"hyper_connections": "dynamic", "expansion_rate": 2, "z_loss": 0.01},
    {"document_masks": True, "smear": True, "sublayers": "parallel"},
    {"n_experts": 3, "expert_balance": 0.0},
]
TOKENS = [[2, 9, 8, EOS, 9, 12, 4], [5, 6, 7, 8]]  # of a context, and the one before it


def with_head(model, plain, number):
    """The parameters of a model without heads and loops, whose last layer is a head; 0 is its own."""
    given = dict(model.named_parameters())
    chosen = {}
    for name, _ in plain.named_parameters():
        source = name
        if name.startswith("decoder."):
            _, layer, rest = name.split(".", 2)
            source = f"decoder.{int(layer) % len(model.decoder)}.{rest}"
            if number and int(layer) == len(plain.decoder) - 1:
                source = f"future_heads.{number - 1}.{rest}"
        chosen[name] = given[source]
    return chosen


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.logits(self.model.read(tokens))


def loss_of_a_loop(model, plain, rows, weight):
    """The loss of each head and each token, by the probabilities of a model without heads."""
    total = 0.0
    for tokens, number in product(rows, range(len(model.future_heads) + 1)):
        own = {f"model.{name}": p for name, p in with_head(model, plain, number).items()}
        logits = torch.func.functional_call(Logits(plain), own, torch.tensor([tokens[:-1]]))[0]
        for i in range(len(tokens) - 1 - number):
            largest = logits[i].logsumexp(0)
            loss = largest - logits[i, tokens[i + 1 + number]]
            loss = loss + model.config.z_loss * largest.square()
            total = total + (weight if number else 1.0) * loss
    return total


@pytest.mark.parametrize("fields", PARTS, ids=str)
def test_loss_and_gradients_are_those_of_a_loop_over_heads_and_tokens(fields):
    settings = {**CAUSAL, **fields}
    if fields.get("layer_skips") == "unet":
        settings["n_layers"] = 3
    model = small_model(**settings, future_tokens=2, future_loss=0.25).double()
    depth = settings.get("n_layers", SIZES["n_layers"]) * settings.get("loops", 1)
    plain = small_model(**{**settings, "n_layers": depth, "loops": 1}).double()
    weights = list(model.parameters())
    loss, count = LanguageModel().loss_terms(model, batch_of(TOKENS), 0.0)
    expected = loss_of_a_loop(model, plain, TOKENS, 0.25)  # exact in fp32
    assert count == sum(map(len, TOKENS)) - len(TOKENS)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)  # summed in fp32
    ours = torch.autograd.grad(loss, weights, materialize_grads=True, allow_unused=True)
    theirs = torch.autograd.grad(expected, weights, materialize_grads=True, allow_unused=True)
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-10)
    trained = [name for (name, _), g in zip(model.named_parameters(), ours, strict=True) if g.any()]
    for number in range(2):
        assert any(name.startswith(f"future_heads.{number}.") for name in trained)


def test_the_loss_is_the_sum_over_micro_batches():
    model = small_model(**CAUSAL, future_tokens=3).double()
    whole, _ = LanguageModel().loss_terms(model, batch_of(TOKENS), 0.1)
    parts = [LanguageModel().loss_terms(model, batch_of([row]), 0.1)[0] for row in TOKENS]
    assert whole.item() == pytest.approx(sum(parts).item(), rel=1e-6)
    # A context too short for any future token has the loss of the next one.
    short = batch_of([[2, 9]])
    terms = LanguageModel().training_terms(model, short)
    assert [len(term.targets) for term in terms] == [1, 0, 0, 0]
    assert torch.isfinite(LanguageModel().loss_terms(model, short, 0.0)[0])


def test_evaluation_and_decoding_use_the_next_token_alone():
    """The weights of the heads are drawn last, so both models begin alike."""
    model, plain = small_model(**CAUSAL, future_tokens=2), small_model(**CAUSAL)
    batch = batch_of(TOKENS)
    for head in model.future_heads.parameters():
        head.data.fill_(float("nan"))
    terms = [LanguageModel().output_terms(each, batch) for each in (model, plain)]
    assert all(torch.equal(a, b) for a, b in zip(*terms, strict=True))
    tokens = torch.tensor([[9, 5, 7]])
    steps = [each.step(tokens[:, 2:], each.start(tokens[:, :2], 1)) for each in (model, plain)]
    assert torch.equal(*steps)


@pytest.mark.parametrize("fields", PARTS, ids=str)
def test_the_plan_counts_the_parameters_of_heads(fields):
    heads = {**CAUSAL, "n_heads": 4, **fields, "future_tokens": 2, "n_layers": 4}
    config = resolve_row({**SIZES, **heads})
    model = build(config, V, 1)
    assert parameters(config, V) == sum(p.numel() for p in model.parameters())
    named = dict(model.named_parameters())
    matrices = sum(named[name].numel() for name in hidden_matrices(model))
    convolutions = sum(p.numel() for name, p in named.items() if "convolution" in name)
    tables = sum(named[name].numel() for name in named if "value_parts.0.table" in name)
    assert hidden_weights(config) in (matrices, matrices - convolutions, matrices - tables)


def test_two_heads_cost_what_two_layers_and_two_more_outputs_do():
    lengths = Lengths.of_length(30)

    def flops(**fields):
        return flops_per_step(resolve_row({**SIZES, **CAUSAL, **fields}), V, lengths)

    outputs = 3 * 2 * 2 * V * SIZES["d_model"] * resolve_row({}).batch_tokens
    assert flops(future_tokens=2) == pytest.approx(flops(n_layers=4) + outputs)


def test_a_task_with_terms_of_its_own_refuses_future_tokens():
    class Own(LanguageModel):
        def output_terms(self, model, batch):
            return super().output_terms(model, batch)

    config = resolve_row({**LanguageModel.defaults, "future_tokens": 1})
    data = Own().resolve_data({"corpus": "toy"})
    assert ("future_tokens",) in [fault.fields for fault in Own().check(data, config)]
    assert not list(LanguageModel().check(data, config))
