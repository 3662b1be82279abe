"""The plan and the state of a study, on a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from rich.text import Text

from ablate.config import RowConfig
from ablate.config.cost import uncounted_classes
from ablate.config.lengths import ASSUMED_LENGTH
from ablate.config.memory import CPU_MICRO_BATCH
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.training import ends_in_warmup, precision_note
from ablate.formatting import (
    concerned_rows,
    estimated,
    first_few,
    flops_text,
    percent,
    plural,
    scaled,
    size,
    thousands,
    visible,
)
from ablate.parts.attention import note_on_shared_keys
from ablate.plan.plan import Plan, PlanRow, has_bf16, precision_on
from ablate.report.terminal import (
    STYLES,
    Label,
    counted,
    plain_table,
    print_wide,
    right,
    text_console,
)
from ablate.stats.designs import FactorialDesign
from ablate.store import State
from ablate.store.machine import cores, gpu_memory, memory
from ablate.study import Study
from ablate.study.choice import AWAITS, TUNING


class RunStatus(NamedTuple):
    """One run for `ablate status`; `detail` is its progress, outcome or failure in one line."""

    row: str
    seed: int
    id: str
    state: State
    detail: str


def print_plan(plan: Plan) -> None:
    """Print every row with its cost, the totals, and the assumptions behind them."""
    _print_rows(plan)
    if plan.tuning:
        _print_tuning(plan)
    console = text_console()
    for line in _lines_below(plan):
        console.print(line)


def _print_rows(plan: Plan) -> None:
    has_idle = any(row.active_params < row.params for row in plan.rows)
    has_matches = any(row.row.matched for row in plan.rows)
    has_steps = any(row.steps is not None for row in plan.rows)
    numbers = ["params"]
    if has_idle:
        numbers.append("active")
    numbers.append("FLOPs per step")
    if has_steps:
        numbers.append("steps")
    numbers.append("memory")
    last = ["runs", "matched"] if has_matches else ["runs"]
    table = plain_table("row", *map(right, numbers), *last)
    for row in plan.rows:
        cells = [f"{row.params:,}"]
        if has_idle:
            cells.append(f"{row.active_params:,}")
        cells.append(scaled(row.flops_per_step, ""))
        if has_steps:
            cells.append(thousands(row.steps))
        cells += [size(row.peak_memory), _states(row)]
        if has_matches:
            cells.append(row.row.matched.text if row.row.matched else "")
        table.add_row(Label(row.label), *cells)
    print_wide(table)


def _lines_below(plan: Plan) -> Iterator[str]:
    """Yield designs, totals, assumptions, and notes on rows."""
    for design in plan.study.designs:
        if isinstance(design, FactorialDesign):
            yield f"{design.group}: {design.title}."
            yield from map("  {}".format, design.alias_lines())
    yield from _totals(plan)
    if plan.lengths is None and not plan.study.data.is_stream:
        item = plan.study.task.metrics[plan.study.metrics.shown[0]].item
        yield f"The corpus is not prepared: {item}s of {ASSUMED_LENGTH} tokens are assumed."
    yield from epochs_lines({row.label: row.epochs for row in plan.rows})
    yield from _row_notes(plan)
    yield from _custom_classes(plan.study)
    yield from precision_lines(plan)
    if _needs_much_memory(plan):
        yield memory_line(plan)


def _needs_much_memory(plan: Plan) -> bool:
    """Whether as many runs as this machine trains at once may need a tenth of its memory or more.
    Also True if its memory is unknown.
    """
    largest = max(row.peak_memory for row in plan.rows)
    if plan.device == "cpu":
        return 10 * cores() * largest > memory()
    available = gpu_memory()
    return available is None or 10 * largest > available


def _totals(plan: Plan) -> Iterator[str]:
    """Yield the numbers of rows and runs with their cost, and what is left to do or left out."""
    device = "on this CPU" if plan.device == "cpu" else "on a GPU here"
    time = f"unknown until a run has finished {device}"
    if plan.seconds is not None:
        time = estimated(plan.seconds)
    flops = "" if plan.flops is None else f"{flops_text(plan.flops)} in all, "
    yield (
        f"{plural(len(plan.rows), 'row')}, {plan.runs_text}, {len(plan.missing)} to "
        f"do: {flops}up to {size(plan.disk_bytes)} on disk, time {time}."
    )
    unknown = [row.config for row in plan.rows if row.steps is None]
    if any(config.epochs for config in unknown):
        yield (
            "Steps and FLOPs follow from epochs once `ablate data prepare` has counted the tokens."
        )
    elif unknown:
        yield "Steps and FLOPs are unknown, because patience ends training."
    if plan.only_decoding:
        yield f"{plural(len(plan.only_decoding), 'trained run')} still to be decoded."
    if plan.study.whole.dropped:
        were = "was" if plan.study.whole.dropped == 1 else "were"
        yield f"{plural(plan.study.whole.dropped, 'combination')} {were} dropped by `where`."


def epochs_lines(epochs: Mapping[str, float | None]) -> Iterator[str]:
    """Yield the number of epochs of each row, and a note on rows that do not read all of their
    training text.

    Args:
        epochs: number of epochs by the label of a row; None if it is not known.
    """
    labels_by_text: dict[str, list[str]] = defaultdict(list)
    partial: dict[str, float] = {}
    for label, number in epochs.items():
        if number is None:
            continue
        text = f"{number:.2g}" if number < 10 else f"{number:,.0f}"
        labels_by_text[text].append(label)
        if number < 1:
            partial[label] = number
    if not labels_by_text:
        return
    texts = list(labels_by_text)
    if len(texts) > 1:
        texts = [f"{text} ({first_few(labels)})" for text, labels in labels_by_text.items()]
    yield f"Epochs per run (passes over the training text): {', '.join(texts)}."
    if partial:
        share = percent(min(partial.values()))
        extent = "only" if len(set(partial.values())) == 1 else "as little as"
        yield (
            f"note: training reads {extent} {share} of the training text in "
            f"{concerned_rows(list(partial), len(epochs))}; increase train_steps or batch_tokens "
            "to read all of it."
        )


# (note, whether it concerns a row with this configuration)
_ROW_NOTES: tuple[tuple[str, Callable[[RowConfig], bool]], ...] = (
    (
        "params, FLOPs and memory do not include the custom classes of",
        lambda config: bool(uncounted_classes(config)),
    ),
    (
        "memory counts Adam's state for the optimizer of",
        lambda config: config.optimizer not in OPTIMIZERS,
    ),
    (
        "note: the learning rate rises until training ends, because warmup_steps is not below "
        "train_steps",
        ends_in_warmup,
    ),
)


def _row_notes(plan: Plan) -> Iterator[str]:
    """Yield each note with the rows that it concerns."""
    noted: dict[str, list[str]] = {}
    for note, concerns in _ROW_NOTES:
        noted[note] = [row.label for row in plan.rows if concerns(row.config)]
    for row in plan.rows:
        if note := note_on_shared_keys(row.config.all_layers):
            noted.setdefault(f"note: {note}", []).append(row.label)
    repeated = []
    rows = plan.planned.by_label
    for label, earlier in plan.planned.repeated.items():
        if rows[label].group != rows[earlier].group:  # within a group, a path repeats rows
            repeated.append(f"{label} ({earlier})")
    noted[
        "note: rows with the runs of an earlier row, in parentheses, which verdicts count and test "
        "once"
    ] = repeated
    for note, labels in noted.items():
        if labels:
            yield f"{note}: {concerned_rows(labels, len(plan.rows))}."


def _custom_classes(study: Study) -> Iterator[str]:
    """Yield a line with the custom classes that `ablate run` executes, and a line about a custom
    task, which was loaded to read the study.
    """
    task = study.custom_task
    classes = []
    for custom in study.custom_classes:
        if custom != task:
            classes.append(f"{custom.written} ({custom.written_file})")
    if classes:
        yield f"Custom classes, which `ablate run` executes: {', '.join(classes)}."
    if task is not None:
        yield f"The task {task.written} ({task.written_file}) was loaded to read the study."


def precision_lines(plan: Plan) -> list[str]:
    """The precision of the rows on the plan's device, and notes on settings of `precision` that do
    not suit the device.
    """
    settings: dict[str | None, None] = {}
    chosen: dict[str, None] = {}
    for row in plan.rows:
        settings[row.config.precision] = None
        chosen[precision_on(plan.device, row.config)] = None
    by_device = ""
    if plan.device == "cpu" and None in settings:
        by_device = " on this CPU; bf16 on a GPU that has it"
    lines = [f"Precision: {', '.join(chosen)}{by_device}."]
    for setting in settings:
        note = precision_note(setting, plan.device, has_bf16(plan.device))
        if note is not None:
            lines.append(f"{note}.")
    return lines


def memory_line(plan: Plan) -> str:
    """The device and the batch for which the memory of the rows is estimated, in a sentence."""
    device = "a GPU"
    batch = "a whole batch"
    if plan.processes > 1:
        batch = f"one of {plan.processes} parts of a batch"
    if plan.device == "cpu":
        device = "a CPU"
        batch = f"micro-batches of up to {CPU_MICRO_BATCH:,} tokens"
    return (
        f"Memory is estimated for one process on {device} with {batch}, without the memory of "
        f"Python and torch themselves; if it does not fit, the batch is split further."
    )


def _states(row: PlanRow) -> str:
    if row.row.awaits_choice:
        return f"{len(row.runs)} {AWAITS}"
    return counted(state for _, state in row.runs)


def _print_tuning(plan: Plan) -> None:
    """Print the tuning runs of each row, and its choice."""
    table = plain_table(TUNING, right("candidates"), right("steps"), "runs", "chosen")
    candidates: dict[str, list[PlanRow]] = {}  # by label of the tuned row
    for tuning_row in plan.tuning:
        candidates.setdefault(tuning_row.row.group, []).append(tuning_row)
    for row in plan.rows:
        tuning = candidates.get(row.label)
        if tuning and row.row.own_choice:
            runs = chain.from_iterable(tuning_row.runs for tuning_row in tuning)
            states = counted(state for _, state in runs)
            cells = (str(len(tuning)), thousands(tuning[0].steps), states)
            table.add_row(Label(row.label), *cells, Text(row.row.own_choice.text))
    print_wide(table)


def print_status(plan: Plan, details: list[RunStatus]) -> None:
    """Print each run with its state, and the time left."""
    table = plain_table("row", right("seed"), "run", "state", "")
    for label, seed, id, state, detail in details:
        styled_state = Text(state, style=STYLES.get(state, ""))
        table.add_row(Label(label), str(seed), id, styled_state, Text(visible(detail)))
    print_wide(table)
    line = f"{plan.runs_text}: {counted(run.state for run in plan.runs.values())}"
    if plan.seconds:
        line += f"; {estimated(plan.seconds)} of work left"
    text_console().print(line)
