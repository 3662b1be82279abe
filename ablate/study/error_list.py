"""The errors of a study file, all of them reported at once."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import StudyError
from ablate.formatting import plural
from ablate.study.yaml_nodes import Mark

MAX_PRINTED = 100  # errors in the message
MAX_ERRORS = 1000  # errors after which reading stops


class ErrorList:
    """Errors with their positions; each line once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marks: dict[str, Mark] = {}  # complete line -> position

    def __len__(self) -> int:
        return len(self._marks)

    def report(self, mark: Mark, message: str) -> None:
        """Record an error; reading goes on, so that all errors are reported at once.

        Raises:
            StudyError: there are too many errors to go on.
        """
        self._marks.setdefault(mark.error_line(message), mark)
        if len(self) >= MAX_ERRORS:
            raise self.as_error()

    def as_error(self) -> StudyError:
        """The errors in the file's order, at most MAX_PRINTED of them."""
        lines = sorted(
            self._marks, key=lambda line: (self._marks[line].line, self._marks[line].column)
        )
        more = len(lines) - MAX_PRINTED
        if more <= 0:
            return StudyError(*lines)
        stopped = " (reading stopped there)" if len(lines) >= MAX_ERRORS else ""
        return StudyError(
            *lines[:MAX_PRINTED], f"{self.path}: {plural(more, 'more error')}{stopped}"
        )
