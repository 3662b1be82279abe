"""Linear, embedding and dropout layers: against closed forms, and dropout against the law of large
numbers.
"""

import math

import pytest
import torch

from ablate.model.embeddings import Embedding
from ablate.model.layers import Dropout, Linear
from tests.model.small import normal

N = 1_000_003  # a prime: the last 64-bit draw is not used up


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def test_linear_is_a_product_and_a_bias():
    layer = Linear(3, 2, generator())
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [5.0, 7.0, 11.0]]))
        layer.bias.copy_(torch.tensor([13.0, 17.0]))
    assert layer(torch.tensor([1.0, 10.0, 100.0])).tolist() == [321.0 + 13.0, 1175.0 + 17.0]


@pytest.mark.parametrize(("d_in", "d_out"), [(101, 307), (307, 101)])
def test_weights_are_xavier_uniform_and_biases_zero(d_in, d_out):
    layer = Linear(d_in, d_out, generator())
    bound = math.sqrt(6 / (d_in + d_out))
    weight = layer.weight.detach()
    largest, smallest = float(weight.max()), float(weight.min())
    assert -bound <= smallest < -0.99 * bound
    assert 0.99 * bound < largest <= bound
    assert float(weight.var()) == pytest.approx(bound**2 / 3, rel=0.03)
    assert not layer.bias.any()


def test_an_embedding_is_the_row_times_the_square_root_of_d_model():
    embedding = Embedding(7, 16, generator())
    tokens = torch.tensor([[3, 0, 6], [5, 5, 1]])
    assert torch.equal(embedding(tokens), embedding.weight[tokens] * 4.0)


def test_embeddings_are_drawn_with_variance_one_over_d_model():
    embedding = Embedding(1009, 64, generator()).requires_grad_(False)
    assert float(embedding.weight.mean()) == pytest.approx(0.0, abs=0.002)
    assert float(embedding.weight.std()) == pytest.approx(1 / 8, rel=0.01)
    assert float(embedding(torch.arange(1009)).std()) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_dropout_drops_at_its_rate_and_keeps_the_expectation(rate):
    out = Dropout(rate, generator())(torch.ones(N))
    dropped = int((out == 0).sum())
    assert abs(dropped - rate * N) < 5 * math.sqrt(N * rate * (1 - rate)) + N / 65536
    kept = out[out != 0]
    assert float(kept.min()) == float(kept.max()) == pytest.approx(1 / (1 - rate), rel=2e-4)
    deviation = math.sqrt(rate / (1 - rate) / N)
    assert float(out.double().mean()) == pytest.approx(1.0, abs=5 * deviation)


@pytest.mark.parametrize("added", [False, True])
def test_dropout_in_bf16_keeps_the_expectation(added):
    """The mean is over many different numbers, so that the rounding of each cancels out."""
    x = normal(N).abs().bfloat16()
    out = Dropout(0.1, generator())(x, residual=torch.zeros(N) if added else None)
    kept = out != 0
    ratio = float(out[kept].double().sum() / x[kept].double().sum())
    assert ratio == pytest.approx(1 / 0.9, rel=5e-4)  # 10/9 itself is 1.109 in bf16, off by 1.6e-3


@pytest.mark.parametrize("rate", [0.1, 0.2, 1 / 3, 0.7, 0.99, 1 - 1e-9])
def test_kept_entries_are_scaled_by_the_rate_that_is_applied(rate):
    """The rate is a whole number of 65536ths; the scale times the probability of being kept is
    exactly 1.
    """
    out = Dropout(rate, generator())(torch.ones(N))
    scale = float(out.max())
    assert scale > 0
    probability = round(65536 / scale) / 65536
    assert scale * probability == pytest.approx(1.0, rel=1e-7)
    assert probability == pytest.approx(1 - rate, abs=1 / 65536)


@pytest.mark.parametrize("apart", [1, 2, 3, 4])
def test_entries_of_one_draw_are_dropped_independently(apart):
    rate = 0.3
    dropped = Dropout(rate, generator())(torch.ones(N)) == 0
    both = float((dropped[apart:] & dropped[:-apart]).double().mean())
    assert both == pytest.approx(rate**2, abs=5 * math.sqrt(rate**2 / N))


def test_each_call_draws_a_new_mask_that_is_independent_of_the_shape():
    dropout = Dropout(0.5, generator())
    first, second = dropout(torch.ones(7, 11, 13)), dropout(torch.ones(7, 11, 13))
    assert not torch.equal(first, second)
    assert torch.equal(Dropout(0.5, generator())(torch.ones(7 * 11 * 13)), first.flatten())


@pytest.mark.parametrize(("rate", "training"), [(0.3, False), (0.0, True)])
def test_dropout_is_the_identity_in_evaluation_or_at_rate_zero_and_draws_no_numbers(rate, training):
    random = generator()
    before = random.get_state()
    x = normal(5, 7)
    assert Dropout(rate, random).train(training)(x) is x
    assert torch.equal(random.get_state(), before)


def test_only_kept_entries_receive_a_gradient():
    x = torch.ones(3, 5, 7, requires_grad=True)
    out = Dropout(0.4, generator())(x)
    upstream = normal(3, 5, 7)
    out.backward(upstream)
    assert (out == 0).any()
    torch.testing.assert_close(
        x.grad, out.detach() * upstream
    )  # x is 1, so out is mask times scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_keeps_the_dtype(dtype):
    x = torch.ones(11, dtype=dtype, requires_grad=True)
    out = Dropout(0.5, generator())(x)
    out.sum().backward()
    assert out.dtype == x.grad.dtype == dtype


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_with_a_residual_equals_the_sum_in_values_and_gradients(dtype, training):
    residual, x = (
        normal(3, 5, 7).requires_grad_(),
        normal(3, 5, 7, seed=2).to(dtype).requires_grad_(),
    )
    upstream = normal(3, 5, 7, seed=3)
    out = Dropout(0.4, generator()).train(training)(x, residual=residual)
    expected = residual + Dropout(0.4, generator()).train(training)(x.float())
    assert torch.equal(out, expected)
    found, exact = (torch.autograd.grad(y, (residual, x), upstream) for y in (out, expected))
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)
