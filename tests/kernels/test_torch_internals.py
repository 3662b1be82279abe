"""Operators of torch without a public name: each still exists and does what is said of it."""

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels.torch_internals import linear_pointwise, relu_backward_, reshape_unaliased
from tests.kernels.processors import needs_bf16
from tests.model.small import normal


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bf16)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_linear_layer_with_an_activation_is_both_one_after_the_other(dtype, biased):
    x, weight = normal(64, 13).to(dtype), normal(7, 13, seed=2).to(dtype)
    bias = normal(7, seed=3).to(dtype) if biased else None
    expected = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    close = {"atol": 0.05, "rtol": 0.02} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(linear_pointwise(x, weight, bias, "none").float(), expected, **close)
    torch.testing.assert_close(
        linear_pointwise(x, weight, bias, "relu").float(), expected.relu(), **close
    )


def test_the_gradient_of_relu_overwrites_the_upstream_one_for_every_number_of_bf16():
    y = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    y = y[~y.isnan()]
    grad = normal(len(y)).bfloat16()
    expected = torch.where(y.float() > 0, grad, 0)
    assert relu_backward_(grad, y) is grad
    assert torch.equal(grad, expected)


class Doubled(torch.autograd.Function):
    """Twice x, returned in another shape by the function `reshape`."""

    @staticmethod
    def forward(ctx, x, reshape):
        ctx.shape = x.shape
        return reshape(2 * x, torch.Size([2, 3]))

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad.reshape(ctx.shape), None


def test_a_tensor_reshaped_without_aliasing_may_be_modified_in_place():
    x = normal(6, 5).requires_grad_()
    out = Doubled.apply(x, reshape_unaliased)
    assert out.shape == (2, 3, 5)
    out.relu_().sum().backward()
    assert torch.equal(x.grad, 2.0 * (x > 0))
