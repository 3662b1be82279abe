"""`ablate translate`: translate or parse standard input with a trained run."""

from __future__ import annotations

from typing import Annotated

from ablate.cli.arguments import option
from ablate.cli.naming import TrainedRun
from ablate.cli.standard_input import input_lines
from ablate.streams import echo, print_data

EXAMPLE = "echo 'a small dog sleeps' | ablate translate study.yaml 'A h=1' --seed 2"


def command(
    trained: TrainedRun,
    *,
    beam: Annotated[
        int | None,
        option("Beam size.", "K", min=1, max=1024, show_default="the row's"),
    ] = None,
    alpha: Annotated[
        float | None,
        option(
            "Exponent of the length penalty.",
            "A",
            min=0.0,
            max=10.0,
            show_default="the row's",
        ),
    ] = None,
) -> None:
    """Translate standard input, or parse it, one sentence per line.

    The decoding settings of the row apply: averaged checkpoints, beam size, length penalty, limits,
    constraint. A run's id stands for the row that began the run.
    """
    folder, root, named = trained.find("text is read from standard input")
    sentences = input_lines()  # all of them, since batches are sorted by length
    from ablate.run.inference import translate_text

    given = {"beam": beam, "alpha": alpha}
    settings = {name: value for name, value in given.items() if value is not None}
    texts = translate_text(folder, root, sentences, settings, named)
    for number, line in enumerate(texts, 1):
        if line is None:
            echo(
                f"standard input:{number}: the prediction is not valid; the line is empty", err=True
            )
        print_data(f"{line or ''}\n")
