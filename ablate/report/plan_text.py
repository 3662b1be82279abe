"""The plan and the state of a study, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from rich.text import Text

from ablate.config import ModelConfig, RowConfig
from ablate.config.lengths import ASSUMED_LENGTH
from ablate.config.training import ends_in_warmup
from ablate.custom.reference import is_custom, parse_reference
from ablate.formatting import concerned_rows, duration, plural, scaled, size, thousands, visible
from ablate.parts.attention import note_on_shared_keys
from ablate.parts.variant import classes_of
from ablate.plan.plan import Plan, PlanRow, RunStatus, epochs_lines, memory_line, precision_lines
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
from ablate.study import Study
from ablate.study.choice import AWAITS, TUNING


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
    numbers = ["params", "FLOPs per step", "steps", "memory"]
    if has_idle:
        numbers.insert(1, "active")
    last = ["runs", "matched"] if has_matches else ["runs"]
    table = plain_table("row", *map(right, numbers), *last)
    for row in plan.rows:
        cells = [f"{row.params:,}"]
        if has_idle:
            cells.append(f"{row.active_params:,}")
        cells += [scaled(row.flops_per_step, ""), thousands(row.steps)]
        cells += [size(row.peak_memory), _states(row)]
        if has_matches:
            cells.append(row.row.matched.text if row.row.matched else "")
        table.add_row(Label(row.row.label), *cells)
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
    yield from epochs_lines({row.row.label: row.epochs for row in plan.rows})
    yield from _row_notes(plan)
    yield from _custom_classes(plan.study)
    yield from precision_lines(plan)
    yield memory_line(plan)


def _totals(plan: Plan) -> Iterator[str]:
    """Yield the numbers of rows and runs with their cost, and what is left to do or left out."""
    device = "on this CPU" if plan.device == "cpu" else "on a GPU here"
    time = f"unknown until a run has finished {device}"
    if plan.seconds is not None:
        time = duration(plan.seconds)
    yield (
        f"{plural(len(plan.rows), 'row')}, {plural(len(plan.runs), 'run')}, {len(plan.missing)} to "
        f"do: {scaled(plan.flops, 'FLOP')} in all, up to {size(plan.disk_bytes)} on disk, time "
        f"{time}."
    )
    if plan.trained:
        yield f"{plural(len(plan.trained), 'trained run')} still to be decoded."
    if plan.study.whole.dropped:
        were = "was" if plan.study.whole.dropped == 1 else "were"
        yield f"{plural(plan.study.whole.dropped, 'combination')} {were} dropped by `where`."


# (note, whether it concerns a row with this configuration)
_ROW_NOTES: tuple[tuple[str, Callable[[RowConfig], bool]], ...] = (
    (
        "params, FLOPs and memory do not include the custom classes of",
        lambda config: bool(classes_of(config, ModelConfig)),
    ),
    ("memory counts Adam's state for the optimizer of", lambda config: is_custom(config.optimizer)),
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
        noted[note] = [row.row.label for row in plan.rows if concerns(row.row.config)]
    for row in plan.rows:
        if note := note_on_shared_keys(row.row.config.all_layers):
            noted.setdefault(f"note: {note}", []).append(row.row.label)
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
    task = parse_reference(study.task_name)
    classes = []
    for custom in study.custom_classes:
        if custom != task:
            classes.append(f"{custom.module}:{custom.name} ({custom.written_file})")
    if classes:
        yield f"Custom classes, which `ablate run` executes: {', '.join(classes)}."
    if task is not None:
        yield (
            f"The task {task.module}:{task.name} ({task.written_file}) was loaded to read the "
            f"study."
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
        tuning = candidates.get(row.row.label)
        if tuning and row.row.own_choice:
            runs = chain.from_iterable(tuning_row.runs for tuning_row in tuning)
            states = counted(state for _, state in runs)
            cells = (str(len(tuning)), thousands(tuning[0].steps), states)
            table.add_row(Label(row.row.label), *cells, Text(row.row.own_choice.text))
    print_wide(table)


def print_status(plan: Plan, details: list[RunStatus]) -> None:
    """Print each run with its state, and the time left.

    Args:
        plan: the plan of the study.
        details: the state of each run.
    """
    table = plain_table("row", right("seed"), "run", "state", "")
    for label, seed, id, state, detail in details:
        styled_state = Text(state, style=STYLES.get(state, ""))
        table.add_row(Label(label), str(seed), id, styled_state, Text(visible(detail)))
    print_wide(table)
    line = f"{plural(len(plan.runs), 'run')}: {counted(state for _, state in plan.runs.values())}"
    if plan.seconds:
        line += f"; about {duration(plan.seconds)} of work left"
    text_console().print(line)
