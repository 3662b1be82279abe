"""The command line: parse, call, print. One verb a file."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from ablate.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, AblateError, Interrupted


def main() -> None:
    """Run the command line; the exit codes are the contract's."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        from ablate.cli.app import call

        sys.exit(call())
    except AblateError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except Interrupted:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a folder that cannot be written, a full disk
        print(f"{error.filename or 'ablate'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
