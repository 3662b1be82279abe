"""The errors of a study file, all of them reported at once."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import Fault, Mark, StudyError, as_fault
from ablate.formatting import plural

MAX_PRINTED = 100  # errors in the message
MAX_ERRORS = 1000  # errors after which reading stops


class ErrorList:
    """Faults with their positions; each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._faults: dict[Fault, Mark] = {}  # with their positions

    def __len__(self) -> int:
        return len(self._faults)

    def report(self, mark: Mark, fault: Fault | str) -> None:
        """Record a fault; reading goes on, so that all are reported at once.

        Raises:
            StudyError: there are too many faults to go on.
        """
        self._faults.setdefault(as_fault(fault).located(mark), mark)
        if len(self) >= MAX_ERRORS:
            raise self.as_error()

    def as_error(self) -> StudyError:
        """The faults in the file's order, at most MAX_PRINTED of them."""
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
