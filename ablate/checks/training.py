"""Try an optimizer, a schedule and a loss term of a user's own, without a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from ablate.checks.properties import Comparison, Trial, check, check_classes
from ablate.config import RowConfig
from ablate.errors import StudyError
from ablate.formatting import single_line
from ablate.own.faults import ClassFault, describe
from ablate.own.loading import load_function
from ablate.own.reference import is_own, parse_reference
from ablate.training.optimizer import Optimizer, make_optimizer
from ablate.training.schedule import learning_rate, schedule_of

STEPS = 24
RESUMED = 13  # no multiple of an interval at which a state may be renewed, such as 5 or 10
_LEAST_SHARE = 0.01  # of the peak: no schedule stays below it


def check_training(config: RowConfig, sources: Path) -> None:
    """Check the optimizer, the schedule and the loss term that a row names, if they are no names of
    built-in ones.

    Raises:
        StudyError: a class or a function fails, or lacks a property.
    """
    for field, trial in TRIALS.items():
        value = getattr(config, field)
        reference = parse_reference(value)
        if reference is not None:
            check_classes({field: reference}, sources, partial(trial, config, sources))
        elif is_own(value):  # of an installed package
            _check_installed(field, value, trial(config, sources))


def _check_installed(field: str, value: str, trial: TrainingTrial) -> None:
    try:
        check(trial)
    except StudyError:
        raise
    except ClassFault as fault:
        raise StudyError(f"{field}={value}: {fault.text}") from None
    except (Exception, SystemExit) as error:
        raise StudyError(f"{field}={value}: {describe([], error)}") from None


class TrainingTrial(Trial):
    """Something that a row trains with; `sources` has the classes of the user's."""

    def __init__(self, config: RowConfig, sources: Path) -> None:
        self.config, self.sources = config, sources


class OptimizerTrial(TrainingTrial):
    """An optimizer that takes 24 steps with a matrix and a vector."""

    def results(self) -> None:
        """Refuse weights that are not finite, or that do not depend on the learning rate."""
        weights = self._trained()
        if not weights.isfinite().all():
            raise ClassFault("gives weights that are not finite, with finite gradients")
        if torch.equal(weights, self._trained(rate=0.02)):
            raise ClassFault(
                'gives the same weights with twice the learning rate: read `group["lr"]` in each '
                "step, which has the schedule and the rate of the group"
            )

    def repetitions(self) -> Iterator[Comparison]:
        """Weights after steps that are repeated, and that go on from a checkpoint."""
        weights = self._trained()
        yield Comparison(
            self._trained(),
            weights,
            "gives other weights when its steps are repeated: nothing in them may be random",
        )
        try:
            resumed = self._trained(resumed=True)
        except (ValueError, RuntimeError, SafetensorError) as error:
            why = "has a state that a checkpoint cannot hold, or that cannot be loaded"
            raise ClassFault(f"{why}: {single_line(error)}") from None
        yield Comparison(
            resumed,
            weights,
            "a resumed training differs from an uninterrupted one; all that a step depends on "
            "belongs into `self.state[parameter]` or `self.param_groups`",
        )

    def _trained(self, rate: float = 0.01, resumed: bool = False) -> Tensor:
        """The weights after all steps; `resumed`: from what a checkpoint holds half-way."""
        model = _Small()
        optimizer = make_optimizer(model, self.config, self.sources)
        _train(model, optimizer, range(RESUMED), rate)
        if resumed:
            saved = to_bytes(optimizer.state())  # not every tensor fits
            optimizer = make_optimizer(model, self.config, self.sources)
            optimizer.load(from_bytes(saved))
        _train(model, optimizer, range(RESUMED, STEPS), rate)
        return nn.utils.parameters_to_vector(model.parameters()).detach()


class _Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.linspace(-1.0, 1.0, 6).view(3, 2))
        self.vector = nn.Parameter(torch.linspace(-1.0, 1.0, 3))


def _train(model: nn.Module, optimizer: Optimizer, steps: range, rate: float) -> None:
    for step in steps:
        for parameter in model.parameters():
            parameter.grad = torch.cos(parameter.detach() + step)
        optimizer.step(rate * (step % 4 + 1))


