"""`ablate attention`: what the heads of a trained run look at, and what each is worth."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot, RunId, find_run
from ablate.cli.run import Device
from ablate.errors import UsageError
from ablate.store import Results

if TYPE_CHECKING:
    import torch

    from ablate.analysis.heads import Attention
    from ablate.analysis.importance import Importances
    from ablate.run.inference import LoadedRun


class Kind(str, Enum):
    """Kinds of attention."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


class Format(str, Enum):
    """Forms of what is found."""

    rich = "rich"
    json = "json"
    csv = "csv"


def command(
    run: RunId,
    results: ResultsRoot = DEFAULT_RESULTS,
    sentence: Annotated[
        str | None, typer.Option("--sentence", metavar="TEXT", help="To look at. Unset: the first of the test side.")
    ] = None,
    translation: Annotated[
        str | None, typer.Option("--translation", metavar="TEXT", help="What the decoder reads. Unset: the run's own.")
    ] = None,
    importance: Annotated[
        bool, typer.Option("--importance", help="Instead: what each head is worth, as the loss on the dev side tells.")
    ] = False,
    pairs: Annotated[
        int | None, typer.Option("--pairs", min=1, metavar="N", help="With --importance: only the first N dev pairs.")
    ] = None,
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Only this kind. May be repeated.")] = None,
    layer: Annotated[
        list[int] | None, typer.Option("--layer", metavar="N", help="Only this layer. May be repeated.")
    ] = None,
    out: Annotated[
        list[Path] | None, typer.Option("--out", metavar="FILE", help="Draw it: .png or .svg. May be repeated.")
    ] = None,
    format: Annotated[
        Format, typer.Option("--format", help="rich to read; json has all, csv a line a head.")
    ] = Format.rich,
    device: Annotated[Device, typer.Option("--device", help="auto takes a GPU where there is one.")] = Device.auto,
) -> None:
    """Show what every head of a trained run looks at in a sentence, or what each is worth."""
    if importance and (sentence is not None or translation is not None):
        raise UsageError("--sentence and --translation have no effect with --importance: it measures the dev side")
    if pairs is not None and not importance:
        raise UsageError("--pairs has no effect without --importance")
    from ablate.analysis.figures import refuse_undrawable

    refuse_undrawable(out or [])
    folder = find_run(Results(results), run)
    from ablate.analysis.heads import attentions
    from ablate.run.inference import open_run

    opened = open_run(folder, Results(results), pick_device(device))
    among = attentions(opened.model, [one.value for one in kind or ()], layer or ())
    if importance:
        _importance(folder.id, _measured(opened, among, pairs), format, out or [])
    else:
        _weights(folder.id, opened, among, sentence, translation, format, out or [])


def _weights(
    run: str,
    opened: LoadedRun,
    among: list[Attention],
    sentence: str | None,
    translation: str | None,
    format: Format,
    out: list[Path],
) -> None:
    """Print and draw the weights for a sentence."""
    from ablate.analysis import forms
    from ablate.analysis.weights import view

    found = view(opened, opened.corpus.text("test", "source")[0] if sentence is None else sentence, translation, among)
    if out:  # first: whoever reads what is printed may go away
        from ablate.analysis.drawing import draw_view
        from ablate.analysis.figures import save

        save(draw_view(found, run), out)
    if format is Format.json:
        typer.echo(forms.view_json(found, run), nl=False)
    elif format is Format.csv:
        typer.echo(forms.view_csv(found), nl=False)
    else:
        from rich.console import Console

        from ablate.analysis.maps import print_view

        print_view(found, Console(highlight=False))


def _importance(run: str, found: Importances, format: Format, out: list[Path]) -> None:
    """Print and draw what heads are worth."""
    from ablate.analysis import forms

    if out:  # first: whoever reads what is printed may go away
        from ablate.analysis.drawing import draw_importances
        from ablate.analysis.figures import save

        save(draw_importances(found, run), out)
    if format is Format.json:
        typer.echo(forms.importances_json(found, run), nl=False)
    elif format is Format.csv:
        typer.echo(forms.importances_csv(found), nl=False)
    else:
        from rich.console import Console

        from ablate.analysis.worth import print_importances

        print_importances(found, Console(highlight=False))


def _measured(opened: LoadedRun, among: list[Attention], pairs: int | None) -> Importances:
    """The importance of heads, with a bar meanwhile in a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from ablate.analysis.importance import importances, passes

    dev = opened.corpus.split("dev")
    dev = dev if pairs is None else dev.first(pairs)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("passes over the dev side", total=passes(among))
        device = opened.model.output_matrix.device
        return importances(opened.model, dev, device, among, lambda: progress.advance(task))


def pick_device(choice: Device) -> torch.device:
    """The device that is asked for.

    Raises:
        UsageError: a GPU, where there is none.
    """
    import torch

    has_one = choice is not Device.cpu and torch.cuda.is_available()
    if choice is Device.cuda and not has_one:
        raise UsageError("--device cuda: torch sees no CUDA device here; use --device cpu")
    return torch.device("cuda" if has_one else "cpu")
