"""Collect the errors of a study file, to report all of them at once."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import Fault, Mark, StudyError, as_fault
from ablate.formatting import plural

MAX_PRINTED = 100  # number of errors in the message
MAX_ERRORS = 1000  # number of errors after which reading stops


class ErrorList:
    """Faults with their positions, without duplicates."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._faults: dict[Fault, Mark] = {}  # fault -> its position

    def __len__(self) -> int:
        return len(self._faults)

    def report(self, mark: Mark, fault: Fault | str) -> None:
        """Record a fault at a position. A fault that has a place, such as a line of a user's class,
        keeps it.

        Raises:
            StudyError: the number of faults has reached MAX_ERRORS.
        """
        found = as_fault(fault)
        self._faults.setdefault(found if found.place else found.located(mark), mark)
        if len(self) >= MAX_ERRORS:
            raise self.as_error()

    def as_error(self) -> StudyError:
        """The exception with the faults in file order, at most MAX_PRINTED of them."""
        faults = sorted(
            self._faults, key=lambda fault: (self._faults[fault].line, self._faults[fault].column)
        )
        more = len(faults) - MAX_PRINTED
        if more <= 0:
            return StudyError(*faults)
        stopped = " (reading stopped there)" if len(faults) >= MAX_ERRORS else ""
        return StudyError(
            *faults[:MAX_PRINTED], f"{self.path}: {plural(more, 'more error')}{stopped}"
        )
