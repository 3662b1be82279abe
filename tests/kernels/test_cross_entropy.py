"""The loss and the gradient that it computes by itself are those of torch's definition."""

import pytest
import torch
import torch.nn.functional as F

from ablate.config.training import LOGIT_CHUNK_TOKENS
from ablate.kernels.cross_entropy import negative_log_likelihood, smoothed_cross_entropy

D_MODEL = 13
CHUNK = LOGIT_CHUNK_TOKENS["cpu"]


def case(n, vocab_size, seed=1):
    """States, an embedding and targets; the logits spread over several nats."""
    drawn = torch.Generator().manual_seed(seed)
    states = torch.randn(n, D_MODEL, generator=drawn).requires_grad_()
    embedding = torch.randn(vocab_size, D_MODEL, generator=drawn).requires_grad_()
    return states, embedding, torch.randint(1, vocab_size, (n,), generator=drawn)


def by_torch(states, embedding, targets, smoothing):
    """The sum in double precision, with its gradients."""
    states, embedding = (x.detach().double().requires_grad_() for x in (states, embedding))
    loss = F.cross_entropy(
        states @ embedding.T, targets, label_smoothing=smoothing, reduction="sum"
    )
    return loss.detach(), torch.autograd.grad(loss, (states, embedding))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("vocab_size", [2, 7, 331])
@pytest.mark.parametrize("n", [1, 37, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_value_and_gradients_are_torchs(n, vocab_size, smoothing):
    states, embedding, targets = case(n, vocab_size)
    loss = smoothed_cross_entropy(states, embedding, targets, smoothing)
    expected, gradients = by_torch(states, embedding, targets, smoothing)
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-6, abs=1e-6)
    for mine, other in zip(torch.autograd.grad(loss, (states, embedding)), gradients, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=1e-5, atol=2e-5)


def test_the_gradient_is_scaled_by_the_upstream_gradient():
    states, embedding, targets = case(5, 7)
    (smoothed_cross_entropy(states, embedding, targets, 0.1) / 17).backward()
    _, (d_states, d_embedding) = by_torch(states, embedding, targets, 0.1)
    torch.testing.assert_close(states.grad.double(), d_states / 17, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(embedding.grad.double(), d_embedding / 17, rtol=1e-5, atol=1e-6)


def test_huge_logits_neither_overflow_nor_vanish():
    states, embedding = torch.tensor([[1000.0]]), torch.tensor([[1.0], [0.0], [-1.0]])
    assert float(
        smoothed_cross_entropy(states, embedding, torch.tensor([0]), 0.0)
    ) == pytest.approx(0.0, abs=1e-4)
    assert float(
        smoothed_cross_entropy(states, embedding, torch.tensor([2]), 0.0)
    ) == pytest.approx(2000.0)
    assert float(
        smoothed_cross_entropy(states, embedding, torch.tensor([0]), 0.3)
    ) == pytest.approx(300.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bf16_is_near_fp32_and_gradients_keep_their_types(smoothing):
    states, embedding, targets = case(CHUNK + 7, 331)
    expected = smoothed_cross_entropy(states, embedding, targets, smoothing)
    gradients = torch.autograd.grad(expected, (states, embedding))
    low_states = states.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = smoothed_cross_entropy(low_states, embedding, targets, smoothing)
    low = torch.autograd.grad(loss, (low_states, embedding))
    assert loss.dtype == torch.float32
    assert [gradient.dtype for gradient in low] == [torch.bfloat16, torch.float32]
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=2e-3)
    for mine, other in zip(low, gradients, strict=True):
        error = (mine.float() - other).norm() / other.norm()
        assert float(error) < 0.02


def test_bf16_products_leave_no_trace_after_the_loss():
    before = torch.backends.mkldnn.matmul.fp32_precision
    states, embedding, targets = case(5, 7)
    with torch.autocast("cpu", torch.bfloat16):
        smoothed_cross_entropy(states, embedding, targets, 0.1)
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    with pytest.raises(RuntimeError), torch.autocast("cpu", torch.bfloat16):
        smoothed_cross_entropy(states, embedding[:, :5], targets, 0.1)
    assert torch.backends.mkldnn.matmul.fp32_precision == before


@pytest.mark.parametrize("n", [1, 37, 2 * CHUNK + 5])
def test_the_negative_log_likelihood_is_the_cross_entropy(n):
    states, embedding, targets = case(n, 331)
    expected, _ = by_torch(states, embedding, targets, 0.0)
    assert negative_log_likelihood(states, embedding, targets) == pytest.approx(
        float(expected), rel=1e-6
    )
    capped = 2 * torch.tanh(states @ embedding.T / 2)
    expected = F.cross_entropy(capped.detach().double(), targets, reduction="sum")
    assert negative_log_likelihood(states, embedding, targets, 2.0) == pytest.approx(
        float(expected), rel=1e-6
    )


@pytest.mark.parametrize("n", [1, CHUNK + 5])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_smoothing_a_cap_a_z_loss_and_a_further_term_add_up(cap, n):
    """Each alone and all together, against all logits at once in double precision."""
    states, embedding, targets = case(n, 7)
    exact = (states.detach().double() @ embedding.detach().double().T)  # fmt: skip
    logits = exact if cap is None else cap * torch.tanh(exact / cap)
    logs = logits.log_softmax(1)
    smoothed = -(0.8 * logs.gather(1, targets[:, None]).sum() + 0.2 / 7 * logs.sum())
    squares = logits.exp().sum(1).log().square().sum()
    penalty = (logits[:, 0] * targets).sum()
    for z_loss in (0.0, 0.3):
        for weight in (0.0, 0.1):

            def term(chunk, of_chunk, weight=weight):
                return weight * (chunk[:, 0] * of_chunk).sum()

            found = smoothed_cross_entropy(
                states, embedding, targets, 0.2, cap, z_loss, term if weight else None
            )
            expected = smoothed + z_loss * squares + weight * penalty
            assert float(found.detach()) == pytest.approx(float(expected), rel=1e-5)
