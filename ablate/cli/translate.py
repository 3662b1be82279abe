"""`ablate translate`: standard input to standard output with a trained run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot
from ablate.errors import DataError, UsageError
from ablate.store import Results, RunFolder


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.", show_default=False)],
    results: ResultsRoot = DEFAULT_RESULTS,
    beam: Annotated[int, typer.Option("--beam", min=1, max=1024, help="Width of the beam.")] = 4,
    alpha: Annotated[float, typer.Option("--alpha", min=0.0, max=10.0, help="Exponent of the length penalty.")] = 0.6,
) -> None:
    """Translate standard input, a sentence a line, with a trained run."""
    folder = find_run(Results(results), run)
    sentences = _read()
    from ablate.runner.serve import translate_text

    for line in translate_text(folder, Results(results), sentences, beam, alpha):
        print(line)


def find_run(results: Results, given: str) -> RunFolder:
    """The finished run whose id begins so.

    Raises:
        UsageError: there is none, or several, or it is not finished.
    """
    found = [id for id in results.run_ids() if id.startswith(given)]
    if len(found) != 1 or not given:
        what = "no run" if not found else f"{len(found)} runs"
        raise UsageError(f'{results.root}: has {what} whose id begins with "{given}"; `ablate status STUDY` lists them')
    folder = results.run(found[0])
    result = folder.read_result()
    if result is None or result["outcome"] != "done":
        raise UsageError(f"run {folder.id} is not done; `ablate run STUDY` finishes it")
    return folder


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
