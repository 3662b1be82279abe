"""`ablate translate`: translate or parse standard input with a trained run."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    ResultsRoot,
    RowOfStudy,
    RunOrStudy,
    SeedOfRow,
    find_finished_row,
)
from ablate.errors import DataError
from ablate.store import Results
from ablate.streams import echo, print_data

EXAMPLE = "echo 'a small dog sleeps' | ablate translate study.yaml 'A h=1' --seed 2"


def command(
    run: RunOrStudy,
    row: RowOfStudy = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    seed: SeedOfRow = None,
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam",
            metavar="K",
            min=1,
            max=1024,
            help="Beam size.",
            show_default="the row's, or the task's",
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            metavar="A",
            min=0.0,
            max=10.0,
            help="Exponent of the length penalty.",
            show_default="the row's, or the task's",
        ),
    ] = None,
) -> None:
    """Translate standard input, or parse it, one sentence per line.

    With a study, the decoding settings of the row apply: beam size, length penalty, limits,
    constraint. With a run id, the task's defaults apply.
    """
    folder, named = find_finished_row(Results(results), run, row, seed)
    sentences = _read_lines()  # all of them, since batches are sorted by length
    from ablate.run.inference import translate_text

    decoding = named.config if named else None
    texts = translate_text(folder, Results(results), sentences, decoding, beam=beam, alpha=alpha)
    for number, line in enumerate(texts, 1):
        if line is None:
            echo(
                f"standard input:{number}: the prediction is not valid; the line is empty", err=True
            )
        print_data(f"{line or ''}\n")


def _read_lines() -> list[str]:
    """Lines of standard input. Decoded here, because Python accepts invalid UTF-8 in some
    locales.
    """
    if sys.stdin is None:
        raise DataError(
            "standard input is closed; sentences are read from it, such as `ablate translate ... < "
            "FILE`"
        )
    lines = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            lines.append(line.decode().rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input:{number}: not valid UTF-8 (byte {error.start + 1} of the line)"
            ) from None
    return lines
