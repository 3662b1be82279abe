"""Lion, NorMuon, schedule-free AdamW, cautious rules, groups, averages and own classes, against
plain expressions of the papers in double precision and torch's classes.
"""

import inspect
import re

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from ablate.checks.training import check_training
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.resolve import resolve_row
from ablate.custom.source import source_hash
from ablate.errors import StudyError
from ablate.model import build
from ablate.training.optimizer import (
    Optimizer,
    hidden_matrices,
    make_optimizer,
    parameter_kinds,
)
from ablate.training.schedule import decay_share, learning_rate, schedule_of
from tests.model.random_shapes import VALUES, resolved

SMALL = {"n_layers": 1, "d_model": 6, "d_ff": 5, "n_heads": 2}
RATES = (0.1, 0.03, 0.2, 0.05)
FREE = {"optimizer": "schedule_free", "schedule": "constant"}


class Matrix(nn.Module):
    """One matrix that is trained, in double precision."""

    def __init__(self, shape=(3, 5), seed=1):
        super().__init__()
        drawn = torch.Generator().manual_seed(seed)
        self.matrix = nn.Parameter(torch.randn(shape, generator=drawn, dtype=torch.float64))


def gradients(like, count=4):
    drawn = torch.Generator().manual_seed(7)
    return [torch.randn(like.shape, generator=drawn, dtype=like.dtype) for _ in range(count)]


def trained(settings, rates=RATES, model=None):
    """The matrix after a step at each rate with given gradients; and the optimizer."""
    model = model or Matrix()
    optimizer = Optimizer(model, resolve_row(settings))
    for rate, gradient in zip(rates, gradients(model.matrix, len(rates)), strict=True):
        model.matrix.grad = gradient
        optimizer.step(rate)
    return model.matrix.detach(), optimizer


def test_lion_moves_by_the_sign_of_its_momentum():
    x, m = Matrix().matrix.detach(), 0.0
    for rate, g in zip(RATES, gradients(x), strict=True):
        x = x - rate * (torch.sign(0.8 * m + 0.2 * g) + 0.3 * x)
        m = 0.6 * m + 0.4 * g
    settings = {"optimizer": "lion", "weight_decay": 0.3, "adam_beta1": 0.8, "adam_beta2": 0.6}
    torch.testing.assert_close(trained(settings)[0], x)


def test_schedule_free_follows_its_three_sequences():
    """Algorithm 1: y between z and x, and x the mean of z by squared rates."""
    start = Matrix().matrix.detach()
    x, z, v, total = start, start, 0.0, 0.0
    for t, (rate, g) in enumerate(zip(sorted(RATES), gradients(start), strict=True), 1):
        y = 0.2 * z + 0.8 * x
        v = 0.7 * v + 0.3 * g**2
        z = z - rate * (g / ((v / (1 - 0.7**t)).sqrt() + 1e-9) + 0.3 * y)
        total += rate**2
        x = x + rate**2 / total * (z - x)
    settings = {**FREE, "weight_decay": 0.3, "adam_beta1": 0.8, "adam_beta2": 0.7}
    model = Matrix()
    y, optimizer = trained(settings, sorted(RATES), model)
    torch.testing.assert_close(y, 0.2 * z + 0.8 * x, rtol=1e-6, atol=1e-6)
    with optimizer.averaged():
        torch.testing.assert_close(model.matrix.detach(), x, rtol=1e-6, atol=1e-6)
    assert torch.equal(model.matrix, y)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_normuon_divides_the_rows_of_an_orthogonal_update_by_their_sizes(shape):
    """Singular values by torch's decomposition, taken through the quintic one by one."""
    x, m, v = Matrix(shape).matrix.detach(), 0.0, 0.0
    for rate, g in zip(RATES, gradients(x), strict=True):
        m = 0.9 * m + 0.1 * g
        U, S, V = torch.linalg.svd(m, full_matrices=False)
        S = S / S.norm()
        for _ in range(5):
            S = 3.4445 * S - 4.7750 * S**3 + 2.0315 * S**5
        o = U @ torch.diag(S) @ V
        v = 0.95 * v + 0.05 * (o**2).mean(1, keepdim=True)
        o = o / v.sqrt()
        x = x - rate * (0.3 * x + 0.2 * 15**0.5 / o.norm() * o)
    settings = {"optimizer": "normuon", "momentum": 0.9, "weight_decay": 0.3}
    torch.testing.assert_close(trained(settings, model=Matrix(shape))[0], x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 5), (4, 3), (4, 4)])
