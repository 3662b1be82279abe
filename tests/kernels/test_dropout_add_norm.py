"""The functions that a GPU compiles, beside the model's own path on a CPU and plain torch in double
precision.
"""

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels import cross_entropy, device, dropout_add
from ablate.kernels.cross_entropy import loss_and_gradient
from ablate.kernels.dropout_add import dropout_add as dropout_add_of_cpu
from ablate.model import layers
from ablate.model import residual as residuals
from ablate.model.layers import Dropout
from ablate.model.norms import LayerNorm
from ablate.model.residual import PostNorm, PreNorm

SHAPE, D = (3, 5, 7), 7


def tensors(dtype=torch.float64):
    drawn = torch.Generator().manual_seed(1)
    sizes = (SHAPE, SHAPE, (D,), (D,))
    given = [
        torch.randn(size, generator=drawn, dtype=torch.float64).to(dtype).requires_grad_()
        for size in sizes
    ]
    words = torch.randint(-32768, 32768, SHAPE, generator=drawn).to(torch.int16)
    return (*given, words)


@pytest.mark.parametrize("dropped", [1, 6554, 40_000, 65_535])
def test_values_and_gradients_are_those_of_plain_torch_in_double(dropped):
    residual, x, weight, bias, words = tensors()
    found = dropout_add.dropout_add_norm(residual, x, words, dropped, weight, bias, 1e-6)
    mask = (
        torch.tensor([float(word + 32768 >= dropped) for word in words.flatten().tolist()])
        .view(SHAPE)
        .double()
    )
    expected = F.layer_norm(residual + x * mask / (1 - dropped / 65536), (D,), weight, bias, 1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(SHAPE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    given = (residual, x, weight, bias)
    for one, other in zip(
        *(torch.autograd.grad(out, given, upstream) for out in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_sum_is_that_of_the_cpus_kernel():
    residual, x, _, _, words = tensors(torch.float32)
    mask = (words >= 6554 - 32768).float()
    found = dropout_add.dropout_add_words(residual, x, words, 6554)
    torch.testing.assert_close(found, dropout_add_of_cpu(residual, x, mask, 65536 / (65536 - 6554)))


def test_an_output_in_bf16_is_added_in_fp32_and_gets_a_gradient_in_bf16():
    residual, x, weight, bias, words = tensors(torch.float32)
    low = x.detach().bfloat16().requires_grad_()
    out = dropout_add.dropout_add_norm(residual, low, words, 6554, weight, bias, 1e-6)
    assert out.dtype == torch.float32
    assert torch.autograd.grad(out.sum(), low)[0].dtype == torch.bfloat16
    whole = dropout_add.dropout_add_norm(residual, low.float(), words, 6554, weight, bias, 1e-6)
    assert torch.equal(out, whole)


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
@pytest.mark.parametrize("training", [False, True])
def test_the_path_of_a_gpu_draws_the_same_masks_and_gives_the_same_values(
    monkeypatch, residual, training
):
    """The residual connection by both paths, on a CPU in double precision."""
    x, output = (
        part.double() for part in torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(3))
    )
    found = []
    for gpu in (False, True):
        module = residual(LayerNorm(D).double(), True, 0.3, torch.Generator().manual_seed(5)).train(
            training
        )
        for where in (residuals, layers):
            monkeypatch.setattr(where, "on_gpu", lambda tensor, gpu=gpu: gpu)
        found.append([module.after(x, output), module.dropout.random.get_state()])
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.filterwarnings("ignore")
def test_all_functions_are_traced_whole_and_once_for_all_shapes():
    """As on a GPU, but run by torch's operators one by one: a break in the graph or a second trace
    would raise.
    """
    with torch._dynamo.config.patch(error_on_recompile=True):
        compiled = [torch.compile(function, dynamic=True, fullgraph=True, backend="aot_eager") for function in
                    (dropout_add.dropout_add_norm, dropout_add.dropout_add_words, loss_and_gradient)]  # fmt: skip
        for B in (2, 3, 5):
            x, residual = torch.randn(B, B + 4, D), torch.randn(B, B + 4, D)
            words = Dropout(0.1, torch.Generator()).draw(x)
            weight, bias = torch.ones(D, requires_grad=True), torch.zeros(D, requires_grad=True)
            args = x.requires_grad_(), residual.requires_grad_(), words, 6554
            out = compiled[0](*args, weight, bias, 1e-6)
            out.sum().backward()
            torch.testing.assert_close(out, dropout_add.dropout_add_norm(*args, weight, bias, 1e-6))
            torch.testing.assert_close(compiled[1](*args), dropout_add.dropout_add_words(*args))
            logits, targets = (
                torch.randn(7 * B, 16, dtype=torch.bfloat16),
                torch.randint(13, (7 * B,)),
            )
            for one, other in zip(compiled[2](logits, targets, 13, 0.1), loss_and_gradient(logits, targets, 13, 0.1),
                                  strict=True):  # fmt: skip
                torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_gpu_in_bf16_is_near_that_of_a_cpu_in_fp32(monkeypatch, smoothing):
    drawn = torch.Generator().manual_seed(7)
    states, embedding = (
        torch.randn(size, 24, generator=drawn).requires_grad_() for size in (50, 101)
    )
    targets = torch.randint(101, (50,), generator=drawn)
    exact = cross_entropy.smoothed_cross_entropy(states, embedding, targets, smoothing)
    gradients = torch.autograd.grad(exact / 3, (states, embedding))
    monkeypatch.setattr(cross_entropy, "on_gpu", lambda tensor: True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy.smoothed_cross_entropy(states, embedding, targets, smoothing)
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), rel=5e-3)
    for one, other in zip(
        torch.autograd.grad(loss / 3, (states, embedding)), gradients, strict=True
    ):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


def test_without_a_gpu_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", None)
    double = device.fused_on_gpu(lambda x: 2 * x)
    assert double(torch.ones(2)).tolist() == [2.0, 2.0]
