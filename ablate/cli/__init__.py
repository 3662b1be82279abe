"""The command line: parse, call, print. One command a file; `main` is the entry point."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from types import FrameType

from ablate import streams
from ablate.errors import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    AblateError,
    Interrupted,
)
from ablate.formatting import printable


def main() -> None:
    """Run the command line and exit.

    0 done, 1 a run failed or diverged, 2 bad usage or input, 130 interrupted, 141 the reader of a
    pipe has ended.
    """
    streams.prepare()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    code = _exit_code()
    streams.finish()
    sys.exit(code)


def _exit_code() -> int:
    try:
        from ablate.cli.app import run_command

        code = run_command()
        sys.stdout.flush()  # so that an error of the last write is reported here
        return code
    except AblateError as error:
        if _asks_for_json(sys.argv):
            faults = [fault.as_json() for fault in error.faults]
            with suppress(OSError):
                streams.print_json({"error": type(error).__name__, "faults": faults})
        return _refused(*error.lines)
    except Interrupted:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has ended, as `| head` does
        return EXIT_READER_GONE
    except UnicodeEncodeError as error:  # of an argument: text that is printed is escaped instead
        # Python keeps bytes of the command line that are not text as these surrogates, which are
        # the same bytes in a file's name.
        has_raw_bytes = any("\udc80" <= character <= "\udcff" for character in error.object)
        what = "is not text" if has_raw_bytes else "is not a file name"
        return _refused(f'"{error.object}": {what} in the encoding {error.encoding}')
    except OSError as error:  # a folder without write permission, a full disk
        return _refused(f"{error.filename or 'ablate'}: {error.strerror or error}")


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether a command line has `--format json`; faults are then data, too."""
    return "--format=json" in words or ("--format", "json") in pairwise(words)


def _refused(*lines: str) -> int:
    """Print a line for each error, and return the exit code for them."""
    with suppress(OSError):  # standard error is closed or full, too
        for line in lines:
            streams.echo(printable(line), err=True)
    return EXIT_BAD_INPUT


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