def test_soap_at_frequency_one_is_the_algorithm_of_the_paper(shape):
    """Algorithms 3 and 4, with the axes of the first gradient, and Adam's correction."""
    x, m, v = Matrix(shape).matrix.detach(), 0.0, 0.0
    L, R, Q_L, Q_R = 0.0, 0.0, None, None
    for t, (rate, g) in enumerate(zip(RATES, gradients(x), strict=True)):
        if t:
            m = 0.8 * m + 0.2 * g
            turned = Q_L.T @ g @ Q_R
            v = 0.7 * v + 0.3 * turned**2
            corrected = (Q_L.T @ m @ Q_R) / (1 - 0.8**t)
            update = Q_L @ (corrected / ((v / (1 - 0.7**t)).sqrt() + 1e-9)) @ Q_R.T
            x = x - rate * (0.3 * x + update)
        L, R = 0.7 * L + (1 - 0.7) * (g @ g.T), 0.7 * R + (1 - 0.7) * (g.T @ g)
        Q_L = torch.linalg.qr(L @ Q_L).Q if t else torch.linalg.eigh(L).eigenvectors
        Q_R = torch.linalg.qr(R @ Q_R).Q if t else torch.linalg.eigh(R).eigenvectors
    settings = {
        "optimizer": "soap", "preconditioning_frequency": 1, "weight_decay": 0.3,
        "adam_beta1": 0.8, "adam_beta2": 0.7,
    }  # fmt: skip
    torch.testing.assert_close(trained(settings, model=Matrix(shape))[0], x)


def test_soap_with_axes_that_do_not_turn_is_adamw():
    settings = {"weight_decay": 0.3, "preconditioning_frequency": 1000}
    model = Matrix()
    optimizer = Optimizer(model, resolve_row({"optimizer": "soap", **settings}))
    optimizer.allocate()
    state = optimizer.states["matrix"]
    state["step"].fill_(1)
    for side in ("rows", "columns"):
        state[f"axes_{side}"].fill_diagonal_(1.0)
    plain = Matrix()
    adamw = Optimizer(plain, resolve_row({"optimizer": "adamw", "weight_decay": 0.3}))
    for rate, gradient in zip(RATES, gradients(plain.matrix), strict=True):
        model.matrix.grad, plain.matrix.grad = gradient, gradient.clone()
        optimizer.step(rate)
        adamw.step(rate)
    torch.testing.assert_close(model.matrix, plain.matrix)


def adamw_update(g, m, v, t):
    return (m / (1 - 0.9**t)) / ((v / (1 - 0.98**t)).sqrt() + 1e-9)


