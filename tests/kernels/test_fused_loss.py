"""The loss and its gradient from logits, beside torch's definition in double precision."""

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels.cross_entropy import (
    loss_and_gradient,
    padded_matrix,
    smoothed_cross_entropy_with_gradients,
)

D = 5


def operands(n, V, seed=1):
    drawn = torch.Generator().manual_seed(seed)
    states, embedding = (
        torch.randn(size, D, generator=drawn, dtype=torch.float64) for size in (n, V)
    )
    return (
        states.requires_grad_(),
        embedding.requires_grad_(),
        torch.randint(V, (n,), generator=drawn),
    )


def by_torch(states, embedding, targets, smoothing):
    loss = F.cross_entropy(
        states @ embedding.T, targets, label_smoothing=smoothing, reduction="sum"
    )
    return loss.detach(), *torch.autograd.grad(loss, (states, embedding))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("V", [2, 8, 13, 331])
@pytest.mark.parametrize("rows", [3, 7, 100])
def test_loss_and_gradients_are_torchs_in_double(rows, V, smoothing):
    given = operands(7, V)
    with torch.no_grad():
        found = smoothed_cross_entropy_with_gradients(*given, smoothing, rows, torch.float64)
    for mine, other in zip(found, by_torch(*given, smoothing), strict=True):
        assert mine.dtype == torch.float64
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("V", [13, 16])
def test_in_bf16_the_gradients_keep_their_types_and_are_near(V):
    states, embedding, targets = operands(40, V)
    expected = by_torch(states, embedding, targets, 0.1)
    with torch.no_grad():
        given = states.float(), embedding.float(), targets
        found = smoothed_cross_entropy_with_gradients(*given, 0.1, 16, torch.bfloat16)
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        assert (mine.double() - other).norm() < 0.02 * other.norm()


def test_padding_columns_change_nothing_and_get_no_gradient():
    logits = torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    targets = torch.tensor([0, 4, 2, 1])
    loss, gradient = loss_and_gradient(logits, targets, 5, 0.1)
    expected, first = loss_and_gradient(logits[:, :5], targets, 5, 0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient[:, :5], first)
    assert not gradient[:, 5:].any()
    assert gradient.sum(1).abs().max() < 1e-12  # a distribution minus another one


@pytest.mark.parametrize(("rows", "padded"), [(1, 8), (8, 8), (37_000, 37_000), (37_001, 37_008)])
def test_rows_of_zeros_fill_a_matrix_up_to_a_multiple_of_eight(rows, padded):
    matrix = torch.ones(rows, 2)
    found = padded_matrix(matrix, torch.bfloat16)
    assert found.shape == (padded, 2)
    assert found.dtype == torch.bfloat16
    assert found.sum() == 2 * rows or rows > 256  # bf16 sums are exact up to 256
    assert not found[rows:].any()


def test_huge_logits_neither_overflow_nor_vanish():
    logits = torch.tensor([[1000.0, 0.0, -1000.0]], dtype=torch.float64)
    loss, gradient = loss_and_gradient(logits, torch.tensor([2]), 3, 0.0)
    assert float(loss) == 2000.0
    assert gradient.tolist() == [[1.0, 0.0, -1.0]]
