"""The five properties of a part, each as one function. The table of kinds (`ablate/own/kinds.py`)
says which properties a part must have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ablate.errors import StudyError
from ablate.own.faults import ClassFault, faults_of, placed
from ablate.own.kinds import KINDS, Property
from ablate.own.reference import Reference


@dataclass(frozen=True)
class Comparison:
    """A result that is computed in two ways.

    result, expected: what must be equal.
    fault: what a difference shows.
    methods: those that may be the cause, the likeliest first.
    tolerance: of rounding, as a share of the largest expected number, taken as 1 at least.
    """

    result: Tensor
    expected: Tensor
    fault: str
    methods: tuple[str, ...] = ()
    tolerance: float = 1e-3

    @property
    def is_close(self) -> bool:
        """Whether both are equal up to rounding."""
        x, y = self.result, self.expected
        tolerance = self.tolerance * max(1.0, float(y.abs().max()))
        return x.shape == y.shape and torch.allclose(x, y, atol=tolerance)


class Trial:
    """A part at work on small inputs. A kind of part overrides the methods of its properties."""

    def results(self) -> None:
        """Compute results with gradients, and refuse a wrong one."""
        raise NotImplementedError

    def futures(self) -> Iterator[Comparison]:
        """Results for inputs that differ in what comes later."""
        raise NotImplementedError

    def paddings(self) -> Iterator[Comparison]:
        """Results for inputs that stand together, and alone."""
        raise NotImplementedError

    def steps(self) -> Iterator[Comparison]:
        """Results that are computed step by step, and at once."""
        raise NotImplementedError

    def repetitions(self) -> Iterator[Comparison]:
        """Results that are computed again, or from what a checkpoint holds."""
        raise NotImplementedError

    def parameters(self) -> Iterator[None]:
        """Set the initial parameters, and others: a gate that begins at 0 would hide a fault."""
        yield


def results_have_their_shapes(trial: Trial) -> None:
    """Results have the type, the shape and the range that are read."""
    trial.results()


def the_past_cannot_see_the_future(trial: Trial) -> None:
    """What comes later changes nothing before it."""
    _refuse_unequal(trial.futures())


def padding_changes_nothing(trial: Trial) -> None:
    """An item gives the same result alone and beside a longer one."""
    _refuse_unequal(trial.paddings())


def steps_equal_the_whole(trial: Trial) -> None:
    """The parts of an input give what the whole gives."""
    _refuse_unequal(trial.steps())


def resume_is_exact(trial: Trial) -> None:
    """The same is computed again to the bit: nothing is random, and checkpoints hold all of it."""
    for comparison in trial.repetitions():
        if not torch.equal(comparison.result, comparison.expected):
            raise ClassFault(comparison.fault, *comparison.methods)


def _refuse_unequal(comparisons: Iterable[Comparison]) -> None:
    for comparison in comparisons:
        if not comparison.is_close:
            raise ClassFault(comparison.fault, *comparison.methods)


def check(trial: Trial, properties: Collection[Property]) -> None:
    """Check the properties of a part.

    Raises:
        ClassFault: it lacks one of them.
    """
    if Property.SHAPES in properties:
        results_have_their_shapes(trial)
    with torch.no_grad():  # with gradients, some processors round sums in another order
        if Property.RESUME in properties:
            resume_is_exact(trial)
        for _ in trial.parameters():
            if Property.FUTURE in properties:
                the_past_cannot_see_the_future(trial)
            if Property.PADDING in properties:
                padding_changes_nothing(trial)
            if Property.STEPS in properties:
                steps_equal_the_whole(trial)


def check_classes(
    classes: Mapping[str, Reference], sources: Path, make: Callable[[], Trial]
) -> None:
    """Check the classes of a row that a trial has, by the fields that name them.

    Raises:
        StudyError: they lack a property, or fail; in one line, with file and line.
    """
    references = list(classes.values())
    properties = {property for field in classes for property in KINDS[field].properties}
    with faults_of(references, sources):
        try:
            check(make(), properties)
        except StudyError as error:
            raise placed(error, references, sources) from None