@pytest.mark.parametrize(("updates", "decay"), [(True, False), (False, True), (True, True)])
def test_cautious_rules_hold_back_entries_that_go_uphill_or_away_from_zero(updates, decay):
    x, m, v = Matrix().matrix.detach(), 0.0, 0.0
    for t, (rate, g) in enumerate(zip(RATES, gradients(x), strict=True), 1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        u = adamw_update(g, m, v, t)
        if updates:
            mask = (u * g > 0).double()
            u = u * mask / mask.mean()
        shrinks = (u * x >= 0).double() if decay else 1.0
        x = x - rate * (u + 0.3 * shrinks * x)
    settings = {
        "optimizer": "adamw",
        "weight_decay": 0.3,
        "cautious_updates": updates,
        "cautious_decay": decay,
    }
    torch.testing.assert_close(trained(settings)[0], x)


def test_the_average_of_weights_is_the_sum_of_them_by_decay_without_the_start():
    model, decay, seen = Matrix(), 0.6, []
    optimizer = Optimizer(model, resolve_row({"ema_decay": decay}))
    for gradient in gradients(model.matrix):
        model.matrix.grad = gradient
        optimizer.step(0.1)
        seen.append(model.matrix.detach().clone())
    shares = torch.tensor([decay ** (len(seen) - 1 - i) for i in range(len(seen))])
    expected = sum(share * x for share, x in zip(shares / shares.sum(), seen, strict=True))
    with optimizer.averaged():
        torch.testing.assert_close(model.matrix.detach(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(model.matrix, seen[-1])
    plain, _ = trained({}, rates=[0.1] * len(RATES))
    assert torch.equal(seen[-1], plain)  # the average changes nothing


# Groups

KINDS = {
    "embedding.weight": "embedding",
    "source_positions.weight": "position",
    "output.weight": "output",
    "output_bias": "vector",
    "decoder.0.feed_forward.W_1.weight": "feed_forward",
    "decoder.0.feed_forward.W_1.bias": "vector",
    "decoder.0.mixer.W_O.weight": "matrix",
    "decoder.0.around_mixer.norm.weight": "vector",
}
UNTIED = {
    "tied_embeddings": "none", "output_bias": True, "positional_encoding": "learned", "max_positions": 9,
}  # fmt: skip


def test_parameters_are_embeddings_output_vectors_or_matrices():
    kinds = parameter_kinds(build(resolve_row({**SMALL, **UNTIED}), 11, seed=1))
    assert {name: kinds[name] for name in KINDS} == KINDS
    tied = parameter_kinds(build(resolve_row(SMALL), 11, seed=1))
    assert tied["embedding.weight"] == "embedding"
    assert "output" not in tied.values()


STACKS = [
    {},
    {"architecture": "decoder-only", "attention_bias": True, "router_bias": True},
    {"architecture": "decoder-only", "norm_position": "pre", "positional_encoding": "none"},
    {"architecture": "encoder-only", "token_types": 2, "output_transform": True, "output_bias": True},
]  # fmt: skip


def test_biases_are_vectors_and_modules_declare_all_of_their_parameters():
    """Over every value of every field of the model: a bias of any shape is neither decayed as a
    matrix nor orthogonalized. Modules of torch itself have biases with one axis.
    """
    seen, not_vectors, undeclared = set(), set(), set()
    for stack in STACKS:
        for field, values in VALUES.items():
            for value in values:
                config = resolved({**SMALL, **stack, "max_positions": 32, field: value})
                if config is None:
                    continue
                model = build(config, 11, seed=1)
                for name, kind in parameter_kinds(model).items():
                    seen.add(name)
                    if name.endswith("bias") and kind != "vector":
                        not_vectors.add((config.mixer, name, kind))
                for module in model.modules():
                    if type(module).__module__.startswith("ablate."):
                        own = [name for name, _ in module.named_parameters(recurse=False)]
                        declared = getattr(module, "parameter_kinds", {})
                        undeclared |= {(type(module), n) for n in own if n not in declared}
    assert not_vectors == set()
    assert undeclared == set()
    assert any("input_gate.bias" in name for name in seen)


def test_kinds_follow_declarations_and_not_the_number_of_axes():
    fields = {"architecture": "decoder-only", "positional_encoding": "none", "smear": True}
    model = build(resolve_row({**SMALL, **fields, "mixer": "rg_lru"}), 11, seed=1)
    kinds = parameter_kinds(model)
    mixer = "decoder.0.mixer."
    assert kinds[f"{mixer}input_gate.weight"] == "matrix"  # (h, d, d)
    assert kinds[f"{mixer}input_gate.bias"] == "vector"  # (h, d)
    assert kinds[f"{mixer}convolution.weight"] == "kernel"  # (channels, 1, width)
    assert kinds["token_pairs.0.gate"] == "matrix"  # (d_model)
    assert f"{mixer}input_gate.bias" not in hidden_matrices(model)


FACTORS = {
    "embedding_rate": 0.2, "output_rate": 0.5, "vector_rate": 3.0, "feed_forward_rate": 0.25,
    "embedding_decay": 0.0, "output_decay": 0.5, "vector_decay": 2.0,
}  # fmt: skip


def test_the_network_of_a_layer_is_a_feed_forward_network_whatever_its_class():
    model = build(resolve_row(SMALL), 11, seed=1)
    for layer in (*model.encoder, *model.decoder):
        layer.feed_forward = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 16))
    kinds = parameter_kinds(model)
    of_networks = {kind for name, kind in kinds.items() if "feed_forward.0.weight" in name}
    assert of_networks == {"feed_forward"}


def test_each_kind_of_parameters_has_its_rate_and_its_decay():
    """Side by side with torch's AdamW, which is told them by hand."""
    config = resolve_row({**SMALL, **UNTIED, **FACTORS, "optimizer": "adamw", "weight_decay": 0.3})
    ours, theirs = build(config, 11, seed=1), build(config, 11, seed=1)
    rates = {
        "embedding": 0.2, "position": 0.2, "output": 0.5, "vector": 3.0, "feed_forward": 0.25,
        "matrix": 1.0,
    }  # fmt: skip
    decays = {
        "embedding": 0.0, "position": 0.0, "output": 0.15, "vector": 0.6, "feed_forward": 0.3,
        "matrix": 0.3,
    }  # fmt: skip
    kinds = parameter_kinds(theirs)
    plain = torch.optim.AdamW(
        [{"params": [p], "weight_decay": decays[kinds[name]], "kind": kinds[name]}
         for name, p in theirs.named_parameters()],
        betas=(0.9, 0.98), eps=1e-9, foreach=False,
    )  # fmt: skip
    stepped, drawn = Optimizer(ours, config), torch.Generator().manual_seed(1)
    for rate in RATES:
        for mine, same in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.grad = torch.randn(mine.shape, generator=drawn)
            same.grad = mine.grad.clone()
        for group in plain.param_groups:
            group["lr"] = rate * rates[group["kind"]]
        stepped.step(rate)
        plain.step()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            parameter, theirs.get_parameter(name), rtol=1e-5, atol=1e-6, msg=name
        )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_meets_rates_of_kinds_and_allocates_what_a_step_makes(optimizer):
    settings = {"weight_decay": 0.1, "schedule": "constant", "optimizer": optimizer}
    config = resolve_row({**SMALL, **UNTIED, **FACTORS, **settings})
    model = build(config, 11, seed=1)
    stepped, allocated = Optimizer(model, config), Optimizer(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    stepped.step(0.1)
    allocated.allocate()
    shapes = [{k: v.shape for k, v in each.state().items()} for each in (stepped, allocated)]
    assert shapes[0] == shapes[1]


def test_weight_decay_falls_to_zero_in_a_line_or_half_a_cosine():
    row = {"optimizer": "adamw", "weight_decay": 0.1, "train_steps": 4, "warmup_steps": 1}
    shares = {
        schedule: [
            decay_share(resolve_row({**row, "decay_schedule": schedule}), step, 4)
            for step in (1, 2, 3, 4, 5)
        ]
        for schedule in ("constant", "linear", "cosine")
    }
    assert shares["constant"] == [1.0] * 5
    assert shares["linear"] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert shares["cosine"] == pytest.approx([1.0, 0.853553, 0.5, 0.146447, 0.0], abs=1e-6)
    model = Matrix()
    before = model.matrix.detach().clone()
    model.matrix.grad = torch.zeros_like(before)
    Optimizer(model, resolve_row(row)).step(0.5, decay_share=0.25)
    torch.testing.assert_close(model.matrix.detach(), before * (1 - 0.5 * 0.1 * 0.25))


# Own classes and functions

NADAM = "import torch\nclass Mine(torch.optim.NAdam):\n    pass\n"
SIGNED = """
import torch
class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "calls": 0})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["calls"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["n"] = state.get("n", 0) + 1
                    p.sub_(p.grad.sign(), alpha=group["lr"] / state["n"] / group["calls"])
"""
SIGNUM = SIGNED.replace("params, lr)", "params, lr, momentum=0.9)").replace(
    '"calls": 0', '"calls": 0, "momentum": momentum'
)
# Its state has the kind that averages of the weights have.
AVERAGING = """
import torch
class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    average = self.state[p].setdefault("average", torch.zeros_like(p))
                    p.sub_(average.lerp_(p.grad, 0.5), alpha=group["lr"])
"""
FORGETS = SIGNED.replace("state = self.state[p]", "state = self.seen").replace(
    "super()", "self.seen = {}; super()"
)
# Every fifth step it goes half of the way back to weights that it keeps for itself (Lookahead).
LOOKAHEAD = FORGETS.replace(
    'alpha=group["lr"] / state["n"] / group["calls"])',
    """alpha=group["lr"])
                    kept = state.setdefault(p, p.clone())
                    if group["calls"] % 5 == 0:
                        kept.copy_(p.lerp_(kept, 0.5))
""",
)


@pytest.fixture
def own(tmp_path):
    """Store a source as a run does; returns the pinned reference to `Mine` in it."""

    def own(source):
        (tmp_path / f"{source_hash(source.encode())}.py").write_text(source)
        return f"mine:Mine@{source_hash(source.encode())}"

    return own


DECAY = {"momentum_decay": 0.5, "decoupled_weight_decay": True}


@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [
        (NADAM, {}),
        ("torch.optim.NAdam", {}),
        ("torch.optim.nadam.NAdam(momentum_decay=0.5, decoupled_weight_decay=True)", DECAY),
    ],
)
def test_a_class_steps_like_torchs_with_the_fields_that_it_takes(
    own, tmp_path, optimizer, arguments
):
    assert {"betas", "eps", "weight_decay"} <= set(inspect.signature(torch.optim.NAdam).parameters)
    named = own(optimizer) if optimizer == NADAM else optimizer
    config = resolve_row({"optimizer": named, "weight_decay": 0.1, "adam_beta1": 0.8})
    ours, theirs = Matrix(), Matrix()
    plain = torch.optim.NAdam(
        theirs.parameters(), betas=(0.8, 0.98), eps=1e-9, weight_decay=0.1, **arguments
    )
    stepped = make_optimizer(ours, config, tmp_path)
    for rate, gradient in zip(RATES, gradients(ours.matrix), strict=True):
        ours.matrix.grad, theirs.matrix.grad = gradient, gradient.clone()
        plain.param_groups[0]["lr"] = rate
        stepped.step(rate)
        plain.step()
    assert torch.equal(ours.matrix, theirs.matrix)


