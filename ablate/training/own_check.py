"""Check a user's own optimizer, schedule and loss term before anything is trained with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ablate.config import RowConfig
from ablate.config.plugins import (
    OwnClassFault,
    Reference,
    describe,
    faults_of,
    is_own,
    own_function,
    parse_reference,
    with_place,
)
from ablate.errors import StudyError
from ablate.training.optimizer import Optimizer, make_optimizer
from ablate.training.schedule import learning_rate, schedule_of

STEPS = 4
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
            except Exception as error:
                fault = describe([], error).removeprefix(": ")
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
    whole, resumed = _Small(), _Small()
    unbroken, first = (make_optimizer(model, config, sources) for model in (whole, resumed))
    _train(whole, unbroken, range(STEPS))
    _train(resumed, first, range(STEPS // 2))
    state: dict[str, Tensor] = {name: value.clone() for name, value in first.state().items()}
    second = make_optimizer(resumed, config, sources)
    second.load(state)
    _train(resumed, second, range(STEPS // 2, STEPS))
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        if not torch.equal(one, other):
            return (
                "a resumed training differs from an uninterrupted one; all that a step depends on "
                "belongs into `self.state[parameter]` or `self.param_groups`"
            )
    return None


def _train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        for parameter in model.parameters():
            parameter.grad = torch.cos(parameter.detach() + step)
        optimizer.step(0.01 * (step + 1))


def _check_schedule(config: RowConfig, sources: Path) -> str | None:
    schedule, begin = schedule_of(config, sources), config.warmup_steps
    last = config.train_steps
    if last is None and config.epochs is not None:  # the corpus decides; any number will do
        last = 10 * begin
    for step in (begin, begin + 1, max(begin, last or 10 * begin)):
        share: object = schedule(config, step, last)
        try:
            float(share)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return f"returns {share!r} at step {step}, which is no number"
        rate = learning_rate(config, step, last, schedule)
        if not 0.0 <= rate < math.inf:
            return f"the share of the peak at step {step} of {last} gives the rate {rate}"
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
            shown = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
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
