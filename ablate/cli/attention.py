"""`ablate attention`: attention weights of a trained run, and the importance of each head."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import Progress

from ablate.cli.arguments import flag, option
from ablate.cli.naming import TrainedRun
from ablate.cli.options import Device, torch_device
from ablate.cli.output import Format
from ablate.cli.standard_input import checked_text, piped_text
from ablate.errors import Fault, UsageError, ineffective_option
from ablate.formatting import plural
from ablate.report.terminal import text_console
from ablate.stdio import echo, new_console, print_json

if TYPE_CHECKING:
    from ablate.attention.importance import Importances
    from ablate.attention.weights import AttentionLayer, AttentionWeights
    from ablate.workers.inference import LoadedRun


EXAMPLE = "ablate attention 3f2a --text 'a small dog' --out a.png"


class Kind(StrEnum):  # Typer takes no list of a Literal
    """Kinds of attention."""

    encoder = "encoder"
    decoder = "decoder"
    cross = "cross"


def command(
    trained: TrainedRun,
    *,
    text: Annotated[
        str | None,
        option(
            "Source sentence, or text of a language model.",
            "TEXT",
            show_default="standard input, or the first of the test split",
        ),
    ] = None,
    translation: Annotated[
        str | None, option("Target sentence.", "TEXT", show_default="the run's translation")
    ] = None,
    importance: Annotated[
        bool,
        flag(
            "--importance", "Show the rise of the dev loss without each head, instead of weights."
        ),
    ] = False,
    records: Annotated[
        int | None, option("With --importance: the first N records of dev only.", "N", min=1)
    ] = None,
    kind: Annotated[
        list[Kind] | None, option("Only encoder, decoder or cross. Repeatable.", "KIND")
    ] = None,
    layer: Annotated[list[int] | None, option("Only this layer. Repeatable.", "N")] = None,
    out: Annotated[
        list[Path] | None, option("Draw the weights: .pdf, .png or .svg. Repeatable.", "FILE")
    ] = None,
    format: Format = "text",
    device: Device = "auto",
) -> None:
    """Draw attention weights for a sentence, or show each head's importance."""
    if importance and (text is not None or translation is not None):
        raise UsageError(
            "--text and --translation have no effect with --importance, which uses the dev set"
        )
    if records is not None and not importance:
        raise ineffective_option("--records", "has no effect without --importance")
    if importance and out:
        raise ineffective_option("--out", "has no effect with --importance, which prints a table")
    from ablate.attention.figures import check_paths

    # First, because loading the model takes seconds.
    check_paths(out or [])
    run = trained.find(lacks_text=text is None)
    if not importance:
        text = _text(text)
        if not out and format == "text":
            remedy = "--format json prints them"
            raise UsageError(
                Fault("--out FILE is missing: the weights are drawn into this file", remedy=remedy)
            )
    from ablate.attention.weights import attention_layers
    from ablate.workers.inference import load_run, predicting_task

    predicting_task(run.folder)
    opened = load_run(run.folder, trained.root, torch_device(device), run.row)
    layers = attention_layers(opened.model, [chosen.value for chosen in kind or ()], layer or ())
    if importance:
        _show_importance(run.folder.id, _measure(opened, layers, records), format)
    else:
        from ablate.attention.weights import attention_weights

        weights = attention_weights(opened, text, translation, layers)
        _show_weights(run.folder.id, weights, format, out or [])


def _text(option: str | None) -> str | None:
    """The text of --text or, without it, of standard input; None if there is neither."""
    if option is not None:
        return checked_text(option, "--text")
    text = piped_text()
    if text is not None and "\n" in text:
        lines = text.count("\n") + 1
        problem = f"standard input has {lines} lines, and `ablate attention` shows one sentence"
        raise UsageError(Fault(problem, remedy="--text may contain line breaks"))
    return text


def _show_weights(run: str, weights: AttentionWeights, format: Format, out: list[Path]) -> None:
    """Draw the weights into files, and print the weights as JSON, or their texts."""
    from ablate.attention import output
    from ablate.attention.figures import draw_weights, write_figure

    if out:  # before printing, which may end with a broken pipe
        write_figure(draw_weights(weights, run), out)
    for path in out:
        echo(f"Wrote {path}", err=True)
    if format == "json":
        print_json(output.weights_json(weights, run))
        return
    console = text_console()
    for side, text in weights.texts.items():
        console.print(f"{side}: {text}")
    for line in weights.hidden:
        console.print(line)


def _show_importance(run: str, importances: Importances, format: Format) -> None:
    """Print the importance of each head."""
    from ablate.attention import output

    if format == "json":
        print_json(output.importances_json(importances, run))
        return
    new_console().print(output.importances_table(importances))
    text_console().print(
        f"importance: increase of the dev loss ({plural(importances.records, 'record')}), in nats "
        "per token, when the head is masked. Two heads that do the same work both seem "
        "unimportant.",
        style="dim",
    )


def _measure(opened: LoadedRun, selected: list[AttentionLayer], records: int | None) -> Importances:
    """Measure the importance of the selected heads, with a progress bar in a terminal."""
    from ablate.attention.importance import count_passes, measure_importances

    dev = opened.task.items(opened.corpus, "dev", opened.config)
    if records is not None:
        dev = dev.first(records)
    console = new_console(err=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("passes over the dev split", total=count_passes(selected))
        device = opened.model.output_matrix.device
        return measure_importances(
            opened.task, opened.model, dev, device, selected, lambda: progress.advance(task)
        )
