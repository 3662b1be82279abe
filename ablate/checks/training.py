"""Check a user's optimizer, schedule and loss term before training, without a model."""

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

from ablate.checks.properties import Comparison, PropertyCheck, check_classes
from ablate.config import RowConfig
from ablate.custom.faults import ClassFault, FirstFaults, describe
from ablate.custom.loading import load_function
from ablate.custom.reference import is_custom, parse_reference
from ablate.errors import StudyError
from ablate.formatting import single_line
from ablate.training.optimizer import Optimizer, make_optimizer
from ablate.training.schedule import SCHEDULES, learning_rate, schedule_of

STEPS = 24  # number of optimizer steps
# Number of steps before the resume. Not a multiple of intervals at which an optimizer may renew its
# state, such as 5 or 10.
RESUMED = 13
# A schedule returns shares of the peak learning rate. If all are below this share, or at most the
# peak itself where that is `_MAX_RATE` or less, it returns rates.
_LEAST_SHARE = 0.01
_MAX_RATE = 0.1
_MAX_SHARE = 10.0  # a schedule with higher shares returns percent


def check_training(config: RowConfig, sources: Path) -> None:
    """Check the optimizer, the schedule and the loss term of a row, unless they are built in.

    Raises:
        StudyError: classes or functions fail, or lack a property; the first fault of each.
    """
    faults = FirstFaults()
    for field, make_check in CHECKS.items():
        value = getattr(config, field)
        reference = parse_reference(value)
        with faults.collect():
            if reference is not None:
                check_classes({field: reference}, sources, partial(make_check, config, sources))
            elif is_custom(value):  # a class of an installed package
                _check_installed(field, value, make_check(config, sources))
    faults.refuse()


def _check_installed(field: str, value: str, check: TrainingCheck) -> None:
    try:
        check.run()
    except StudyError:
        raise
    except ClassFault as fault:
        raise StudyError(f"{field}={value}: {fault.text}") from None
    except (Exception, SystemExit) as error:
        raise StudyError(f"{field}={value}: {describe([], error)}") from None


class TrainingCheck(PropertyCheck):
    """The optimizer, the schedule or the loss term of a row. `sources` is the folder with the
    sources of the users' classes.
    """

    def __init__(self, config: RowConfig, sources: Path) -> None:
        self.config = config
        self.sources = sources


class OptimizerCheck(TrainingCheck):
    """An optimizer that makes 24 steps on a matrix and a vector."""

    def check_results(self) -> None:
        """Refuse weights that are not finite, or that do not depend on the learning rate."""
        weights = self._trained()
        if not weights.isfinite().all():
            raise ClassFault("gives weights that are not finite, with finite gradients")
        if torch.equal(weights, self._trained(rate=0.02)):
            raise ClassFault(
                'gives the same weights with twice the learning rate: read `group["lr"]` in each '
                "step, which follows the schedule and the group"
            )

    def compare_repetitions(self) -> Iterator[Comparison]:
        """Compare the weights after all steps with the weights of a repeated training, and of a
        training that resumes from a checkpoint.
        """
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
            "a resumed training differs from an uninterrupted training; keep everything on which a "
            "step depends in `self.state[parameter]` or `self.param_groups`",
        )

    def _trained(self, rate: float = 0.01, resumed: bool = False) -> Tensor:
        """Make all steps, and return the weights. With `resumed`, the state passes through the
        bytes of a checkpoint after `RESUMED` steps.
        """
        model = _Small()
        optimizer = make_optimizer(model, self.config, self.sources)
        _train(model, optimizer, range(RESUMED), rate)
        if resumed:
            saved = to_bytes(optimizer.state())  # raises an error for tensors that share memory
            optimizer = make_optimizer(model, self.config, self.sources)
            optimizer.load(from_bytes(saved))
        _train(model, optimizer, range(RESUMED, STEPS), rate)
        return nn.utils.parameters_to_vector(model.parameters()).detach()


