"""The recurrence chunk by chunk: equal to its rule, token by token, in values and gradients."""

import pytest
import torch

from ablate.kernels import linear_recurrence as kernels
from ablate.kernels.linear_recurrence import decayed_average, linear_recurrence
from ablate.parts.mixer_variants import RECURRENCE_CHUNK as CHUNK

B, H, D_K, D_V = 2, 3, 7, 5


def by_the_rule(Q, K, V, log_decay, beta, S):
    """S_t = a_t S_{t-1} + k_t u_t^T and o_t = S_t^T q_t, for each token."""
    outputs = []
    for t in range(Q.shape[2]):
        q, k, u = Q[:, :, t], K[:, :, t], V[:, :, t]
        S = log_decay[:, :, t].exp()[..., None] * S
        if beta is not None:
            u = beta[:, :, t] * (u - torch.einsum("bhkv,bhk->bhv", S, k))
        S = S + torch.einsum("bhk,bhv->bhkv", k, u)
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q))
    return torch.stack(outputs, dim=2), S


def drawn(T, decays, delta):
    """Inputs in double precision; keys of length 1, so that the delta rule stays small."""
    draw = torch.Generator().manual_seed(T)

    def normal(*size):
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    K = torch.nn.functional.normalize(normal(B, H, T, D_K), dim=-1)
    log_decay = -normal(B, H, T, decays).abs()
    beta = normal(B, H, T, 1).sigmoid() if delta else None
    inputs = [normal(B, H, T, D_K), K, normal(B, H, T, D_V), log_decay, beta]
    return [*inputs, normal(B, H, D_K, D_V)]


@pytest.mark.parametrize("delta", [False, True], ids=["values", "delta rule"])
@pytest.mark.parametrize("decays", [1, D_K], ids=["a decay for each head", "for each row"])
@pytest.mark.parametrize("T", [1, 2, 5, CHUNK, CHUNK + 1, 2 * CHUNK + 2])
def test_chunks_give_the_values_and_gradients_of_the_rule(T, decays, delta):
    inputs = drawn(T, decays, delta)
    leaves = [x.requires_grad_() for x in inputs if x is not None]
    found, expected = linear_recurrence(*inputs), by_the_rule(*inputs)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-9)
    gradients = []
    for out, state in (found, expected):
        loss = (out * torch.linspace(-1, 1, D_V)).sum() + (state**2).sum()
        gradients.append(torch.autograd.grad(loss, leaves))
    torch.testing.assert_close(*gradients, atol=1e-9, rtol=1e-8)


@pytest.mark.parametrize("delta", [False, True], ids=["values", "delta rule"])
def test_a_token_without_key_decay_and_strength_leaves_the_state(delta):
    Q, K, V, log_decay, beta, S = drawn(6, 1, delta)
    for part in (K, log_decay, *([beta] if delta else [])):
        part[:, :, 2:4] = 0
    kept = [0, 1, 4, 5]
    parts = [x if x is None else x[:, :, kept] for x in (Q, K, V, log_decay, beta)]
    out, state = linear_recurrence(Q, K, V, log_decay, beta, S)
    expected = linear_recurrence(*parts, S)
    torch.testing.assert_close((out[:, :, kept], state), expected)


def test_a_strong_decay_over_a_long_sequence_stays_finite():
    Q, K, V, log_decay, beta, S = drawn(3 * CHUNK, D_K, True)
    out, state = linear_recurrence(Q, K, V, 300 * log_decay, beta, S)
    assert bool(out.isfinite().all())
    assert bool(state.isfinite().all())


@pytest.mark.parametrize("split", [1, 3, 70])
def test_a_sequence_continues_from_its_state(split):
    *inputs, S = drawn(90, 1, True)
    whole = linear_recurrence(*inputs, S)
    first, between = linear_recurrence(*(x[:, :, :split] for x in inputs), S)
    second, end = linear_recurrence(*(x[:, :, split:] for x in inputs), between)
    torch.testing.assert_close((torch.cat([first, second], dim=2), end), whole)


@pytest.fixture
def deterministic_gpu(monkeypatch):
    """A CPU that has no cumulative sum of floats, as a GPU in deterministic mode."""

    def refused(x, *args, **settings):
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    monkeypatch.setattr(kernels, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(torch.Tensor, "cumsum", refused)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.parametrize("T", [1, 2, 3, 8, 13])
def test_a_running_sum_with_a_fixed_order_has_the_values_and_gradients_of_a_loop(
    deterministic_gpu, T
):
    x = torch.randn(2, T, 3, generator=torch.Generator().manual_seed(T), dtype=torch.float64)
    x.requires_grad_()
    found = kernels.running_sum(x, 1)
    expected = torch.stack([x[:, : t + 1].sum(1) for t in range(T)], 1)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    weights = torch.linspace(-1, 1, found.numel()).view_as(found)
    torch.testing.assert_close(
        *(torch.autograd.grad((out * weights).sum(), x) for out in (found, expected)),
        rtol=1e-13,
        atol=1e-13,
    )


@pytest.mark.parametrize("delta", [False, True], ids=["values", "delta rule"])
def test_a_deterministic_gpu_has_the_values_of_the_rule(deterministic_gpu, delta):
    inputs = drawn(CHUNK + 3, D_K, delta)
    torch.testing.assert_close(
        linear_recurrence(*inputs), by_the_rule(*inputs), atol=1e-10, rtol=1e-9
    )


def test_decayed_averages_of_a_deterministic_gpu_are_those_of_a_cpu(deterministic_gpu, request):
    draw = torch.Generator().manual_seed(1)
    K, V, decay = torch.randn(3, 2, 9, 4, generator=draw, dtype=torch.float64).unbind()
    found = decayed_average(K, V, decay.abs(), torch.zeros(4))
    request.getfixturevalue("monkeypatch").undo()
    expected = decayed_average(K, V, decay.abs(), torch.zeros(4))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def averages_by_loop(K, V, decay, bonus):
    """`decayed_average` by its definition, in double precision and in logarithms of weights."""
    outputs = []
    for t in range(K.shape[1]):
        weights = [K[:, i] - decay[:, i + 1 : t].sum(1) for i in range(t)]
        logs = torch.stack([*weights, bonus + K[:, t]])
        outputs.append((logs.softmax(0)[..., None] * V[:, : t + 1].movedim(1, 0)[..., None]).sum(0))
    return torch.stack(outputs, dim=1)[..., 0]


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 40.0])
@pytest.mark.parametrize("T", [9, 67])
def test_decayed_averages_are_those_of_a_loop_however_large_weights_and_decays_are(scale, rate, T):
    torch.manual_seed(3)
    K, V = scale * torch.randn(2, T, 5), torch.randn(2, T, 5)
    decay, bonus = rate * torch.rand(2, T, 5), torch.randn(5)
    found, end = decayed_average(K, V, decay, bonus)
    expected = averages_by_loop(*(x.double() for x in (K, V, decay, bonus)))
    torch.testing.assert_close(found.double(), expected, atol=2e-4, rtol=1e-3)
    first, between = decayed_average(K[:, :4], V[:, :4], decay[:, :4], bonus)
    second, left = decayed_average(K[:, 4:], V[:, 4:], decay[:, 4:], bonus, between)
    torch.testing.assert_close(torch.cat([first, second], dim=1), found, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(left, end, atol=2e-4, rtol=1e-3)
