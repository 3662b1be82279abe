"""Linear layers with products in fp32 and in bf16, and their gradients."""

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels import cpu_matmul
from ablate.kernels.linear import linear, linears, on_packed_rows, pack_rows, unpack_rows
from tests.kernels.processors import needs_bf16
from tests.model.small import normal

D_IN, D_OUT = 13, 7


@pytest.fixture(
    params=[pytest.param(True, marks=needs_bf16, id="bf16"), pytest.param(False, id="no bf16")],
    autouse=True,
)
def processor(request, monkeypatch):
    """One that makes products in bf16, and one that does not."""
    monkeypatch.setattr(cpu_matmul, "_has_bf16", lambda: request.param)
    return request.param


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
    """bf16 has 8 bits: each operand is off by 2^-9 of itself at most, and a sum of 13 products by
    little more.
    """
    given = operands(size, biased)
    upstream = normal(*size[:-1], D_OUT, seed=5)
    with torch.autocast("cpu", torch.bfloat16):
        out = product(*given)
    expected = F.linear(*given)
    torch.testing.assert_close(out, expected, atol=0.05, rtol=0.02)
    found, exact = (
        torch.autograd.grad(out, given, upstream),
        torch.autograd.grad(expected, given, upstream),
    )
    for one, other in zip(found, exact, strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.02)  # types and shapes too


def test_the_output_has_the_dtype_of_the_input():
    x, weight = (
        normal(5, D_IN).bfloat16().requires_grad_(),
        normal(D_OUT, D_IN, seed=2).requires_grad_(),
    )
    with torch.autocast("cpu", torch.bfloat16):
        out = product(x, weight)
        assert product(x.float(), weight).dtype == torch.float32
    out.float().sum().backward()
    assert (out.dtype, x.grad.dtype, weight.grad.dtype) == (
        torch.bfloat16,
        torch.bfloat16,
        torch.float32,
    )
    torch.testing.assert_close(out.float(), x.float() @ weight.T, atol=0.05, rtol=0.02)


def test_products_of_numbers_exact_in_bf16_are_exact():
    x, weight = torch.tensor([[1.0, 2.0, 256.0]]), torch.tensor([[1.0, 1.0, 1.0], [0.5, -3.0, 0.0]])
    with torch.autocast("cpu", torch.bfloat16):
        out = product(x, weight, torch.tensor([1.0, 0.0]))
    assert out.tolist() == [[260.0, -5.5]]  # 257 and 259, the sums on the way, are no bf16 numbers


@pytest.mark.parametrize("sentences", [1, 3, 40])
def test_layers_on_rows_that_are_rounded_once_are_those_that_round_for_themselves(sentences):
    """Two that follow one another, and one beside them: values to the rounding between them,
    gradients too.
    """
    x, up, beside, down, b_up, b_down = (
        value.requires_grad_()
        for value in (
            normal(sentences, 5, D_IN), normal(D_OUT, D_IN, seed=2), normal(D_OUT, D_IN, seed=3),
            normal(D_IN, D_OUT, seed=4), normal(D_OUT, seed=6), normal(D_IN, seed=7),
        )
    )  # fmt: skip
    given, upstream = [x, up, beside, down, b_up, b_down], normal(sentences, 5, D_IN, seed=5)
    with torch.autocast("cpu", torch.bfloat16):
        rows = pack_rows(x)
        assert rows.dtype == torch.bfloat16
        assert rows.dim() == 2
        out = unpack_rows(
            linear(linear(rows, up, b_up).relu() * linear(rows, beside, None), down, b_down), like=x
        )
    assert (out.shape, out.dtype) == (x.shape, x.dtype)
    expected = F.linear(F.linear(x, up, b_up).relu() * F.linear(x, beside), down, b_down)
    assert (out - expected).norm() < 0.02 * expected.norm()
    found, exact = (
        torch.autograd.grad(out, given, upstream),
        torch.autograd.grad(expected, given, upstream),
    )
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.05 * other.norm()  # a ReLU at 0 may fall to the other side


def test_outside_of_autocast_a_network_meets_the_tensor_itself():
    x, met = normal(2, 3, D_IN), []
    assert on_packed_rows(lambda given: met.append(given) or given, x) is x
    assert met[0] is x


def test_where_nothing_is_asked_of_the_input_its_gradient_is_not_made(monkeypatch):
    x, weight = normal(5, D_IN), normal(D_OUT, D_IN, seed=2).requires_grad_()
    for way in (cpu_matmul.Matmul, cpu_matmul.EmulatedBF16):
        monkeypatch.setattr(way, "grad_input", None)

    def learn():
        with torch.autocast("cpu", torch.bfloat16):
            product(x, weight).sum().backward()

    learn()
    torch.testing.assert_close(weight.grad, x.sum(0).expand(D_OUT, -1), atol=0.05, rtol=0.02)
    x.requires_grad_()
    with pytest.raises(TypeError):
        learn()


@pytest.mark.parametrize("low", [False, True])
def test_the_output_may_be_modified_in_place_by_an_activation(low):
    x, weight = normal(2, 3, D_IN).requires_grad_(), normal(D_OUT, D_IN, seed=2).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = F.relu(on_packed_rows(lambda rows: linear(rows, weight, None), x), inplace=True)
    found = torch.autograd.grad(out.square().sum(), (x, weight))
    expected = torch.autograd.grad(F.relu(F.linear(x, weight)).square().sum(), (x, weight))
    close = {"atol": 0.3, "rtol": 0.05} if low else {}
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_several_layers_of_one_input_are_each_of_them_alone(biased, low):
    """Values and gradients, for layers of different sizes."""
    x = normal(3, 4, D_IN)
    widths = (3, 7, 5)
    weights = [normal(d, D_IN, seed=d) for d in widths]
    biases = [normal(d, seed=d + 1) if biased else None for d in widths]
    given = [value.requires_grad_() for value in (x, *weights, *biases) if value is not None]
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        found = linears(x, list(zip(weights, biases, strict=True)))
    expected = [F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    close = {"atol": 0.1, "rtol": 0.02} if low else {"atol": 1e-5, "rtol": 1e-5}
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **close)  # types and shapes too
    upstream = [normal(3, 4, d, seed=d + 2) for d in widths]
    grads = (torch.autograd.grad(ys, given, upstream) for ys in (found, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, **close)
