"""`ablate fill`: the masked tokens of a text, by a trained masked language model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from ablate.cli.arguments import argument, option
from ablate.cli.naming import RunOrStudy, SeedOfRow, find_finished_run
from ablate.cli.options import DEFAULT_RESULTS, Format, ResultsRoot
from ablate.cli.standard_input import checked_text, piped_text
from ablate.errors import UsageError
from ablate.formatting import token_text
from ablate.store import Results
from ablate.streams import echo, print_data, print_json

if TYPE_CHECKING:
    from ablate.decoding.fill import FilledText

EXAMPLE = "ablate fill study.yaml base 'the small d<mask>g sleeps'"


def command(
    run: RunOrStudy,
    row_and_text: Annotated[
        list[str] | None,
        argument(
            "[ROW] TEXT",
            "The study's row, base by default; a text with <mask> in it, which is read from "
            "standard input if it is left out.",
        ),
    ] = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    seed: SeedOfRow = None,
    top: Annotated[int, option("Candidates for each mask.", "K", min=1, max=1000)] = 5,
    format: Format = "rich",
) -> None:
    """Fill the masks of a text with a trained masked language model."""
    words = row_and_text or []
    if len(words) > 2:
        raise UsageError(
            f"expected a row and a text, or a text alone; got {len(words)} words: quote the text"
        )
    row, text = _row_and_text(words)
    root = Results(results)
    folder, named = find_finished_run(root, run, row, seed)
    from ablate.run.inference import fill

    filled = fill(folder, root, text, top, named)
    if format == "json":
        masks = [[asdict(candidate) for candidate in mask] for mask in filled.masks]
        texts = {"text": text, "filled": filled.text}
        print_json({"run": folder.id, **texts, "masks": masks})
        return
    _print(filled)


def _row_and_text(words: list[str]) -> tuple[str | None, str]:
    """The row, None for base, and the text; a text that is not among the words is piped."""
    if words and (len(words) == 2 or "<mask>" in words[-1]):
        *row, text = words
        return next(iter(row), None), checked_text(text, "TEXT")
    piped = piped_text()
    if piped is not None:
        return next(iter(words), None), piped
    if words:
        return None, checked_text(words[0], "TEXT")
    raise UsageError("TEXT is missing: give it, with <mask> in it, or on standard input")


def _print(filled: FilledText) -> None:
    """Print the filled text, then a line of candidates for each mask."""
    print_data(f"{filled.text}\n")
    for number, mask in enumerate(filled.masks, 1):
        texts = [f"{token_text(filler.piece)} {filler.probability:.3f}" for filler in mask]
        echo(f"mask {number}:  {'   '.join(texts)}")
