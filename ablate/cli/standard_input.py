"""Text on standard input, and the option that takes it on the command line."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

from ablate.cli.options import find_finished_run
from ablate.errors import AblateError, DataError, UsageError
from ablate.store import Results, RunFolder

if TYPE_CHECKING:
    from ablate.study import Row


def input_lines() -> list[str]:
    """Lines of standard input, decoded here: Python accepts invalid UTF-8 in some locales."""
    if sys.stdin is None:
        raise DataError("standard input is closed; text is read from it, as in `... < FILE`")
    lines = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            lines.append(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input:{number}: not valid UTF-8 (byte {error.start + 1} of the line)"
            ) from None
    return lines


def piped_text() -> str | None:
    """The text piped to standard input, without the last line break; None if there is none."""
    if sys.stdin is None:
        return None
    try:
        if stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):  # a terminal, or the null device
            return None
    except OSError:
        pass  # a stream without a file, as of a program that calls `main`
    return "\n".join(input_lines()) or None


def checked_text(text: str, option: str) -> str:
    """The text of an option, whose bytes must be valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option}: not valid UTF-8") from None
    return text


def row_for_text(
    results: Results, run: str, row: str | None, seed: int | None, option: str
) -> tuple[RunFolder, Row | None]:
    """As `find_finished_run`; an argument that names no row may be a text, which has an option."""
    try:
        return find_finished_run(results, run, row, seed)
    except AblateError as error:
        if row is None or (not isinstance(error, UsageError) and run.endswith((".yaml", ".yml"))):
            raise
        *before, last = error.lines
        raise UsageError(*before, f'{last}; if "{row}" is a text: {option}') from None
