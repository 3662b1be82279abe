"""Run the command line in this process, which is faster than starting a new one."""

from __future__ import annotations

import functools
import io
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

import typer

from ablate.cli import main

# Typer builds every command anew for each call, which takes longer than most commands do.
get_command = functools.cache(typer.main.get_command)


REFUSALS = (2, 3, 4)  # exit codes: usage or study, data, machine


@dataclass(frozen=True)
class Done:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def printed(self) -> str:
        """Standard output without faults, which `--format json` prints there as data."""
        return "" if self.out.startswith('{\n "error": ') else self.out

    @property
    def refusal(self) -> str:
        """The line of a command that was refused, which must have printed nothing else."""
        assert (self.code in REFUSALS, self.printed) == (True, ""), (self.code, self.out, self.err)
        (line,) = self.err.splitlines()
        return line


def inside(*words: object, stdin: bytes = b"") -> Done:
    """Run the command line in this process. An uncaught exception, a traceback for the user, fails
    the test.
    """
    out, err, handler, code = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGINT), 0
    given = io.TextIOWrapper(io.BytesIO(stdin))
    try:
        with (
            patch.object(sys, "argv", ["ablate", *map(str, words)]),
            patch.object(sys, "stdin", given),
            patch("typer.main.get_command", get_command),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        signal.signal(signal.SIGINT, handler)
    return Done(code, out.getvalue(), err.getvalue())
