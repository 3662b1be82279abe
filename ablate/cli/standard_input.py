"""Read and check text from standard input and from options."""

from __future__ import annotations

import os
import stat
import sys
from codecs import BOM_UTF8

from ablate.errors import DataError, Fault, UsageError


def input_lines() -> list[str]:
    """The lines of standard input, without a byte-order mark. They are decoded here, because Python
    accepts invalid UTF-8 in some locales.

    Raises:
        DataError: a line is not valid UTF-8, or standard input is closed.
    """
    if sys.stdin is None:
        remedy = "text is read from it, as in `... < FILE`"
        raise DataError(Fault("standard input is closed", remedy=remedy))
    lines = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            content = line.removeprefix(BOM_UTF8) if number == 1 else line
            lines.append(content.decode().rstrip("\r\n"))
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
        pass  # not a file, as if a Python program calls `main`
    return "\n".join(input_lines()) or None


def checked_text(text: str, option: str) -> str:
    """Check that the text of an option is valid UTF-8, and return it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{option}: not valid UTF-8") from None
    return text
