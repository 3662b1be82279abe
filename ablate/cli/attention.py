"""`ablate attention`: attention weights of a trained run, and the importance of each head."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Device,
    DeviceOption,
    ResultsRoot,
    RowOfStudy,
    RunOrStudy,
    SeedOfRow,
    find_finished_row,
    torch_device,
)
from ablate.errors import UsageError
from ablate.store import Results
from ablate.streams import echo, new_console, print_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ablate.attention.importance import Importances
    from ablate.attention.weights import AttentionLayer
    from ablate.run.inference import LoadedRun


EXAMPLE = "ablate attention 3f2a --sentence 'a small dog' --out a.png"


class Kind(StrEnum):
    """Kinds of attention."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


class Format(StrEnum):
    """Formats of the output."""

    rich = "rich"
    json = "json"
    csv = "csv"


def command(
    run: RunOrStudy,
    row: RowOfStudy = None,
    results: ResultsRoot = DEFAULT_RESULTS,
    seed: SeedOfRow = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            "--sentence",
            metavar="TEXT",
            help="Source sentence, or text of a language model.",
            show_default="the first of the test split",
        ),
    ] = None,
    translation: Annotated[
        str | None,
        typer.Option(
            "--translation",
            metavar="TEXT",
            help="Target sentence.",
            show_default="the run's translation",
        ),
    ] = None,
    importance: Annotated[
        bool,
        typer.Option(
            "--importance",
            help="Show the rise of the dev loss without each head, instead of weights.",
        ),
    ] = False,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            min=1,
            metavar="N",
            help="With --importance: the first N records of dev only.",
        ),
    ] = None,
    kind: Annotated[
        list[Kind] | None, typer.Option("--kind", help="Only this kind of attention. Repeatable.")
    ] = None,
    layer: Annotated[
        list[int] | None, typer.Option("--layer", metavar="N", help="Only this layer. Repeatable.")
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out", metavar="FILE", help="Also write a figure: .pdf, .png or .svg. Repeatable."
        ),
    ] = None,
    format: Annotated[
        Format,
        typer.Option(
            "--format", help="Output to read (rich); everything (json); one line per head (csv)."
        ),
    ] = Format.rich,
    device: DeviceOption = Device.auto,
) -> None:
    """Show attention weights for a sentence, or each head's importance."""
    if importance and (sentence is not None or translation is not None):
        raise UsageError(
            "--sentence and --translation have no effect with --importance, which uses the dev set"
        )
    if pairs is not None and not importance:
        raise UsageError("--pairs has no effect without --importance")
    from ablate.attention.figures import check_paths

    # Invalid paths are reported before the model is loaded, which takes seconds.
    check_paths(out or [])
    folder, named = find_finished_row(Results(results), run, row, seed)
    from ablate.attention.weights import attention_layers
    from ablate.run.inference import attention_run

    opened = attention_run(folder, Results(results), torch_device(device), named)
    selected = attention_layers(opened.model, [one.value for one in kind or ()], layer or ())
    if importance:
        _importance(folder.id, _measure(opened, selected, pairs), format, out or [])
    else:
        _weights(folder.id, opened, selected, sentence, translation, format, out or [])


def _weights(
    run: str,
    opened: LoadedRun,
    selected: list[AttentionLayer],
    sentence: str | None,
    translation: str | None,
    format: Format,
    out: list[Path],
) -> None:
    """Print and draw the weights for a sentence."""
    from ablate.attention import formats
    from ablate.attention.weights import attention_weights

    weights = attention_weights(opened, sentence, translation, selected)
    if out:  # before printing, which stops if the reader of a pipe exits
        from ablate.attention.figures import draw_weights

        _save(draw_weights(weights, run), out)
    _print(
        format,
        lambda: formats.weights_json(weights, run),
        lambda: formats.weights_csv(weights),
        lambda: formats.print_weights(weights, new_console()),
    )


def _save(figure: Figure, paths: list[Path]) -> None:
    """Write the figure; the paths are reported on standard error, because standard output may be
    read by a program.
    """
    from ablate.plotting import save

    save(figure, paths)
    for path in paths:
        echo(f"Wrote {path}", err=True)


def _importance(run: str, importances: Importances, format: Format, out: list[Path]) -> None:
    """Print and draw the importance of heads."""
    from ablate.attention import formats

    if out:  # before printing, which stops if the reader of a pipe exits
        from ablate.attention.figures import draw_importances

        _save(draw_importances(importances, run), out)
    _print(
        format,
        lambda: formats.importances_json(importances, run),
        lambda: formats.importances_csv(importances),
        lambda: formats.print_importances(importances, new_console()),
    )


def _print(
    format: Format, json: Callable[[], str], csv: Callable[[], str], rich: Callable[[], None]
) -> None:
    """Print in one of the formats; only this one is made."""
    if format is Format.rich:
        rich()
    else:
        print_data(json() if format is Format.json else csv())


def _measure(opened: LoadedRun, selected: list[AttentionLayer], pairs: int | None) -> Importances:
    """Measure the importance of heads; a terminal shows a progress bar."""
    from rich.progress import Progress

    from ablate.attention.importance import count_passes, measure_importances

    dev = opened.task.items(opened.corpus, "dev", opened.config)
    dev = dev if pairs is None else dev.first(pairs)
    console = new_console(err=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("passes over the dev split", total=count_passes(selected))
        device = opened.model.output_matrix.device
        return measure_importances(
            opened.task, opened.model, dev, device, selected, lambda: progress.advance(task)
        )
