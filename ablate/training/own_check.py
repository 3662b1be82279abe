"""Check a user's own optimizer, schedule and loss term before anything is trained with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from ablate.config import RowConfig
from ablate.errors import StudyError
from ablate.formatting import in_one_line
from ablate.own.faults import OwnClassFault, describe, faults_of, with_place
from ablate.own.loading import own_function
from ablate.own.reference import Reference, is_own, parse_reference
from ablate.training.optimizer import Optimizer, make_optimizer
from ablate.training.schedule import learning_rate, schedule_of

STEPS = 24
RESUMED = 13  # no multiple of an interval at which a state may be renewed, such as 5 or 10
_LEAST_SHARE = 0.01  # of the peak: no schedule stays below it
Check = Callable[[RowConfig, Path], str | None]  # what is wrong, as a message


def check_own_training(config: RowConfig, sources: Path) -> None:
    """Take a few steps, also from a saved state; ask the schedule for its rates, and the loss term
    for its sum over some tokens.

    Raises:
        StudyError: a class or function fails, its resumed steps differ from uninterrupted ones, a
            rate is not a finite number from 0 on, or the term is no sum over tokens.
    """
    checks = {
        "optimizer": _check_optimizer,
        "schedule": _check_schedule,
        "loss_term": _check_loss_term,
    }
    for field, check in checks.items():
        value = getattr(config, field)
        plugin = parse_reference(value)
        if plugin is not None:
            with faults_of([plugin], sources):
                _check_own(check, config, sources, plugin)
        elif is_own(value):  # of an installed package
            try:
                fault = check(config, sources)
            except StudyError:
                raise
            except (Exception, SystemExit) as error:
                fault = str(describe([], error))
            if fault:
                raise StudyError(f"{field}={value}: {fault}")


def _check_own(check: Check, config: RowConfig, sources: Path, plugin: Reference) -> None:
    try:
        fault = check(config, sources)
    except StudyError as error:
        raise with_place(error, [plugin], sources) from None
    if fault:
        raise OwnClassFault(fault)


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.linspace(-1.0, 1.0, 6).view(3, 2))
        self.vector = nn.Parameter(torch.linspace(-1.0, 1.0, 3))


def _check_optimizer(config: RowConfig, sources: Path) -> str | None:
    def trained(rate: float = 0.01, resumed: bool = False) -> Tensor:
        model = _Small()
        optimizer = make_optimizer(model, config, sources)
        _train(model, optimizer, range(RESUMED), rate)
        if resumed:
            saved = to_bytes(optimizer.state())  # as in a checkpoint, which not every tensor fits
            optimizer = make_optimizer(model, config, sources)
            optimizer.load(from_bytes(saved))
        _train(model, optimizer, range(RESUMED, STEPS), rate)
        return nn.utils.parameters_to_vector(model.parameters()).detach()

    weights = trained()
    if not weights.isfinite().all():
        return "gives weights that are not finite, with finite gradients"
    if not torch.equal(weights, trained()):
        return "gives other weights when its steps are repeated: nothing in them may be random"
    try:
        resumed = trained(resumed=True)
    except (ValueError, RuntimeError, SafetensorError) as error:
        why = "has a state that a checkpoint cannot hold, or that cannot be loaded"
        return f"{why}: {in_one_line(error)}"
    if not torch.equal(weights, resumed):
        return (
            "a resumed training differs from an uninterrupted one; all that a step depends on "
            "belongs into `self.state[parameter]` or `self.param_groups`"
        )
    if torch.equal(weights, trained(rate=0.02)):
        return (
            'gives the same weights with twice the learning rate: read `group["lr"]` in each step, '
            "which has the schedule and the rate of the group"
        )
    return None


def _train(model: nn.Module, optimizer: Optimizer, steps: range, rate: float) -> None:
    for step in steps:
        for parameter in model.parameters():
            parameter.grad = torch.cos(parameter.detach() + step)
        optimizer.step(rate * (step % 4 + 1))


def _check_schedule(config: RowConfig, sources: Path) -> str | None:
    schedule, begin = schedule_of(config, sources), config.warmup_steps
    last = config.train_steps
    if last is None and config.epochs is not None:  # the corpus decides; any number will do
        last = 10 * begin
    end, highest = max(begin + 1, last or 10 * begin), 0.0
    for step in (begin, *range(begin + 1, end, max(1, (end - begin) // 50)), end):
        share: object = schedule(config, step, last)
        if not isinstance(share, (int, float)):  # it is written into the log, as JSON
            return f"returns {share!r} at step {step}, which is no int or float of Python"
        rate = learning_rate(config, step, last, schedule)
        if not 0.0 <= rate < math.inf:
            return f"the share of the peak at step {step} of {last} gives the rate {rate:.6g}"
        if schedule(config, step, last) != share:
            return (
                f"returns another number when asked again for step {step}: it must follow from it"
            )
        highest = max(highest, share)
    if highest < _LEAST_SHARE:
        return (
            f"returns at most {highest:.6g} of the peak, which is learning_rate: return a share, "
            "such as 1.0, and not a rate"
        )
    return None


def _check_loss_term(config: RowConfig, sources: Path) -> str | None:
    term = own_function(config.loss_term, sources)
    assert term is not None
    logits = torch.linspace(-2.0, 3.0, 5 * 11).cos().view(5, 11).requires_grad_()
    targets, given = torch.tensor([4, 10, 4, 6, 7]), logits.detach().clone()
    parts: list[Tensor] = []
    for rows in (slice(0, 5), slice(0, 2), slice(2, 5)):
        value: object = term(logits[rows], targets[rows])
        if not isinstance(value, Tensor) or value.shape != () or not value.isfinite():
            shown = type(value).__name__
            if isinstance(value, Tensor):
                shown = f"shape {tuple(value.shape)}" if value.dim() else f"{value.item()}"
            return f"returns {shown}, and not a finite number as a tensor without dimensions"
        parts.append(value)
    whole, first, second = parts
    if not whole.requires_grad:
        return "does not depend on the logits, or its gradient is cut off"
    if not torch.allclose(whole, first + second, rtol=1e-4, atol=1e-5):
        return (
            f"{whole.item():.6g} for five tokens, and {first.item():.6g} + {second.item():.6g} for "
            "two and three of them: return the sum over tokens, and no mean"
        )
    whole.backward()
    if logits.grad is None or not logits.grad.isfinite().all():
        return "has a gradient that is not finite"
    return None if torch.equal(given, logits) else "changes the logits in place"
