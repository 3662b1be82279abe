"""The command line: parse, call, print. One command a file; `main` is the entry point."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from ablate.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, AblateError, Interrupted


def main() -> None:
    """Run the command line and exit: 0 done, 1 a run failed or diverged, 2 bad usage or input, 130 interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        from ablate.cli.app import run_command

        sys.exit(run_command())
    except AblateError as error:
        for line in error.lines:
            print(line, file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except Interrupted:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has ended, as `| head` does
        # Python flushes standard output at exit, and would report the error once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a folder without write permission, a full disk
        print(f"{error.filename or 'ablate'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