class _Small(nn.Module):
    """A matrix and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.linspace(-1.0, 1.0, 6).view(3, 2))
        self.vector = nn.Parameter(torch.linspace(-1.0, 1.0, 3))


def _train(model: nn.Module, optimizer: Optimizer, steps: range, rate: float) -> None:
    for step in steps:
        for parameter in model.parameters():
            parameter.grad = torch.cos(parameter.detach() + step)
        optimizer.step(rate * (step % 4 + 1))


class ScheduleCheck(TrainingCheck):
    """A schedule, called for up to a hundred steps from the end of the warm-up to the last step."""

    def __init__(self, config: RowConfig, sources: Path) -> None:
        super().__init__(config, sources)
        self.schedule = schedule_of(config, sources)
        begin = config.warmup_steps
        self.last = config.train_steps
        if self.last is None and config.epochs is not None:
            self.last = 10 * begin  # the real number depends on the corpus; any number will do
        end = max(begin + 1, self.last or 10 * begin)
        interval = max(1, (end - begin) // 50)
        self.called_steps = (begin, *range(begin + 1, end, interval), end)

    def check_results(self) -> None:
        """Refuse results that are not a share of the peak learning rate."""
        highest = 0.0
        for step in self.called_steps:
            share = self._share(step)
            if not isinstance(share, (int, float)):  # the metrics log has it as JSON
                raise ClassFault(
                    f"returns {share!r} at step {step}, which is not an int or float of Python"
                )
            rate = learning_rate(self.config, step, self.last, self.schedule)
            if not 0.0 <= rate < math.inf:
                raise ClassFault(
                    f"the share of the peak at step {step} of {self.last} gives the learning rate "
                    f"{rate:.6g}"
                )
            highest = max(highest, share)
            if share > _MAX_SHARE:
                raise ClassFault(
                    f"returns {share:.6g} at step {step}: return a share of the peak "
                    "learning_rate, such as 1.0"
                )
        peak = learning_rate(self.config, self.called_steps[0], self.last, SCHEDULES["constant"])
        # A schedule may compute the rate of the peak with another rounding.
        is_rate = peak <= _MAX_RATE and highest <= peak * 1.000001
        if highest < _LEAST_SHARE or is_rate:
            raise ClassFault(
                f"returns at most {highest:.6g}: return a share of the peak learning_rate, such as "
                "1.0, not a learning rate"
            )

    def _share(self, step: int) -> object:
        """The share at a step, as the schedule returns it."""
        try:
            return self.schedule(self.config, step, self.last)
        except TypeError:
            if not self._needs_rate(step):
                raise
            raise ClassFault(
                "computes with config.learning_rate, which this row does not set: return a share "
                "of the peak learning_rate, such as 1.0, not a learning rate"
            ) from None

    def _needs_rate(self, step: int) -> bool:
        """Whether the schedule, which has failed, works if the row sets `learning_rate`."""
        if self.config.learning_rate is not None:
            return False
        with_rate = self.config.model_copy(update={"learning_rate": 0.001})
        try:
            self.schedule(with_rate, step, self.last)
        except Exception:
            return False
        return True

    def compare_repetitions(self) -> Iterator[Comparison]:
        """Compare two calls for each step."""
        for step in self.called_steps:
            again, share = (
                torch.tensor(self.schedule(self.config, step, self.last), dtype=torch.float64)
                for _ in range(2)
            )
            fault = (
                f"returns another number when called again for step {step}: the number must depend "
                "only on the arguments"
            )
            yield Comparison(again, share, fault)


class LossTermCheck(TrainingCheck):
    """A loss term, called for five tokens and for some of them."""

    def __init__(self, config: RowConfig, sources: Path) -> None:
        super().__init__(config, sources)
        term = load_function(config.loss_term, sources)
        assert term is not None
        self.term = term
        self.logits = torch.linspace(-2.0, 3.0, 5 * 11).cos().view(5, 11).requires_grad_()
        self.targets = torch.tensor([4, 10, 4, 6, 7])

    def check_results(self) -> None:
        """Refuse a value without finite gradients for the logits, and changes of the logits."""
        before = self.logits.detach().clone()
        value = self._value(slice(0, 5))
        if not value.requires_grad:
            raise ClassFault("does not depend on the logits, or its gradient is cut off")
        value.backward()
        if self.logits.grad is None or not self.logits.grad.isfinite().all():
            raise ClassFault("has a gradient that is not finite")
        if not torch.equal(before, self.logits):
            raise ClassFault("changes the logits in place")

    def compare_steps(self) -> Iterator[Comparison]:
        """Compare the value for five tokens with the values for two and for three of them."""
        whole = self._value(slice(0, 5))
        first = self._value(slice(0, 2))
        second = self._value(slice(2, 5))
        yield Comparison(
            first + second,
            whole,
            f"returns {whole.item():.6g} for five tokens, and {first.item():.6g} + "
            f"{second.item():.6g} for two and three of them: return the sum over tokens, not a "
            "mean",
            tolerance=1e-5,  # a loss term may be small
        )

    def compare_repetitions(self) -> Iterator[Comparison]:
        """Compare two calls for five tokens."""
        again, value = self._value(slice(0, 5)), self._value(slice(0, 5))
        yield Comparison(again, value, "returns another number when called again")

    def _value(self, rows: slice) -> Tensor:
        value: object = self.term(self.logits[rows], self.targets[rows])
        if isinstance(value, Tensor) and value.shape == () and value.isfinite():
            return value
        shown = type(value).__name__
        if isinstance(value, Tensor):
            shown = f"shape {tuple(value.shape)}" if value.dim() else f"{value.item()}"
        raise ClassFault(f"returns {shown}, not a finite number as a tensor without dimensions")


CHECKS: dict[str, type[TrainingCheck]] = {
    "optimizer": OptimizerCheck,
    "schedule": ScheduleCheck,
    "loss_term": LossTermCheck,
}
