"""Norms against their formulas, and their position around a sub-layer against values computed by
hand.
"""

import math

import pytest
import torch

from ablate.kernels.rms_norm import reference, rms_norm
from ablate.model.norms import EPS, LayerNorm, RMSNorm
from ablate.model.residual import PostNorm, PreNorm
from tests.model.small import normal, parts

D_MODEL = 26
X = torch.tensor([1.0, 3.0, 5.0, 7.0])
GAIN = torch.tensor([1.0, 2.0, 3.0, 5.0])


def test_rms_norm_divides_by_the_root_mean_square_and_multiplies_by_its_gain():
    norm = RMSNorm(4, eps=0.0).requires_grad_(False)
    norm.weight.copy_(GAIN)
    # mean square (1 + 9 + 25 + 49) / 4 = 21; the mean stays in
    expected = [1 / math.sqrt(21), 6 / math.sqrt(21), 15 / math.sqrt(21), 35 / math.sqrt(21)]
    torch.testing.assert_close(norm(X), torch.tensor(expected))
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


@pytest.mark.parametrize("with_gain", [True, False])
@pytest.mark.parametrize("size", [(6,), (3, 6), (2, 4, 3, 6)])
def test_rms_norm_has_the_value_of_torch_and_the_gradient_of_its_formula(size, with_gain):
    x = normal(*size)
    gain = normal(6, seed=2) if with_gain else None
    assert torch.equal(rms_norm(x, gain, EPS), reference(x, gain, EPS))
    inputs = [
        x.double().requires_grad_(),
        None if gain is None else gain.double().requires_grad_(),
        0.3,
    ]
    assert torch.autograd.gradcheck(rms_norm, inputs)
    across = x.double().transpose(0, -1).requires_grad_()  # as heads, whose entries lie apart
    assert torch.autograd.gradcheck(lambda heads: rms_norm(heads, None, EPS), [across])


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_epsilon_keeps_tiny_vectors_small(norm):
    """eps is inside the root: at a mean square of eps, the value is the input over sqrt(2 eps)."""
    x = math.sqrt(EPS) * torch.tensor([1.0, -1.0, 1.0, -1.0])
    torch.testing.assert_close(norm(4)(x), x / math.sqrt(2 * EPS))


@pytest.mark.parametrize("norm", [LayerNorm, RMSNorm])
def test_bf16_inputs_are_normalized_in_fp32(norm):
    x = 100 * normal(3, 5, D_MODEL).bfloat16()
    torch.testing.assert_close(
        norm(D_MODEL)(x).float(), norm(D_MODEL)(x.float()), atol=0.01, rtol=0.01
    )


def sublayer(x):
    return 3 * x.flip(-1)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("position", ["post", "pre", "none"])
def test_the_fields_select_norm_position_and_residual(norm, residual, position):
    module, x = (
        parts(norm=norm, residual=residual, norm_position=position).residual(),
        normal(3, 5, D_MODEL),
    )

    def f(y):
        of = y - y.mean(-1, keepdim=True) if norm == "layernorm" else y
        return of / (of.square().mean(-1, keepdim=True) + EPS).sqrt()

    expected = {
        "post": f(residual * x + sublayer(x)),
        "pre": residual * x + sublayer(f(x)),
        "none": residual * x + sublayer(x),
    }[position]
    torch.testing.assert_close(
        module.after(x, sublayer(module.before(x))), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("kind", [PostNorm, PreNorm])
def test_dropout_acts_on_the_sub_layer_before_the_residual_sum(kind):
    """Section 5.4: the residual is added whole, and only the output of the sub-layer loses
    entries.
    """
    x, output = normal(3, 5, 7), normal(3, 5, 7, seed=2)
    around = kind(torch.nn.Identity(), True, 0.5, torch.Generator().manual_seed(1)).train()
    assert torch.equal(around.after(x, torch.zeros(3, 5, 7)), x)
    added = around.after(x, output) - x
    dropped = added.abs() < 1e-6
    assert 0.3 < dropped.float().mean() < 0.7
    torch.testing.assert_close(added[~dropped], 2 * output[~dropped])
