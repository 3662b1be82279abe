"""The five properties of a part, and the check of a user's class for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ablate.custom.faults import ClassFault, faults_of, placed
from ablate.custom.reference import Reference
from ablate.errors import StudyError


@dataclass(frozen=True)
class Comparison:
    """A result that is computed in two ways, which must agree.

    result: the result in one way.
    expected: the result in the other way.
    fault: the fault of the part if they differ.
    methods: methods of the part that may be the cause, the likeliest first.
    tolerance: tolerance of rounding, as a share of the largest expected number or of 1, whichever
        is larger.
    """

    result: Tensor
    expected: Tensor
    fault: str
    methods: tuple[str, ...] = ()
    tolerance: float = 1e-3

    @property
    def is_close(self) -> bool:
        """Whether result and expected result are equal up to rounding."""
        x, y = self.result, self.expected
        tolerance = self.tolerance * max(1.0, float(y.abs().max()))
        return x.shape == y.shape and torch.allclose(x, y, atol=tolerance)


class PropertyCheck:
    """A part at work on small inputs. The subclass for a kind of part overrides the methods of the
    properties that the kind must have.
    """

    def run(self) -> None:
        """Check the properties of the part.

        Raises:
            ClassFault: the part lacks a property.
        """
        self.check_results()
        with torch.no_grad():  # with gradients, some processors sum in another order
            _refuse_unequal(self.compare_repetitions(), exact=True)
            for _ in self.vary_parameters():
                _refuse_unequal(self.compare_futures())
                _refuse_unequal(self.compare_padding())
                _refuse_unequal(self.compare_steps())

    def check_results(self) -> None:
        """Results have the type, the shape and the range that the program expects.

        Raises:
            ClassFault: a result is wrong.
        """

    def compare_futures(self) -> Iterable[Comparison]:
        """The past cannot see the future: compare early results for two inputs that differ only in
        later tokens.
        """
        return ()

    def compare_padding(self) -> Iterable[Comparison]:
        """Padding changes nothing: compare the results for items in one batch with the results for
        each item alone.
        """
        return ()

    def compare_steps(self) -> Iterable[Comparison]:
        """Steps equal the whole: compare results that are computed piece by piece with results
        computed at once.
        """
        return ()

    def compare_repetitions(self) -> Iterable[Comparison]:
        """Resume is exact: compare results with the same results computed again, or resumed from a
        checkpoint.
        """
        return ()

    def vary_parameters(self) -> Iterator[None]:
        """Yield with the initial parameters, then with other parameters. The initial parameters may
        hide a fault, such as a gate that begins at 0.
        """
        yield


def _refuse_unequal(comparisons: Iterable[Comparison], exact: bool = False) -> None:
    for comparison in comparisons:
        is_equal = comparison.is_close
        if exact:  # equal to the bit
            is_equal = torch.equal(comparison.result, comparison.expected)
        if not is_equal:
            raise ClassFault(comparison.fault, *comparison.methods)


def check_classes(
    classes: Mapping[str, Reference], sources: Path, make: Callable[[], PropertyCheck]
) -> None:
    """Check a user's classes together.

    Args:
        classes: references to the classes, by the fields that name them.
        sources: folder with the sources of classes.
        make: makes the check, in which the classes are at work.

    Raises:
        StudyError: a class fails, or lacks a property; one line with file and line number.
    """
    references = list(classes.values())
    with faults_of(references, sources):
        try:
            make().run()
        except StudyError as error:
            raise placed(error, references, sources) from None
