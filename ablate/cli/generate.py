"""`ablate generate`: text from a trained language model."""

from __future__ import annotations

from typing import Annotated

from ablate.cli.arguments import option
from ablate.cli.naming import TrainedRun
from ablate.cli.options import Format
from ablate.cli.standard_input import checked_text, piped_text
from ablate.streams import print_data, print_json

EXAMPLE = "ablate generate study.yaml base --prompt 'The ' --tokens 200"


def command(
    trained: TrainedRun,
    *,
    prompt: Annotated[
        str | None,
        option("Text to continue.", "TEXT", show_default="standard input, or a new document"),
    ] = None,
    tokens: Annotated[
        int | None, option("Length of a text.", "N", min=1, max=100_000, show_default="the row's")
    ] = None,
    count: Annotated[int, option("Number of texts.", "N", min=1, max=1000)] = 1,
    temperature: Annotated[
        float | None,
        option("0: most likely tokens.", "T", min=0.0, max=100.0, show_default="the row's"),
    ] = None,
    top_k: Annotated[
        int | None, option("Draw from the K likeliest.", "K", min=1, show_default="the row's")
    ] = None,
    draw: Annotated[int, option("Seed of the first text's draws.", "N", min=0)] = 1,
    format: Format = "rich",
) -> None:
    """Generate text with a trained language model."""
    folder, root, named = trained.find("--prompt takes it")
    text = piped_text() if prompt is None else checked_text(prompt, "--prompt")
    given = {"generated_tokens": tokens, "temperature": temperature, "top_k": top_k}
    from ablate.run.inference import generated_texts

    settings = {name: value for name, value in given.items() if value is not None}
    texts = generated_texts(folder, root, text or "", count, draw, settings, named)
    if format == "json":
        lines = [{"draw": draw + index, "text": text} for index, text in enumerate(texts)]
        print_json({"run": folder.id, "texts": lines})
        return
    for index, text in enumerate(texts):
        if index:
            print_data("---\n")
        print_data(f"{text}\n")