@pytest.mark.parametrize(
    ("optimizer", "set_to", "expected"),
    [
        (SIGNUM, None, 0.9),
        (SIGNUM, 0.5, 0.5),
        (SIGNUM, 0.0, 0.0),
        ("torch.optim.SGD", None, 0.0),
    ],
)
def test_a_class_keeps_its_own_momentum_unless_the_row_sets_one(
    own, tmp_path, optimizer, set_to, expected
):
    named = own(optimizer) if optimizer == SIGNUM else optimizer
    config = resolve_row({"optimizer": named, "momentum": set_to})
    (group,) = make_optimizer(Matrix(), config, tmp_path).custom.param_groups
    assert group["momentum"] == expected


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1, "embedding_rate": 0.3}], ids=str)
def test_a_class_is_told_which_parameters_are_hidden_matrices(own, tmp_path, settings):
    source = SIGNED.replace("params, lr)", "params, lr, weight_decay=0.0)").replace(
        '{"lr": lr,', '{"lr": lr, "weight_decay": weight_decay,'
    )
    model = build(resolve_row(SMALL), 11, 1)
    config = resolve_row({"optimizer": own(source), **settings})
    told = make_optimizer(model, config, tmp_path).custom.param_groups
    marks = {}
    for group in told:
        marks.update(zip(map(id, group["params"]), group["hidden_matrix"], strict=True))
    names = {name for name, parameter in model.named_parameters() if marks[id(parameter)]}
    muon = make_optimizer(model, resolve_row({"optimizer": "muon"}), tmp_path)
    assert names == set(muon.groups[0].parameters)
    assert len(told) > 1 or not settings


