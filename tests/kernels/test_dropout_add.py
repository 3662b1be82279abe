"""The fused sum is its plain expression."""

import torch

from ablate.kernels.dropout_add import dropout_add, reference
from tests.model.small import normal


def test_values_and_gradients_are_those_of_the_reference():
    residual, x = normal(3, 5, 7).requires_grad_(), normal(3, 5, 7, seed=2).requires_grad_()
    mask, upstream = (normal(3, 5, 7, seed=3) > 0).float(), normal(3, 5, 7, seed=4)
    found, expected = (kernel(residual, x, mask, 1.25) for kernel in (dropout_add, reference))
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, [residual, x], upstream),
        torch.autograd.grad(expected, [residual, x], upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
