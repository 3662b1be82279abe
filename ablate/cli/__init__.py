"""The command line: parse, call, print. One command a file; `main` is the entry point."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from itertools import pairwise
from types import FrameType

from ablate import stdio
from ablate.errors import (
    EXIT_INTERRUPTED,
    EXIT_READER_GONE,
    AblateError,
    Interrupted,
    MachineError,
    UsageError,
)


def main() -> None:
    """Run the command line and exit.

    The exit code is 0 if the command is done, 1 if a run has failed, 2 for wrong usage or a wrong
    study, 3 for data, 4 for this machine or the results that it stores, 130 if a signal has
    interrupted the command, 141 if the reader of a pipe has ended.
    """
    stdio.prepare()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    code = _exit_code()
    stdio.finish()
    sys.exit(code)


def _exit_code() -> int:
    try:
        from ablate.cli.app import run_command

        code = run_command()
        sys.stdout.flush()  # so that an error of the last write is caught here
        return code
    except AblateError as error:
        return _refused(error)
    except Interrupted:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has ended, as `| head` does
        return EXIT_READER_GONE
    # Raised for arguments only: printing escapes what it cannot encode.
    except UnicodeEncodeError as error:
        # Python represents bytes of the command line that are not text by these surrogates.
        has_raw_bytes = any("\udc80" <= character <= "\udcff" for character in error.object)
        what = "is not text" if has_raw_bytes else "is not a file name"
        return _refused(UsageError(f'"{error.object}": {what} in the encoding {error.encoding}'))
    except OSError as error:  # a folder without write permission, a full disk
        reason = f"{error.filename or 'ablate'}: {error.strerror or error}"
        return _refused(MachineError(reason))


def _refused(error: AblateError) -> int:
    """Print a line for each fault, and with `--format json` the error as data.

    Returns:
        The exit code for the error.
    """
    with suppress(OSError):  # standard output may be closed or full
        if "--format=json" in sys.argv or ("--format", "json") in pairwise(sys.argv):
            if sys.argv[1:2] == ["run"]:  # `run` prints a line for each event
                stdio.print_json({"event": "error", **error.as_json()}, in_one_line=True)
            else:
                stdio.print_json(error.as_json())
    with suppress(OSError):
        for line in error.lines:
            stdio.echo(line, err=True)
    return error.exit_code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted
