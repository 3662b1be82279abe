"""The five properties of a part, and how the trial of a part is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from ablate.errors import StudyError
from ablate.own.faults import ClassFault, faults_of, placed
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
    """A part at work on small inputs. A kind of part overrides the methods of the properties that
    it must have.
    """

    def results(self) -> None:
        """Results have the type, the shape and the range that are read: refuse others.

        Raises:
            ClassFault: a result is wrong.
        """

    def futures(self) -> Iterable[Comparison]:
        """The past cannot see the future: results for inputs that differ in what comes later."""
        return ()

    def paddings(self) -> Iterable[Comparison]:
        """Padding changes nothing: results for inputs that stand together, and alone."""
        return ()

    def steps(self) -> Iterable[Comparison]:
        """Steps equal the whole: results that are computed step by step, and at once."""
        return ()

    def repetitions(self) -> Iterable[Comparison]:
        """Resume is exact: results that are computed again, or from what a checkpoint holds."""
        return ()

    def parameters(self) -> Iterator[None]:
        """Set the initial parameters, and others: a gate that begins at 0 would hide a fault."""
        yield


def check(trial: Trial) -> None:
    """Check the properties of a part.

    Raises:
        ClassFault: it lacks one of them.
    """
    trial.results()
    with torch.no_grad():  # with gradients, some processors round sums in another order
        _refuse_unequal(trial.repetitions(), exact=True)
        for _ in trial.parameters():
            _refuse_unequal(chain(trial.futures(), trial.paddings(), trial.steps()))


def _refuse_unequal(comparisons: Iterable[Comparison], exact: bool = False) -> None:
    for comparison in comparisons:
        is_equal = comparison.is_close
        if exact:  # to the bit
            is_equal = torch.equal(comparison.result, comparison.expected)
        if not is_equal:
            raise ClassFault(comparison.fault, *comparison.methods)


def check_classes(
    classes: Mapping[str, Reference], sources: Path, make: Callable[[], Trial]
) -> None:
    """Check the classes of a row that a trial has, by the fields that name them.

    Raises:
        StudyError: they lack a property, or fail; in one line, with file and line.
    """
    references = list(classes.values())
    with faults_of(references, sources):
        try:
            check(make())
        except StudyError as error:
            raise placed(error, references, sources) from None
