"""The exception tree.

AblateError             every error that a user can mend; printed as one line a fault, no traceback
|- StudyError           faults in a study file or in --set, each with file:line:column
|- UsageError           a wrong option, row, seed or run on the command line
|- DataError            a corpus that is missing or malformed, with file and line
|- StoreError           results on disk that cannot be read, are damaged, or belong to other data
|  |- Damaged           a file on disk that is not what was written
Interrupted             a signal asked this process to stop; all is saved and can be resumed

`ValueError` and `assert` are for callers' mistakes and broken invariants: they do show a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class AblateError(Exception):
    """An error that the user can mend. `lines` holds one complete message a fault."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class StudyError(AblateError):
    """Faults in a study file: all of them at once, in the file's order."""


class UsageError(AblateError):
    """A wrong option or argument on the command line."""


class DataError(AblateError):
    """A corpus that is missing or malformed."""


class StoreError(AblateError):
    """Results on disk that cannot be used as they are."""


class Damaged(StoreError):  # noqa: N818
    """A file whose content is not what was written, as its hash tells: never to be believed."""


class Interrupted(Exception):  # noqa: N818
    """A signal asked for a stop; the state is saved and the same command resumes it."""


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """`; did you mean "dropout"?` when a name in `allowed` is near `given` in any case, else an empty string."""
    names = {name.lower(): name for name in allowed}
    near = get_close_matches(given.lower(), list(names), n=1, cutoff=0.6)
    return f'; did you mean "{names[near[0]]}"?' if near else ""


def listed(names: Iterable[object]) -> str:
    """The names in a row for a message: `a, b or c`."""
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
