"""`ablate generate`: text from a trained language model."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Format,
    OutputFormat,
    ResultsRoot,
    RowOfStudy,
    RunOrStudy,
    SeedOfRow,
)
from ablate.cli.standard_input import checked_text, piped_text, row_for_text
from ablate.store import Results
from ablate.streams import print_data, print_json

EXAMPLE = "ablate generate study.yaml base --prompt 'The ' --tokens 200"


def command(
    run: RunOrStudy,
    row: RowOfStudy = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    seed: SeedOfRow = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="TEXT",
            help="Text to continue.",
            show_default="standard input, or a new document",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            metavar="N",
            min=1,
            max=100_000,
            help="Length of a text.",
            show_default="the row's",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=1000, help="Number of texts.")
    ] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            metavar="T",
            min=0.0,
            max=100.0,
            help="0: most likely tokens.",
            show_default="the row's",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k",
            metavar="K",
            min=1,
            help="Draw from the K likeliest.",
            show_default="the row's",
        ),
    ] = None,
    draw: Annotated[
        int, typer.Option("--draw", metavar="N", min=0, help="Seed of the first text's draws.")
    ] = 1,
    format: Format = OutputFormat.rich,
) -> None:
    """Generate text with a trained language model."""
    root = Results(results)
    folder, named = row_for_text(root, run, row, seed, "--prompt takes it")
    text = piped_text() if prompt is None else checked_text(prompt, "--prompt")
    given = {"generated_tokens": tokens, "temperature": temperature, "top_k": top_k}
    from ablate.run.inference import generated_texts

    settings = {name: value for name, value in given.items() if value is not None}
    texts = generated_texts(folder, root, text or "", count, draw, settings, named)
    if format is OutputFormat.json:
        lines = [{"draw": draw + index, "text": text} for index, text in enumerate(texts)]
        print_json({"run": folder.id, "texts": lines})
        return
    for index, text in enumerate(texts):
        if index:
            print_data("---\n")
        print_data(f"{text}\n")
