"""Products of fp32 numbers whose operands are rounded to bf16 on the way in, and their gradients."""

import pytest
import torch
import torch.nn.functional as F

from ablate.model.products import OneDNN, Products, Rounded, linear
from tests.model.small import normal

D_IN, D_OUT = 13, 7
SHAPES = [(D_IN,), (5, D_IN), (2, 3, D_IN)]


def operands(size, biased):
    x, weight, bias = normal(*size), normal(D_OUT, D_IN, seed=2), normal(D_OUT, seed=3)
    return [value.requires_grad_() for value in ((x, weight, bias) if biased else (x, weight))]


def product(x, weight, bias=None):
    return linear(x, weight, bias)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("size", SHAPES, ids=str)
def test_outside_of_autocast_a_product_is_torchs(size, biased):
    given = operands(size, biased)
    assert torch.equal(product(*given), F.linear(*given))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("size", SHAPES, ids=str)
def test_in_autocast_values_and_gradients_are_fp32_and_near_those_of_fp32(size, biased):
    """bf16 has 8 bits: each operand is off by 2^-9 of itself at most, and a sum of 13 products by little more."""
    given = operands(size, biased)
    upstream = normal(*size[:-1], D_OUT, seed=5)
    with torch.autocast("cpu", torch.bfloat16):
        out = product(*given)
    expected = F.linear(*given)
    torch.testing.assert_close(out, expected, atol=0.05, rtol=0.02)
    found, exact = torch.autograd.grad(out, given, upstream), torch.autograd.grad(expected, given, upstream)
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.02)  # types and shapes too


def test_an_input_that_is_bf16_already_is_taken_as_it_is():
    """As a recurrence gives it, which torch's autocast runs in bf16."""
    x, weight = normal(5, D_IN).bfloat16().requires_grad_(), normal(D_OUT, D_IN, seed=2).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = product(x, weight)
    out.sum().backward()
    torch.testing.assert_close(out, x.float() @ weight.T, atol=0.05, rtol=0.02)
    assert (x.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)


def test_what_bf16_holds_exactly_is_multiplied_and_summed_exactly():
    x, weight = torch.tensor([[1.0, 2.0, 256.0]]), torch.tensor([[1.0, 1.0, 1.0], [0.5, -3.0, 0.0]])
    with torch.autocast("cpu", torch.bfloat16):
        out = product(x, weight, torch.tensor([1000.25, 0.0]))
    assert out.tolist() == [[1259.25, -5.5]]  # 1259.25 itself is not a bf16 number


def test_rounding_leaves_no_trace_on_products_after_it():
    x, weight = normal(64, 64), normal(64, 64, seed=2)
    before = x @ weight.T
    with torch.autocast("cpu", torch.bfloat16):
        product(x, weight)
    assert torch.equal(x @ weight.T, before)


def test_where_nothing_is_asked_of_the_input_its_gradient_is_not_made():
    x, weight = normal(5, D_IN), normal(D_OUT, D_IN, seed=2).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        product(x, weight).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(0).expand(D_OUT, -1), atol=0.05, rtol=0.02)


@pytest.mark.parametrize("rows", [37, 64, 330])
@pytest.mark.parametrize("way", [OneDNN(), Products()], ids=["onednn", "torch"])
def test_every_way_in_fp32_gives_the_three_products(way, rows):
    x, weight, bias, grad = (
        normal(rows, D_IN),
        normal(D_OUT, D_IN, seed=2),
        normal(D_OUT, seed=3),
        normal(rows, D_OUT, seed=4),
    )
    torch.testing.assert_close(way.outputs(x, weight, bias), x @ weight.T + bias)
    torch.testing.assert_close(way.outputs(x, weight), x @ weight.T)
    torch.testing.assert_close(way.to_inputs(grad, weight), grad @ weight)
    torch.testing.assert_close(way.to_weight(grad, x), grad.T @ x)
    total = torch.ones_like(weight)
    assert way.to_weight(grad, x, onto=total) is total
    torch.testing.assert_close(total, 1 + grad.T @ x)


@pytest.mark.parametrize("way", [OneDNN, Rounded])
def test_onednn_sees_few_numbers_of_rows(way):
    """Of each that is new to it, it compiles code, which takes longer than the product."""
    seen = set()

    class Watched(way):
        def product(self, a, b, out, add=False):
            seen.add((tuple(a.shape), tuple(b.shape), add))
            super().product(a, b, out, add)

    by, weight = Watched(), normal(D_OUT, D_IN, seed=2)
    for rows in (1, 63, *range(64, 9000, 419)):
        x, grad = torch.ones(rows, D_IN), torch.ones(rows, D_OUT)
        assert by.outputs(x, weight).shape == (rows, D_OUT)
        assert by.to_inputs(grad, weight).shape == (rows, D_IN)
        assert by.to_weight(grad, x).tolist() == [[rows] * D_IN] * D_OUT  # whole numbers: each row counted once
    assert len(seen) <= 4 * len(by.SIZES)


def test_onto_a_total_of_more_precision_a_product_is_added_in_that_precision():
    """As on a GPU, where operands are bf16 and the loss adds up many products in fp32."""
    grad, x, total = normal(5, D_OUT).bfloat16(), normal(5, D_IN).bfloat16(), torch.full((D_OUT, D_IN), 1000.0)
    Products().to_weight(grad, x, onto=total)
    torch.testing.assert_close(total, 1000 + (grad.T @ x).float())


def test_the_output_is_a_tensor_of_its_own_that_an_activation_may_work_in_place_of():
    x, weight = normal(2, 3, D_IN).requires_grad_(), normal(D_OUT, D_IN, seed=2).requires_grad_()
    found = torch.autograd.grad(F.relu(linear(x, weight, None), inplace=True).square().sum(), (x, weight))
    expected = torch.autograd.grad(F.relu(F.linear(x, weight)).square().sum(), (x, weight))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