@pytest.mark.parametrize(
    "source", [NADAM, SIGNED, AVERAGING, "torch.optim.RAdam", "torch.optim.Adafactor(d=2.0)"]
)
@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_class_goes_on_from_its_state_to_the_bit(own, tmp_path, source, ema):
    optimizer = source if source.startswith("torch") else own(source)
    config = resolve_row({"optimizer": optimizer, "ema_decay": ema})
    check_training(config, tmp_path)
    whole, stopped = Matrix(), Matrix()
    unbroken, first = (make_optimizer(model, config, tmp_path) for model in (whole, stopped))
    drawn = gradients(whole.matrix)
    for gradient in drawn[:2]:
        for model, optimizer in ((whole, unbroken), (stopped, first)):
            model.matrix.grad = gradient.clone()
            optimizer.step(0.1)
    second = make_optimizer(stopped, config, tmp_path)
    second.load({name: value.clone() for name, value in first.state().items()})
    for gradient in drawn[2:]:
        for model, optimizer in ((whole, unbroken), (stopped, second)):
            model.matrix.grad = gradient.clone()
            optimizer.step(0.1)
    assert torch.equal(whole.matrix, stopped.matrix)
    states = [
        {name: value.tolist() for name, value in optimizer.state().items()}
        for optimizer in (unbroken, second)
    ]
    assert states[0] == states[1]


