"""The ways to make the products of a linear layer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.kernels import cpu_matmul, torch_internals
from ablate.kernels.cpu_matmul import (
    EmulatedBF16,
    FusedBF16,
    Matmul,
    PaddedBF16,
    RoundedWithin,
    padded_rows,
)
from tests.kernels.processors import needs_bf16
from tests.model.small import normal

D_IN, D_OUT = 13, 7


@pytest.mark.parametrize("rows", [37, 64, 330])
@pytest.mark.parametrize("way", [Matmul()], ids=["torch"])
def test_every_way_in_fp32_gives_the_three_products(way, rows):
    x, weight, bias, grad = (
        normal(rows, D_IN),
        normal(D_OUT, D_IN, seed=2),
        normal(D_OUT, seed=3),
        normal(rows, D_OUT, seed=4),
    )
    torch.testing.assert_close(way.linear(x, weight, bias), x @ weight.T + bias)
    torch.testing.assert_close(way.linear(x, weight), x @ weight.T)
    torch.testing.assert_close(way.grad_input(grad, weight), grad @ weight)
    torch.testing.assert_close(way.grad_weight(grad, x), grad.T @ x)
    total = torch.ones_like(weight)
    assert way.grad_weight(grad, x, out=total) is total
    torch.testing.assert_close(total, 1 + grad.T @ x)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(PaddedBF16(), id="in bf16"),
        pytest.param(FusedBF16(), id="at once", marks=needs_bf16),
        pytest.param(RoundedWithin(), id="within"),
        pytest.param(EmulatedBF16(), id="before"),
    ],
)
@pytest.mark.parametrize("count", [1, 37, 64, 330])
def test_every_way_in_bf16_gives_the_three_products_of_rows_filled_up(way, count):
    x, weight, grad = normal(count, D_IN), normal(D_OUT, D_IN, seed=2), normal(count, D_OUT, seed=4)
    rows, G, W = way.pack(x), way.pack(grad), way.cast(weight)
    close = {"atol": 0.02 * count**0.5, "rtol": 0.02}
    torch.testing.assert_close(
        way.linear(rows, W)[:count].float(), x @ weight.T, atol=0.1, rtol=0.02
    )
    bias = normal(D_OUT, seed=5)
    positive = way.linear_relu(rows, W, way.cast(bias))[:count].float()
    torch.testing.assert_close(positive, (x @ weight.T + bias).clamp(min=0), atol=0.1, rtol=0.02)
    torch.testing.assert_close(
        way.grad_input(G, W)[:count].float(), grad @ weight, atol=0.1, rtol=0.02
    )
    torch.testing.assert_close(way.grad_weight(G, rows).float(), grad.T @ x, **close)
    total = torch.ones_like(weight)
    assert way.grad_weight(G, rows, out=total) is total
    torch.testing.assert_close(total, 1 + grad.T @ x, **close)


@pytest.mark.parametrize("way", [Matmul(), PaddedBF16(), RoundedWithin(), EmulatedBF16()])
@pytest.mark.parametrize("count", [37, 64])
def test_packing_several_tensors_equals_packing_their_concatenation(way, count):
    one, other = normal(count, D_IN), normal(count, D_OUT, seed=2)
    together = way.pack(one, other)
    assert torch.equal(together, way.pack(torch.cat([one, other], dim=1)))
    assert not together[count:].any()
    with pytest.raises(RuntimeError):
        way.pack(one, other[1:])


@needs_bf16
@pytest.mark.parametrize("bias", [None, normal(128, seed=3).bfloat16()], ids=["no bias", "bias"])
def test_bias_and_relu_inside_a_bf16_product_equal_separate_ones_bit_for_bit(bias):
    x, weight = normal(640, 128).bfloat16(), normal(128, 128, seed=2).bfloat16()
    assert torch.equal(FusedBF16().linear(x, weight, bias), PaddedBF16().linear(x, weight, bias))
    if bias is not None:
        ways = [way.linear_relu(x, weight, bias) for way in (FusedBF16(), PaddedBF16())]
        assert torch.equal(*ways)


@pytest.mark.parametrize(
    ("machine", "way"), [("x86_64", FusedBF16), ("AMD64", FusedBF16), ("aarch64", PaddedBF16)]
)
def test_on_arm_nothing_is_part_of_a_product(monkeypatch, machine, way):
    monkeypatch.setattr(cpu_matmul, "_has_bf16", lambda: True)
    monkeypatch.setattr(torch_internals.platform, "machine", lambda: machine)
    assert type(cpu_matmul.matmul_for(torch.device("cpu"), bf16=True)) is way


@pytest.mark.parametrize(
    ("way", "most"), [(PaddedBF16(), 60), (RoundedWithin(), 9)], ids=["in bf16", "within"]
)
def test_onednn_sees_few_numbers_of_rows_in_bf16(way, most):
    """Of each that is new to it, it compiles code, which takes longer than the product."""
    sizes = {len(way.pack(torch.ones(rows, 1))) for rows in range(1, 9000)}
    assert len(sizes) <= most
    filled = way.pack(torch.ones(4100, D_IN))
    assert filled.sum() == 4100 * D_IN


@given(st.integers(1, 10**6))
def test_rows_are_filled_up_by_an_eighth_at_most_and_only_once(rows):
    size = padded_rows(rows)
    assert rows <= size <= max(64, rows * 9 / 8)
    assert padded_rows(size) == size


def test_a_processor_without_bf16_rounds_operands_and_makes_the_product_in_fp32(monkeypatch):
    monkeypatch.setattr(cpu_matmul, "_has_bf16", lambda: False)
    for wide in (False, True):
        way = cpu_matmul.matmul_for(torch.device("cpu"), bf16=True, wide=wide)
        x, weight = normal(5, D_IN), normal(D_OUT, D_IN, seed=2)
        out = way.linear(way.pack(x), way.cast(weight))
        torch.testing.assert_close(out, x.bfloat16().float() @ weight.bfloat16().float().T)
        assert not torch.allclose(out, x @ weight.T, rtol=1e-5, atol=1e-6)


def test_rounding_within_is_on_for_its_products_and_for_no_other(monkeypatch):
    matmul, seen = torch.backends.mkldnn.matmul, []
    before = matmul.fp32_precision
    monkeypatch.setattr(
        Matmul, "linear", lambda self, x, weight, bias=None: seen.append(matmul.fp32_precision)
    )
    RoundedWithin().linear(normal(64, 64), normal(64, 64, seed=2))
    assert seen == ["bf16"] != [before]
    assert matmul.fp32_precision == before


def test_onto_a_total_of_more_precision_a_product_is_added_in_that_precision():
    """As on a GPU, where operands are bf16 and the loss adds up many products in fp32."""
    grad, x, total = (
        normal(5, D_OUT).bfloat16(),
        normal(5, D_IN).bfloat16(),
        torch.full((D_OUT, D_IN), 1000.0),
    )
    Matmul().grad_weight(grad, x, out=total)
    torch.testing.assert_close(total, 1000 + (grad.T @ x).float())
