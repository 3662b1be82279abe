"""The functions that a GPU compiles, beside the model's own path on a CPU and plain torch in double
precision.
"""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ablate.kernels import cross_entropy, device, dropout_add
from ablate.kernels.cross_entropy import loss_and_gradient
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
    # The last word that drops an entry, and the first that keeps it.
    words.view(-1)[:2] = torch.tensor([dropped - 32769, dropped - 32768])
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


def test_the_sum_is_that_of_a_mask_of_numbers():
    residual, x, _, _, words = tensors(torch.float32)
    mask = (words >= 6554 - 32768).float()
    found = dropout_add.dropout_add_words(residual, x, words, 6554)
    torch.testing.assert_close(found, residual + x * mask * (65536 / (65536 - 6554)))


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


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Compile on a CPU what a GPU compiles, by torch's operators one by one; counts the graphs."""
    made = []

    def counted(graph, inputs):
        made.append([tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor)])
        return graph.forward

    monkeypatch.setattr(device, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(device, "_can_compile", lambda: True)
    compiler = partial(torch.compile, backend=counted)
    monkeypatch.setattr(torch, "compile", compiler)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=8):
        yield made
    torch._dynamo.reset()


def ends(B, T, width=D, dtype=torch.float32):
    drawn = torch.Generator().manual_seed(B)
    residual, x = torch.randn(2, B, T, width, generator=drawn).unbind()
    words = torch.randint(-32768, 32768, (B, T, width), generator=drawn).to(torch.int16)
    weight, bias = torch.nn.Parameter(torch.ones(width)), torch.nn.Parameter(torch.zeros(width))
    # As in a model: neither is a leaf of the graph.
    residual, x = 1 * residual.requires_grad_(), 1 * x.to(dtype).requires_grad_()
    return residual, x, words, 6554, weight, bias, 1e-6


def logits_of(n, V=16):
    return torch.randn(n, V, dtype=torch.bfloat16), torch.randint(13, (n,)), 13, 0.1


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_a_function_is_compiled_on_fixed_shapes_whatever_the_first_batch(as_on_a_gpu):
    """Torch splits sums by the shapes of the first call: a resumed run has another first batch."""
    shapes = []
    for first in ((5, 5), (3, 9), (8, 2)):
        torch._dynamo.reset()
        as_on_a_gpu.clear()
        norm = device.fused_on_gpu(dropout_add.dropout_add_norm)
        loss = device.fused_on_gpu(loss_and_gradient)
        for B, T in (first, (4, 4), (7, 3), (2, 6)):  # equal sizes need no graph of their own
            torch.testing.assert_close(norm(*ends(B, T)), dropout_add.dropout_add_norm(*ends(B, T)))
            given = logits_of(B * T)
            with torch.no_grad():
                for one, other in zip(loss(*given), loss_and_gradient(*given), strict=True):
                    torch.testing.assert_close(one, other)
        shapes.append(list(as_on_a_gpu))
    assert shapes[0] == shapes[1] == shapes[2]
    assert len(shapes[0]) == 2  # a graph for each function
    assert (63, 65, D) in shapes[0][0]
    assert (1024, 16) in shapes[0][1]


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_one_worker_compiles_for_many_widths_and_for_axes_of_one(as_on_a_gpu):
    norm = device.fused_on_gpu(dropout_add.dropout_add_norm)
    for width in range(4, 24):  # torch's own limit is 8 graphs
        norm(*ends(3, 4, width))
    assert len(as_on_a_gpu) == 20
    for B, T in ((1, 4), (1, 7), (5, 1)):
        norm(*ends(B, T))
    assert [shapes[0][:2] for shapes in as_on_a_gpu[20:]] == [(1, 65), (63, 1)]


@pytest.mark.parametrize("fails", ["forward", "backward"])
def test_where_torch_cannot_compile_the_function_itself_runs_with_one_warning(
    monkeypatch, as_on_a_gpu, fails
):
    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("Failed to find C compiler.\nPlease specify")

    def compiled(function):
        def call(*args):
            if fails == "forward":
                raise torch._dynamo.exc.InternalTorchDynamoError(
                    "Failed to find C compiler.\nSet CC"
                )
            return Refuses.apply(function(*args))

        return call

    monkeypatch.setattr(device, "_compiled", compiled)
    norm = device.fused_on_gpu(dropout_add.dropout_add_norm)
    with pytest.warns(UserWarning, match=r"steps are slower: Failed to find C compiler\.$") as said:
        out = norm(*ends(3, 4))
    assert len(said) == 1
    out.sum().backward()
    assert torch.equal(out, dropout_add.dropout_add_norm(*ends(3, 4)))
    assert torch.equal(norm(*ends(5, 4)), dropout_add.dropout_add_norm(*ends(5, 4)))  # no warning


def test_memory_that_runs_out_while_compiling_is_no_lack_of_a_compiler(monkeypatch, as_on_a_gpu):
    def full(*args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device, "_compiled", lambda function: full)
    with pytest.raises(torch.OutOfMemoryError):
        device.fused_on_gpu(dropout_add.dropout_add_norm)(*ends(3, 4))
