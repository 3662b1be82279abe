"""Optimizers against their formulas and torch's classes, decay of matrices alone, clipping, state
in checkpoints.
"""

import subprocess
import sys

import pytest
import torch
from torch import nn

from ablate.config.cost import optimizer_values, parameters
from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.training.optimizer import Optimizer

SMALL = {"n_layers": 1, "d_model": 6, "d_ff": 5, "n_heads": 2}
DECAYING = {"adam": {"weight_decay": 0.3}, "adamw": {"optimizer": "adamw", "weight_decay": 0.3}}


class Small(nn.Module):
    """A matrix and a vector, of 3 and 2 numbers."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.5, -2.0]))
        self.matrix = nn.Parameter(torch.tensor([[1.0, -3.0, 0.25]]))


def give(model, scale):
    """Gradients that differ from number to number and from step to step."""
    model.bias.grad = scale * torch.tensor([0.2, -0.1])
    model.matrix.grad = scale * torch.tensor([[0.3, 0.7, -0.4]])


def give_both(one, other, drawn):
    """The same random gradients to two models of one shape."""
    for mine, same in zip(one.parameters(), other.parameters(), strict=True):
        mine.grad = torch.randn(mine.shape, generator=drawn)
        same.grad = mine.grad.clone()


SCALES = (1.0, -0.5, 2.0, 0.01)
RATES = (0.1, 0.03, 0.2, 0.05)


OTHER_MOMENTS = {"adam_beta1": 0.5, "adam_beta2": 0.7, "adam_eps": 0.1}


@pytest.mark.parametrize("settings", [{}, OTHER_MOMENTS, *DECAYING.values()], ids=str)
def test_steps_are_those_of_torchs_fused_optimizer_to_the_bit(settings):
    """In which matrices alone decay."""
    config = resolve_row({**SMALL, **settings, "gradient_clipping": 0.7})
    ours, theirs = build(config, 11, seed=1), build(config, 11, seed=1)
    kind = torch.optim.AdamW if "optimizer" in settings else torch.optim.Adam
    moments = {"betas": (0.9, 0.98), "eps": 1e-9}
    if settings == OTHER_MOMENTS:
        moments = {"betas": (0.5, 0.7), "eps": 0.1}
    fused = kind(
        [
            {"params": [p for p in theirs.parameters() if p.dim() > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in theirs.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ],
        **moments, fused=True,
    )  # fmt: skip
    stepped, drawn = Optimizer(ours, config), torch.Generator().manual_seed(1)
    for rate in RATES:
        give_both(ours, theirs, drawn)
        stepped.step(rate)
        nn.utils.clip_grad_norm_(
            [theirs.get_parameter(name) for name in stepped.named_parameters], 0.7
        )  # sums in one order
        for group in fused.param_groups:
            group["lr"] = rate
        fused.step()
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, theirs.get_parameter(name)), name
        state = fused.state[theirs.get_parameter(name)]
        assert {kind: value.tolist() for kind, value in stepped.states[name].items()} == {
            kind: value.tolist() for kind, value in state.items()
        }


@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd"}, {"optimizer": "muon"}], ids=str)
def test_a_state_that_is_allocated_before_the_first_step_changes_nothing(settings):
    models = [Small(), Small()]
    optimizers = [Optimizer(model, resolve_row(settings)) for model in models]
    optimizers[0].allocate()
    assert bool(optimizers[0].states)
    for _ in range(2):
        for model, optimizer in zip(models, optimizers, strict=True):
            give(model, 1.0)
            optimizer.step(0.1)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, other)
    assert optimizers[0].state().keys() == optimizers[1].state().keys()


def test_training_does_not_load_torchs_compiler():
    """It takes the better part of a second, and nothing here is compiled."""
    script = (
        "import sys, torch\n"
        "from ablate.config.resolve import resolve_row\n"
        "from ablate.model import build\n"
        "from ablate.training.optimizer import Optimizer\n"
        "config = resolve_row(dict(n_layers=1, d_model=6, d_ff=5, n_heads=2, "
        "gradient_clipping=1.0))\n"
        "model = build(config, 11, 1)\n"
        "tokens = torch.randint(4, 11, (2, 5))\n"
        "model(tokens, tokens).sum().backward()\n"
        "Optimizer(model, config).step(0.1)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


# Of the gradients at scale 1: 0.2^2 + 0.1^2 + 0.3^2 + 0.7^2 + 0.4^2 = 0.79.
NORM = 0.79**0.5


@pytest.mark.parametrize(
    ("largest", "factor"), [(None, 1.0), (1.0, 1.0), (0.5, 0.5 / NORM), (0.01, 0.01 / NORM)]
)
def test_a_gradient_whose_norm_is_larger_is_scaled_down_to_it_as_one_vector(largest, factor):
    model = Small()
    optimizer = Optimizer(model, resolve_row({"gradient_clipping": largest, "adam_beta1": 0.5}))
    give(model, 1.0)
    optimizer.step(0.1)
    first = {
        name: moment / 0.5
        for name, moment in optimizer.state().items()
        if name.startswith("exp_avg/")
    }
    torch.testing.assert_close(
        first["exp_avg/bias"], factor * torch.tensor([0.2, -0.1]), rtol=1e-4, atol=0
    )
    torch.testing.assert_close(
        first["exp_avg/matrix"], factor * torch.tensor([[0.3, 0.7, -0.4]]), rtol=1e-4, atol=0
    )


@pytest.mark.parametrize(
    "settings", [{}, {"mixer": "lstm"}, {"positional_encoding": "relative"}], ids=str
)
def test_without_a_gradient_decoupled_decay_shrinks_all_but_gains_and_biases(settings):
    config = resolve_row({**SMALL, **DECAYING["adamw"], "attention_bias": True, **settings})
    model = build(config, 11, seed=1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    Optimizer(model, config).step(0.5)
    for name, parameter in model.named_parameters():
        kept = 1.0 if parameter.dim() == 1 else 1 - 0.5 * 0.3
        torch.testing.assert_close(parameter.detach(), kept * before[name])
    assert {parameter.dim() == 1 for parameter in model.parameters()} == {True, False}


def test_a_step_clears_the_gradients():
    model = Small()
    give(model, 1.0)
    Optimizer(model, resolve_row({})).step(0.1)
    assert model.bias.grad is None
    assert model.matrix.grad is None


def test_a_parameter_that_nothing_uses_has_no_state_and_is_left_alone():
    model = Small()
    optimizer = Optimizer(model, resolve_row({}))
    for _ in range(2):
        model.matrix.grad = torch.ones(1, 3)
        optimizer.step(0.1)
        again = Optimizer(model, resolve_row({}))
        again.load(optimizer.state())
        assert {name.partition("/")[2] for name in again.state()} == {"matrix"}
    assert model.bias.tolist() == [0.5, -2.0]


# SGD and Muon


@pytest.mark.parametrize("momentum", [None, 0.0, 0.5])
def test_sgd_steps_are_those_of_the_formula(momentum):
    """v <- mu v + g + decay x, x <- x - rate v, with decay for the matrix alone."""
    mu = 0.9 if momentum is None else momentum
    model = Small()
    optimizer = Optimizer(
        model, resolve_row({"optimizer": "sgd", "momentum": momentum, "weight_decay": 0.3})
    )
    x, v = model.matrix.detach().double(), 0.0
    b, u = model.bias.detach().double(), 0.0
    for scale, rate in zip(SCALES, RATES, strict=True):
        v = mu * v + scale * torch.tensor([[0.3, 0.7, -0.4]]).double() + 0.3 * x
        u = mu * u + scale * torch.tensor([0.2, -0.1]).double()
        x, b = x - rate * v, b - rate * u
        give(model, scale)
        optimizer.step(rate)
    torch.testing.assert_close(model.matrix.detach(), x.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.bias.detach(), b.float(), rtol=1e-5, atol=1e-6)
    assert set(optimizer.state()) == (
        {"momentum_buffer/matrix", "momentum_buffer/bias"} if mu else set()
    )


FIELDS_OF_MUON = {
    "optimizer": "muon",
    "weight_decay": 0.3,
    "positional_encoding": "learned",
    "max_positions": 9,
}


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_muon_steps_are_those_of_torchs_muon_and_adamw_side_by_side_to_the_bit(momentum):
    config = resolve_row({**SMALL, **FIELDS_OF_MUON, "momentum": momentum})
    ours, theirs = build(config, 11, seed=1), build(config, 11, seed=1)
    hidden = {
        name
        for name, p in theirs.named_parameters()
        if name.startswith(("encoder.", "decoder.")) and p.dim() == 2
    }
    of = {name: theirs.get_parameter(name) for name, _ in theirs.named_parameters()}
    muon = torch.optim.Muon(
        [p for name, p in of.items() if name in hidden],
        weight_decay=0.3, momentum=0.95 if momentum is None else momentum, adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    rest = torch.optim.AdamW(
        [
            {"params": [p for name, p in of.items() if name not in hidden and p.dim() > 1], "weight_decay": 0.3},
            {"params": [p for name, p in of.items() if name not in hidden and p.dim() == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.98), eps=1e-9, fused=True,
    )  # fmt: skip
    stepped, drawn = Optimizer(ours, config), torch.Generator().manual_seed(1)
    for rate in RATES:
        give_both(ours, theirs, drawn)
        stepped.step(rate)
        for optimizer in (muon, rest):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, of[name]), name
    kinds = {name: set(state) for name, state in stepped.states.items()}
    assert {name for name in kinds if kinds[name] == {"momentum_buffer"}} == hidden
    assert {
        "embedding.weight",
        "source_positions.weight",
        "encoder.0.feed_forward.W_1.bias",
    } <= kinds.keys() - hidden


@pytest.mark.parametrize(
    "settings",
    [{}, *DECAYING.values(), {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.0}, FIELDS_OF_MUON],
)  # fmt: skip
def test_a_model_goes_on_from_the_state_of_its_optimizer_to_the_bit(settings):
    """Although with decay its parameters stand in another order than the model's."""
    config = resolve_row({**SMALL, **settings})
    whole, stopped = build(config, 11, seed=1), build(config, 11, seed=1)
    unbroken, first = Optimizer(whole, config), Optimizer(stopped, config)
    drawn = torch.Generator().manual_seed(1)
    for _ in range(2):
        give_both(whole, stopped, drawn)
        unbroken.step(0.1)
        first.step(0.1)
    second = Optimizer(stopped, config)
    second.load({name: value.clone() for name, value in first.state().items()})
    give_both(whole, stopped, drawn)
    unbroken.step(0.1)
    second.step(0.1)
    assert all(map(torch.equal, whole.parameters(), stopped.parameters()))
    assert {name: value.tolist() for name, value in second.state().items()} == {
        name: value.tolist() for name, value in unbroken.state().items()
    }


