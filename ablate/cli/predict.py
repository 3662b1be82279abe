"""`ablate predict`: predictions of a trained run for a text: translations or trees of its lines, a
continuation, or its masked tokens, depending on the task of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ablate.cli.arguments import option
from ablate.cli.naming import NamedRun, TrainedRun
from ablate.cli.output import Format
from ablate.cli.standard_input import checked_text, input_lines, piped_text
from ablate.errors import UsageError, listed
from ablate.formatting import ellipsis, first_few, plural, token_text
from ablate.stdio import echo, print_data, print_json
from ablate.store import Results

if TYPE_CHECKING:
    from ablate.tasks import Task

EXAMPLE = "echo 'these towers chase the child' | ablate predict study.yaml 'A h=1' --seed 2"
# The options that have an effect, by the kind of prediction (`Task.predicts`).
OPTIONS: dict[str, tuple[str, ...]] = {
    "lines": ("beam", "alpha"),
    "continuation": ("tokens", "count", "temperature", "top_k", "draw"),
    "masks": ("top",),
}


@dataclass(frozen=True)
class Request:
    """A request for predictions of a trained run.

    text: value of --text; None to read standard input.
    given: values of the given options, by name.
    """

    run: NamedRun
    root: Results
    text: str | None
    given: Mapping[str, Any]
    format: Format


def command(
    trained: TrainedRun,
    *,
    text: Annotated[
        str | None,
        option(
            "Text to translate, parse, continue, or fill.", "TEXT", show_default="standard input"
        ),
    ] = None,
    beam: Annotated[
        int | None,
        option("Translation: beam size.", "K", min=1, max=1024, show_default="the row's"),
    ] = None,
    alpha: Annotated[
        float | None,
        option(
            "Translation: exponent of the length penalty.",
            "A",
            min=0.0,
            max=10.0,
            show_default="the row's",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        option(
            "Language model: length of a text.",
            "N",
            min=1,
            max=100_000,
            show_default="the row's",
        ),
    ] = None,
    count: Annotated[
        int | None,
        option("Language model: number of texts.", "N", min=1, max=1000, show_default="1"),
    ] = None,
    temperature: Annotated[
        float | None,
        option(
            "Language model: 0 for the most likely tokens.",
            "T",
            min=0.0,
            max=100.0,
            show_default="the row's",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        option("Language model: draw from the K likeliest.", "K", min=1, show_default="the row's"),
    ] = None,
    draw: Annotated[
        int | None,
        option("Language model: seed of the first text.", "N", min=0, show_default="1"),
    ] = None,
    top: Annotated[
        int | None,
        option(
            "Masked language model: candidates for each <mask>.",
            "K",
            min=1,
            max=1000,
            show_default="5",
        ),
    ] = None,
    format: Format = "text",
) -> None:
    """Predict with a trained run: translate, parse, continue a text, or fill its masks.

    The decoding settings of the row apply: averaged checkpoints, beam size, length penalty, limits,
    constraint, temperature. A run's id stands for the row that began the run.
    """
    run = trained.find(lacks_text=text is None)
    from ablate.workers.inference import predicting_task

    values = {"beam": beam, "alpha": alpha, "tokens": tokens, "count": count}
    values |= {"temperature": temperature, "top_k": top_k, "draw": draw, "top": top}
    given = {name: value for name, value in values.items() if value is not None}
    task = predicting_task(run.folder)
    _refuse_without_effect(task, given)
    if text is not None:
        text = checked_text(text, "--text")
    predict = {"lines": _translate, "continuation": _continue, "masks": _fill}[task.predicts]
    predict(Request(run, trained.root, text, given, format))


def _refuse_without_effect(task: Task, given: Iterable[str]) -> None:
    allowed = OPTIONS[task.predicts]
    without_effect = [_flag(name) for name in given if name not in allowed]
    if without_effect:
        has = "has" if len(without_effect) == 1 else "have"
        raise UsageError(
            f"{', '.join(without_effect)} {has} no effect with the task "
            f"{task.name}, which takes {listed(map(_flag, allowed))}"
        )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _translate(ask: Request) -> None:
    """Print a prediction for each line."""
    source = "standard input" if ask.text is None else "--text"
    # Read all lines first: batches are made of lines of similar length.
    lines = input_lines() if ask.text is None else ask.text.splitlines()
    from ablate.workers.inference import translate_text

    made = translate_text(ask.run.folder, ask.root, lines, ask.given, ask.run.row, source)
    predictions = made.texts
    if any(made.unknown):
        echo(f"{source}: {_unknown_text(made.unknown)}", err=True)
    for number, (line, prediction) in enumerate(zip(lines, predictions, strict=True), 1):
        if prediction is None:
            fault = "the prediction is not valid; the line is empty"
            echo(f"{source}:{number}: {fault}", err=True)
        elif not prediction and line.strip():
            echo(f"{source}:{number}: the prediction is empty", err=True)
    if ask.format == "json":
        count = sum(map(len, made.unknown))
        run = ask.run.folder.id
        print_json({"run": run, "predictions": predictions, "unknown_tokens": count})
        return
    for prediction in predictions:
        print_data(f"{prediction or ''}\n")


def _unknown_text(unknown: Sequence[Sequence[str]]) -> str:
    """`2 tokens are not in the vocabulary: "œ" (line 3), "日本" (line 7)`, of the unknown tokens of
    each line.
    """
    first: dict[str, int] = {}  # text of a token -> its first line
    for number, texts in enumerate(unknown, 1):
        for text in texts:
            first.setdefault(text, number)
    shown = [f'"{ellipsis(text, 40)}" (line {number})' for text, number in first.items()]
    count = sum(map(len, unknown))
    are = "is" if count == 1 else "are"
    return f"{plural(count, 'token')} {are} not in the vocabulary: {first_few(shown)}"


def _continue(ask: Request) -> None:
    """Print texts that continue a text; without one, new documents."""
    prompt = piped_text() if ask.text is None else ask.text
    fields = {"tokens": "generated_tokens", "temperature": "temperature", "top_k": "top_k"}
    settings = {fields[name]: value for name, value in ask.given.items() if name in fields}
    count, draw = ask.given.get("count", 1), ask.given.get("draw", 1)
    from ablate.workers.inference import generated_texts

    texts = generated_texts(
        ask.run.folder, ask.root, prompt or "", count, draw, settings, ask.run.row
    )
    if ask.format == "json":
        draws = [{"draw": draw + index, "text": text} for index, text in enumerate(texts)]
        print_json({"run": ask.run.folder.id, "texts": draws})
        return
    for index, continued in enumerate(texts):
        if index:
            print_data("---\n")
        print_data(f"{continued}\n")


def _fill(ask: Request) -> None:
    """Print the filled text, then a line of candidates for each mask."""
    text = piped_text() if ask.text is None else ask.text
    if text is None:
        raise UsageError("--text is missing: a text with <mask> in it, also on standard input")
    from ablate.workers.inference import fill

    filled = fill(ask.run.folder, ask.root, text, ask.given.get("top", 5), ask.run.row)
    if ask.format == "json":
        masks = [[asdict(candidate) for candidate in mask] for mask in filled.masks]
        print_json({"run": ask.run.folder.id, "text": text, "filled": filled.text, "masks": masks})
        return
    print_data(f"{filled.text}\n")
    for number, mask in enumerate(filled.masks, 1):
        texts = [f"{token_text(filler.piece)} {filler.probability:.3f}" for filler in mask]
        echo(f"mask {number}:  {'   '.join(texts)}")