OWN = "def Mine(config, step, last):\n"
REFUSED = [
    (
        SIGNED.replace("super().__init__(params,", "super().__init__([{**group, 'params': [p]} "
        "for group in params for p in group['params']],"),
        "has 2 groups of parameters, and was given 1; the constructor must keep the groups",
    ),
    (FORGETS, "a resumed training differs"),
    (LOOKAHEAD, "a resumed training differs"),
    (SIGNED.replace("sign()", "div(0.0)"), "gives weights that are not finite"),
    (SIGNED.replace("sign()", "add(torch.randn(()))"), "nothing in them may be random"),
    (SIGNED.replace('group["lr"]', "0.01"), "the same weights with twice the learning rate"),
    ("class Mine:\n    pass\n", "does not derive from torch.optim.Optimizer"),
    ("import torch\ndef Mine(params, lr):\n    pass\n", "does not derive from"),
    (SIGNED.replace("sign()", "signs()"), "AttributeError"),
    (SIGNED.replace('["n"] = state.get("n", 0) + 1', '["n"], state["s"] = 1, {1}'), "cannot be saved"),
    ("torch.optim.Muon", "optimizer=torch.optim.Muon: ValueError: Muon only supports 2D"),
    ("torch.optim.NAdam(decay=1)", "unexpected keyword argument 'decay'"),
    ("torch.nn.Linear", "torch.nn.Linear does not derive from torch.optim.Optimizer"),
    ("torch.optim.Nadam", "torch.optim.Nadam cannot be imported"),
]  # fmt: skip
REFUSED_SCHEDULES = [
    (f"{OWN}    return float('nan')\n", "gives the learning rate nan"),
    (f"{OWN}    return -1\n", "gives the learning rate -"),
    (f"{OWN}    print()\n", "returns None at step 4000, which is not an int or float of Python"),
    (f"{OWN}    import torch; return torch.tensor(1.0)\n", "which is not an int or float of Python"),
    (f"{OWN}    return '1'\n", "returns '1' at step 4000, which is not an int or float of Python"),
    (f"{OWN}    import random; return random.random()\n", "another number when called again"),
    (f"{OWN}    return 3e-4 * (1 - step / last)\n", "returns at most 0.000288: return a share"),
    (f"{OWN}    return 0.0\n", "returns at most 0: return a share"),
    (f"{OWN}    return config.learning_rate\n", "returns at most 0.02: return a share"),
    (f"{OWN}    return 0.02 * (1 - step / last)\n", "returns at most 0.0192: return a share"),
    (f"{OWN}    return 100 * (1 - step / last)\n", "returns 96 at step 4000: return a share of the peak learning_rate, such as 1.0"),
    (f"{OWN}    return 0.5 if step < last else 11.0\n", "returns 11 at step 100000: return a share"),
    ("def Mine(step):\n    return 1\n", "TypeError: Mine() takes 1 positional argument but 3 were "
     "given; it gets config, step and last as a schedule,"),
    ("class Mine:\n    pass\n", "is not a function"),
    (f"{OWN}    half = step / 2\n    return half / nothing\n",
     "mine.py:4: mine:Mine: NameError: name 'nothing' is not defined"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "source", "message"),
    [("optimizer", *case) for case in REFUSED]
    + [("schedule", *case) for case in REFUSED_SCHEDULES],
)
def test_what_does_not_fit_is_refused_before_training(own, tmp_path, field, source, message):
    is_installed = source.startswith("torch.")
    value = source if is_installed else own(f"# A comment\n{source}")
    config = resolve_row({field: value, "learning_rate": 0.02 if field == "schedule" else None})
    with pytest.raises(StudyError) as caught:
        check_training(config, tmp_path)
    (line,) = caught.value.lines
    assert message in line
    assert is_installed or re.match(r"mine\.py:\d+: ", line)
    assert field == "optimizer" or re.match(r"mine\.py:[24]: mine:Mine", line)


@pytest.mark.parametrize(("peak", "share"), [(0.02, 0.03), (0.5, 0.05)])
def test_a_schedule_may_stay_far_below_the_peak(own, tmp_path, peak, share):
    """No rate of this peak is as high, or the peak is too high for a rate."""
    schedule = own(f"{OWN}    return {share}\n")
    check_training(resolve_row({"schedule": schedule, "learning_rate": peak}), tmp_path)