@pytest.mark.parametrize(
    ("settings", "bytes_each"),
    [
        ({}, 8),
        ({"optimizer": "sgd"}, 4),
        ({"optimizer": "sgd", "momentum": 0.0}, 0),
        (FIELDS_OF_MUON, None),
        ({**FIELDS_OF_MUON, "optimizer": "normuon", "ema_decay": 0.9}, None),
        ({"optimizer": "soap", "ema_decay": 0.9}, None),
        ({"optimizer": "lion", "ema_decay": 0.9}, 8),
        ({"optimizer": "schedule_free", "schedule": "constant"}, 12),
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [{}, {"mixer": "lstm"}, {"architecture": "decoder-only", "n_kv_heads": 1},
                                   {"architecture": "decoder-only", "mixer": "gated_deltanet"},
                                   {"architecture": "decoder-only", "mixer": "mamba2"},
                                   {"activation": "swiglu", "positional_encoding": "relative"}], ids=str)  # fmt: skip
def test_the_state_is_as_large_as_foretold(settings, bytes_each, shape):
    config = resolve_row({**SMALL, **settings, **shape})
    model = build(config, 11, seed=1)
    optimizer = Optimizer(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(0.1)
    kept = sum(
        value.numel()
        for key, value in optimizer.state().items()
        if value.dim() and not key.startswith("row_sq/")
    )
    foretold = optimizer_values(config, parameters(config, 11))
    if config.optimizer == "soap":
        assert foretold <= kept
    else:
        assert kept == foretold
    if bytes_each is not None:
        assert 4 * kept == bytes_each * sum(p.numel() for p in model.parameters())
