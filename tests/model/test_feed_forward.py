"""The feed-forward network is the formula of section 3.3, for each of its activations."""

import math

import pytest
import torch

from ablate.model.experts import MixtureOfExperts
from ablate.model.feed_forward import Activation
from ablate.model.feed_forward import feed_forward as network
from ablate.parts.feed_forward import ACTIVATIONS
from tests.model.small import drawn, normal, parts, shape, small_model

D_MODEL, D_FF = 26, 19


def feed_forward(**fields):
    return drawn(parts(**fields).feed_forward()).requires_grad_(False).eval()


FUNCTIONS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "relu2": lambda x: max(0.0, x) ** 2,
    "leaky_relu2": lambda x: (x if x > 0 else 0.5 * x) ** 2,
    "swiglu": lambda x: x / (1 + math.exp(-x)),
    "swiglu_clamped": lambda x: min(x, 7.0) / (1 + math.exp(-1.702 * min(x, 7.0))),
}  # fmt: skip
FUNCTIONS |= {
    "geglu": FUNCTIONS["gelu"],
    "geglu_tanh": FUNCTIONS["gelu_tanh"],
    "reglu": FUNCTIONS["relu"],
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_activations_are_their_formulas(activation):
    inputs = [-30.0, -3.0, -1.0, -0.1, 0.0, 0.1, 0.7, 1.0, 3.0, 30.0]
    out = ACTIVATIONS[activation].make()(torch.tensor(inputs, dtype=torch.float64))
    assert out.tolist() == pytest.approx([FUNCTIONS[activation](x) for x in inputs], abs=1e-12)


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_the_network_is_its_formula_at_every_position(activation):
    """f(x W_1 + b_1) W_2 + b_2; swiglu, (f(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2."""
    module, x = feed_forward(activation=activation), normal(2, 3, D_MODEL)
    out = module(x)
    for b in range(2):
        for t in range(3):

            def projected(linear, vector):
                return linear.weight.double() @ vector + linear.bias.double()

            given = x[b, t].double()
            inner = torch.tensor(
                [FUNCTIONS[activation](value) for value in projected(module.W_1, given).tolist()]
            )
            if "glu" in activation:
                gate = projected(module.W_3, given)
                is_clamped = activation == "swiglu_clamped"
                inner = inner * (gate.clamp(-7, 7) + 1 if is_clamped else gate)
            expected = projected(module.W_2, inner.double())
            torch.testing.assert_close(out[b, t].double(), expected, atol=1e-5, rtol=1e-5)


def test_dropout_acts_between_the_activation_and_the_second_product():
    """With W_2 the identity, the output minus b_2 is the activation after dropout."""
    rate, n = 0.3, 2000
    module = feed_forward(activation_dropout=rate, d_ff=D_MODEL)
    module.W_2.weight.copy_(torch.eye(D_MODEL))
    module.W_2.bias.copy_(torch.arange(1.0, D_MODEL + 1))
    x = normal(1, 1, D_MODEL).expand(1, n, D_MODEL)
    whole, dropped = module(x) - module.W_2.bias, module.train()(x) - module.W_2.bias
    active = whole > 1e-4
    kept = dropped.abs() > 1e-4
    assert not (kept & ~active).any()
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - rate), atol=1e-4, rtol=1e-4)
    share = float(kept[active].float().mean())
    assert share == pytest.approx(
        1 - rate, abs=5 * math.sqrt(rate * (1 - rate) / int(active.sum()))
    )
    deviation = whole[0, 0] * math.sqrt(rate / (1 - rate) / n)
    assert bool(((dropped.mean(1)[0] - whole[0, 0]).abs() <= 5 * deviation + 1e-4).all())


def test_every_activation_of_a_study_can_be_built():
    assert tuple(ACTIVATIONS) == tuple(FUNCTIONS)
    gated = {name for name in ACTIVATIONS if ACTIVATIONS[name].make().gated}
    assert gated == {"swiglu", "swiglu_clamped", "geglu", "geglu_tanh", "reglu"}
    assert all(shape(activation=name).activation == name for name in ACTIVATIONS)


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_bf16_values_and_gradients_are_close_to_fp32(activation, dropout):
    """The dropout masks are the same, because none is drawn for the rows that pad a product."""
    found = []
    for low in (False, True):
        module = drawn(
            parts(activation=activation, activation_dropout=dropout).feed_forward()
        ).train()
        x = normal(3, 5, D_MODEL).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            out = module(x)
        gradients = torch.autograd.grad(
            out, [x, *module.parameters()], normal(3, 5, D_MODEL, seed=2)
        )
        found.append([out, *gradients, module.dropout.random.get_state().float()])
    for exact, near in zip(*found, strict=True):
        assert near.dtype == torch.float32
        assert (near - exact).norm() <= 0.05 * exact.norm()
    assert torch.equal(found[0][-1], found[1][-1])


def test_fp32_output_equals_the_composed_layers_bit_for_bit():
    module, x = drawn(parts().feed_forward()), normal(3, 5, D_MODEL).requires_grad_()
    given, upstream = [x, *module.parameters()], normal(3, 5, D_MODEL, seed=2)
    ways = module(x), module.W_2(torch.relu(module.W_1(x)))
    assert torch.equal(*ways)
    for one, other in zip(*(torch.autograd.grad(y, given, upstream) for y in ways), strict=True):
        assert torch.equal(one, other)


def test_an_activation_that_is_not_elementwise_receives_no_padding_rows():
    """Padding rows would be 0 after the first layer, where a square root has no gradient."""
    given = []

    class Root(Activation):
        def forward(self, x):
            given.append((tuple(x.shape), x.dtype))
            return x.sign() * x.abs().sqrt()

    init = torch.Generator().manual_seed(1)
    module = drawn(network(shape(), Root(), init, init))
    with torch.no_grad():
        module.W_1.bias.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        out = module(normal(3, 5, D_MODEL))
    assert given == [((3, 5, D_FF), torch.float32)]
    out.sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_sigmoid_weights_of_experts_are_finite_for_any_scores():
    """Scores below -100 are all 0 to the sigmoid in fp32, and their sum is 0."""
    model = small_model(n_experts=3, experts_per_token=2, expert_weights="sigmoid")
    (experts, *_) = (m for m in model.modules() if isinstance(m, MixtureOfExperts))
    weights, _ = experts._choose(torch.full((1, 3), -200.0))
    assert weights.tolist() == [[0.0, 0.0]]
    ordinary, _ = experts._choose(torch.tensor([[1.0, 2.0, 0.0]]))
    assert ordinary.sum().item() == pytest.approx(1.0)