class ScheduleTrial(TrainingTrial):
    """A schedule that is asked for up to a hundred steps, from the end of the warm-up on."""

    def __init__(self, config: RowConfig, sources: Path) -> None:
        super().__init__(config, sources)
        self.schedule = schedule_of(config, sources)
        begin, self.last = config.warmup_steps, config.train_steps
        if self.last is None and config.epochs is not None:
            self.last = 10 * begin  # the corpus decides; any number will do
        end = max(begin + 1, self.last or 10 * begin)
        self.asked = (begin, *range(begin + 1, end, max(1, (end - begin) // 50)), end)

    def results(self) -> None:
        """Refuse what is no share of the peak."""
        highest = 0.0
        for step in self.asked:
            share: object = self.schedule(self.config, step, self.last)
            if not isinstance(share, (int, float)):  # it is written into the log, as JSON
                raise ClassFault(
                    f"returns {share!r} at step {step}, which is no int or float of Python"
                )
            rate = learning_rate(self.config, step, self.last, self.schedule)
            if not 0.0 <= rate < math.inf:
                raise ClassFault(
                    f"the share of the peak at step {step} of {self.last} gives the rate {rate:.6g}"
                )
            highest = max(highest, share)
        if highest < _LEAST_SHARE:
            raise ClassFault(
                f"returns at most {highest:.6g} of the peak, which is learning_rate: return a "
                "share, such as 1.0, and not a rate"
            )

    def repetitions(self) -> Iterator[Comparison]:
        """Shares of each step, asked for twice."""
        for step in self.asked:
            again, share = (
                torch.tensor(self.schedule(self.config, step, self.last), dtype=torch.float64)
                for _ in range(2)
            )
            fault = "returns another number when asked again for step"
            yield Comparison(again, share, f"{fault} {step}: it must follow from it")


class LossTermTrial(TrainingTrial):
    """A loss term of five tokens."""

    def __init__(self, config: RowConfig, sources: Path) -> None:
        super().__init__(config, sources)
        term = load_function(config.loss_term, sources)
        assert term is not None
        self.term = term
        self.logits = torch.linspace(-2.0, 3.0, 5 * 11).cos().view(5, 11).requires_grad_()
        self.targets = torch.tensor([4, 10, 4, 6, 7])

    def results(self) -> None:
        """Refuse a value that is no number of the logits, with finite gradients."""
        before = self.logits.detach().clone()
        value = self._value(slice(0, 5))
        if not value.requires_grad:
            raise ClassFault("does not depend on the logits, or its gradient is cut off")
        value.backward()
        if self.logits.grad is None or not self.logits.grad.isfinite().all():
            raise ClassFault("has a gradient that is not finite")
        if not torch.equal(before, self.logits):
            raise ClassFault("changes the logits in place")

    def steps(self) -> Iterator[Comparison]:
        """The value of five tokens, and of two and three of them."""
        whole, first, second = map(self._value, (slice(0, 5), slice(0, 2), slice(2, 5)))
        yield Comparison(
            first + second,
            whole,
            f"{whole.item():.6g} for five tokens, and {first.item():.6g} + {second.item():.6g} for "
            "two and three of them: return the sum over tokens, and no mean",
            tolerance=1e-5,  # a term may be small
        )

    def repetitions(self) -> Iterator[Comparison]:
        """The value of five tokens, asked for twice."""
        again, value = self._value(slice(0, 5)), self._value(slice(0, 5))
        yield Comparison(again, value, "returns another number when asked again")

    def _value(self, rows: slice) -> Tensor:
        value: object = self.term(self.logits[rows], self.targets[rows])
        if isinstance(value, Tensor) and value.shape == () and value.isfinite():
            return value
        shown = type(value).__name__
        if isinstance(value, Tensor):
            shown = f"shape {tuple(value.shape)}" if value.dim() else f"{value.item()}"
        raise ClassFault(f"returns {shown}, and not a finite number as a tensor without dimensions")


TRIALS: dict[str, type[TrainingTrial]] = {
    "optimizer": OptimizerTrial,
    "schedule": ScheduleTrial,
    "loss_term": LossTermTrial,
}