def test_a_schedule_that_computes_with_an_unset_rate_gets_the_remedy(own, tmp_path):
    schedule = own(f"{OWN}    return config.learning_rate * (1 - step / last)\n")
    with pytest.raises(StudyError, match="which this row does not set: return a share of the peak"):
        check_training(resolve_row({"schedule": schedule}), tmp_path)


def test_another_type_error_of_a_schedule_is_shown_as_it_is(own, tmp_path):
    schedule = own(f"{OWN}    return None * config.warmup_steps\n")
    with pytest.raises(StudyError, match=r"mine\.py:2: mine:Mine: TypeError: unsupported operand"):
        check_training(resolve_row({"schedule": schedule}), tmp_path)


def test_a_class_without_a_field_that_the_row_sets_is_refused(own, tmp_path):
    with pytest.raises(StudyError, match="has no argument weight_decay"):
        check_training(resolve_row({"optimizer": own(SIGNED), "weight_decay": 0.1}), tmp_path)


# A state whose memory has other strides than the parameter, and a number for all of its entries.
STRIDED = """\
import torch
class Mine(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["turned"] = torch.zeros_like(p.t().contiguous()).t()
                    state["shared"] = torch.zeros(()).expand(p.shape)
                p.sub_(state["turned"].add_(p.grad) + state["shared"], alpha=group["lr"])
"""


def test_the_check_of_a_class_saves_its_state_as_a_checkpoint_does(own, tmp_path):
    """What passes is trained from its checkpoints; what a file cannot hold is refused before."""
    check_training(resolve_row({"optimizer": own(STRIDED)}), tmp_path)
    model = Matrix()
    optimizer = make_optimizer(model, resolve_row({"optimizer": own(STRIDED)}), tmp_path)
    (gradient, *_) = gradients(model.matrix)
    model.matrix.grad = gradient
    optimizer.step(0.1)
    saved = from_bytes(to_bytes(optimizer.state()))
    assert torch.equal(saved["turned/matrix"], gradient)
    two_names = STRIDED.replace(
        "torch.zeros_like(p.t().contiguous()).t()", 'state["shared"] = torch.zeros_like(p)'
    ).replace('state["shared"] = torch.zeros(()).expand(p.shape)', "pass")
    with pytest.raises(StudyError, match="has a state that a checkpoint cannot hold") as caught:
        check_training(resolve_row({"optimizer": own(two_names)}), tmp_path)
    assert len(caught.value.lines) == 1


def test_an_own_function_gives_the_share_of_the_peak_after_the_warm_up(own, tmp_path):
    source = "def Mine(config, step, last):\n    return 1 - (step - config.warmup_steps) / last\n"
    row = {"schedule": own(source), "learning_rate": 0.5, "warmup_steps": 10, "train_steps": 100}
    config = resolve_row(row)
    check_training(config, tmp_path)
    schedule = schedule_of(config, tmp_path)
    rates = [learning_rate(config, step, 100, schedule) for step in (5, 10, 60)]
    assert rates == [0.25, 0.5, 0.25]


def test_an_own_function_is_asked_with_a_last_step_unless_patience_alone_ends_the_training(
    own, tmp_path
):
    source = "def Mine(config, step, last):\n    return 1 - step / (10 * last)\n"
    row = {"schedule": own(source), "learning_rate": 0.5}
    check_training(resolve_row({**row, "epochs": 10}), tmp_path)
    with pytest.raises(StudyError, match="NoneType"):
        check_training(resolve_row({**row, "train_steps": None, "patience": 3}), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "schedule_free"}, "set schedule to constant"),
        ({**FREE, "ema_decay": 0.9}, "averages already"),
        ({**FREE, "cautious_updates": True}, "would not change"),
        ({"optimizer": "a:B", "cautious_updates": True}, "not with a:B"),
        ({"train_steps": None, "patience": 2, "optimizer": "lion", "weight_decay": 0.1, "decay_schedule": "linear"},
         "decay_schedule=linear falls to its end"),
        ({"optimizer": "lyon"}, "did you mean"),
        ({"optimizer": "torch.optim.NAdam(0.5)"}, "are no arguments"),
        ({"optimizer": "torch.optim.NAdam(eps=1)"}, "eps is set by adam_eps; remove it here"),
        ({"optimizer": "torch.optim.NAdam", "cautious_updates": True}, "not with torch.optim.NAdam"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        resolve_row(settings)
