"""Exceptions.

AblateError     errors that the user can fix: one line for each, without a traceback
|- StudyError   in a study file or in --set, each with file:line:column
|- UsageError   an invalid option, row, seed or run on the command line
|- DataError    a missing or malformed corpus, with file and line
|- StoreError   results on disk that cannot be read, are damaged, or belong to other data
|  |- Damaged   a file whose content does not match its hash, or whose path is not a file
Interrupted     a signal has stopped the process; all progress is saved and can be resumed

`ValueError` and `assert` signal errors of the caller and broken invariants. They show a traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

# Least similarity of two names of which one is meant by the other (difflib's ratio): that of four
# letters with one wrong. qk_norm and norm have 0.73.
NEAR = 0.75

EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141  # as if SIGPIPE had ended the process


# Name and password of an address, and values of its query whose name says that they are secret.
_LOGIN = re.compile(r"(?<=://)[^/\s'\"<>]*@")
_SECRET = re.compile(
    r"([?&;][\w.-]*(?:token|key|secret|passw(?:or)?d|pwd|sig|signature|credential)[\w.-]*=)"
    r"[^&;#\s'\"<>]+",
    re.I,
)


def without_secrets(text: str) -> str:
    """Text in which addresses have no name, password or key: `https://…@host/?token=…`."""
    return _SECRET.sub(r"\1…", _LOGIN.sub("…@", text))


class AblateError(Exception):
    """Base class of errors that the user can fix.

    Attributes:
        lines: one complete message per error, without the secrets of addresses.
    """

    def __init__(self, *lines: str) -> None:
        self.lines = tuple(map(without_secrets, lines))
        super().__init__("\n".join(self.lines))


class StudyError(AblateError):
    """Errors in a study file or in `--set`: all of them, in the order of the file."""


class UsageError(AblateError):
    """An invalid option or argument on the command line."""


class DataError(AblateError):
    """A missing or malformed corpus."""


class StoreError(AblateError):
    """Results on disk that cannot be read, are damaged, or belong to other data."""


class Damaged(StoreError):  # noqa: N818
    """A file whose content does not match its hash, or whose path is not a file."""


class Interrupted(Exception):  # noqa: N818
    """A signal has stopped the process. All progress is saved, and the same command resumes it."""


def nearest_name(given: str, allowed: Iterable[str]) -> str | None:
    """The name in `allowed` that is probably meant: one with nearly the letters of `given`, or
    one that has all of its words, as `train_steps` has that of `steps`. Case is ignored.
    """
    names = {name.lower(): name for name in allowed}
    given = given.lower()
    near = get_close_matches(given, names, n=1, cutoff=NEAR if len(given) > 3 else 0.6)
    if not near:
        words = set(given.split("_"))
        with_words = [name for name in names if words < set(name.split("_"))]
        near = get_close_matches(given, with_words, n=1, cutoff=0.0)
    return names[near[0]] if near else None


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean "dropout"?` for the name that is probably meant, or ""."""
    nearest = nearest_name(given, allowed)
    if nearest is None:
        return ""
    return f'; did you mean "{nearest}"?'


def did_you_mean_path(path: Path, is_candidate: Callable[[Path], bool]) -> str:
    """Return `; did you mean "studies/m30k.yaml"?` for the file or folder beside `path` that is
    probably meant, or "".

    Args:
        path: does not exist.
        is_candidate: whether an entry of the same folder may be meant.
    """
    try:
        beside = {entry.stem: entry for entry in path.parent.iterdir() if is_candidate(entry)}
    except OSError:
        return ""
    # Without the endings, which would make any two studies similar.
    nearest = nearest_name(path.stem, beside)
    if nearest is None:
        return ""
    return f'; did you mean "{path.with_name(beside[nearest].name)}"?'


def listed(names: Iterable[object]) -> str:
    """Join names for a message: `a, b or c`."""
    *words, last = map(str, names)
    if not words:
        return last
    return f"{', '.join(words)} or {last}"


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Message for an unknown name: `unknown field "drop_out"; did you mean "dropout"?`, or all that
    are allowed.
    """
    allowed = tuple(allowed)
    nearest = did_you_mean(name, allowed)
    return f'unknown {kind} "{name[:60]}"{nearest or "; allowed: " + ", ".join(allowed)}'
