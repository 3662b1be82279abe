"""Settings that would leave weights without a gradient, so that they are refused or have no effect.
The models are built without the check of their settings.
"""

import pytest
import torch

from ablate.config import RowConfig
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.model import build
from ablate.parts import feed_forward
from tests.model.small import SIZES, V, sentences, shape

ONE_STACK = {"architecture": "decoder-only", "norm_position": "pre"}


def gradients(**fields):
    """The gradients of a model after two steps of Adam, and its balance loss."""
    checked = shape(**ONE_STACK, n_experts=fields.pop("n_experts", None))
    model = build(checked.model_copy(update=fields), V, 1).train()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        adam.zero_grad()
        tokens = sentences(6, 6)
        states = model.output_states(model.read(tokens)[:, :-1].flatten(0, 1))
        targets = tokens[:, 1:].flatten()
        balance = model.pop_balance_loss()
        (smoothed_cross_entropy(states, model.output_matrix, targets, 0.0) + balance).backward()
        adam.step()
    return {name: parameter.grad for name, parameter in model.named_parameters()}, balance


@pytest.mark.parametrize(
    ("fields", "trained"),
    [
        ({"residual_scale": "rezero"}, False),
        ({"residual": False}, False),
        ({}, True),
        ({"residual_scale": "layerscale"}, True),
    ],
)
def test_layers_whose_outputs_and_gradients_stay_zero_are_refused(fields, trained):
    fields = {**fields, "output_initialization": "zero"}
    found, _ = gradients(**fields)
    matrices = [
        gradient
        for name, gradient in found.items()
        if gradient.dim() == 2 and name.startswith("decoder.")
    ]
    assert any(bool(gradient.any()) for gradient in matrices) == trained
    settings = {**SIZES, **ONE_STACK, **fields}
    if trained:
        RowConfig(**settings)
        return
    with pytest.raises(ValueError, match=r"output_initialization=zero with resid.*never trained"):
        RowConfig(**settings)


def test_the_balance_of_experts_that_all_tokens_use_is_a_constant():
    with_balance, balance = gradients(n_experts=3, experts_per_token=3, expert_balance=5.0)
    without_balance, _ = gradients(n_experts=3, experts_per_token=3, expert_balance=0.0)
    # 5 in each of the two layers: every expert has a third of the choices.
    assert balance.item() == pytest.approx(10.0)
    name = "decoder.0.feed_forward.router.weight"
    torch.testing.assert_close(with_balance[name], without_balance[name])
    assert bool(with_balance[name].any())


@pytest.mark.parametrize(
    ("weights", "trained"), [("softmax", True), ("softmax_of_chosen", False), ("sigmoid", False)]
)
def test_the_router_of_a_single_expert_is_trained_only_by_the_softmax_over_all(weights, trained):
    fields = {"experts_per_token": 1, "expert_weights": weights, "expert_balance": 0.0}
    found, _ = gradients(n_experts=3, **fields)
    size = found["decoder.0.feed_forward.router.weight"].abs().max().item()
    assert (size > 1e-6) == trained
    remarks = list(feed_forward.remarks(shape(n_experts=3, **fields)))
    assert bool(remarks) == (not trained)
    assert all(f"expert_weights={weights} " in remark for remark in remarks)
    assert not [*feed_forward.remarks(shape(n_experts=3, **{**fields, "experts_per_token": 2}))]
    assert not [*feed_forward.remarks(shape())]
