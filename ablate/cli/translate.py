"""`ablate translate`: standard input to standard output with a trained run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, RunId, find_run
from ablate.errors import DataError
from ablate.store import Results


def command(
    run: RunId,
    results: ResultsRoot = DEFAULT_RESULTS,
    beam: Annotated[int, typer.Option("--beam", metavar="K", min=1, max=1024, help="Width of the beam.")] = 4,
    alpha: Annotated[
        float, typer.Option("--alpha", metavar="A", min=0.0, max=10.0, help="Exponent of the length penalty.")
    ] = 0.6,
) -> None:
    """Translate standard input, a sentence a line, with a trained run."""
    folder = find_run(Results(results), run)
    sentences = _read()
    from ablate.run.inference import translate_text

    for line in translate_text(folder, Results(results), sentences, beam, alpha):
        print(line)


def _read() -> list[str]:
    """The lines of standard input, decoded here: in some locales Python would let through what is not UTF-8."""
    lines = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            lines.append(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            where = f"standard input:{number}"
            raise DataError(f"{where}: is not valid UTF-8 (byte {error.start + 1} of the line)") from None
    return lines
