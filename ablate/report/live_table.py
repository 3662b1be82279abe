"""The progress of a study in lines, and as the table of `ablate run` and `status`, which is drawn
again while the study goes on.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.analysis.missing import ENDED
from ablate.analysis.results import run_state
from ablate.formatting import (
    duration,
    first_few,
    middle_ellipsis,
    number,
    plural,
    scaled,
    size,
    thousands,
)
from ablate.plan.progress import RowProgress, StudyProgress, saved_step
from ablate.report.terminal import STYLES, counted
from ablate.stats.metrics import PPL
from ablate.store import Results, State
from ablate.store.records import Progress
from ablate.store.status import STATES
from ablate.study import Row, Runs
from ablate.study.choice import TUNING_RUN
from ablate.table.experiment import row_state

LEAST_LABEL = 12  # columns of the terminal
ROOM_OF_NUMBERS = 55  # columns right of the labels
ROOM_FOR_LEGEND = 6  # rows; with fewer, the legend's line is used for a row
STILL_TRAINING = "~ still training"
RATIOS = '"vs base": ratio of PPL'
COMMON_STEP = "@ last step that both evaluated"
# Wen et al., "Fantastic Pretraining Optimizers and Where to Find Them" (2025), arXiv 2509.02046.
DECAY_WARNING = "@ rankings at a common step can still flip while the learning rate decays"
URGENT: dict[State, int] = {"running": 0, "failed": 1, "diverged": 1}  # the other states: 2


def live_table(
    progress: StudyProgress, width: int, height: int, *, is_launcher: bool = False
) -> Group:
    """Progress of a study in at most `height` lines of `width` columns. A table that is too tall
    shows its active rows.

    Args:
        progress: progress of the study.
        width: columns of the terminal.
        height: lines of the terminal.
        is_launcher: whether this process runs the study.
    """
    counts = counts_text(progress, is_launcher)
    name = middle_ellipsis(progress.study.name, max(LEAST_LABEL, width - len(counts) - 2))
    head: list[RenderableType] = [_line(f"{name}: {counts}", "bold"), _bar(progress, width)]
    room = height - len(head) - 1  # below the heads of the columns
    if room < 2:
        return Group(*head[:height])
    notes = _legend(progress.rows)[: max(0, room - ROOM_FOR_LEGEND)]
    rows, left_out = _visible(progress.rows, room - len(notes))
    below = [_line(note, "dim") for note in (*left_out, *notes)]
    return Group(*head, _table(progress, rows, width), *below)


def _legend(rows: Sequence[RowProgress]) -> list[str]:
    """The lines that explain the marks and numbers of these rows."""
    phrases = []
    if any(_last_perplexities(row) for row in rows):
        phrases.append(STILL_TRAINING)
    comparisons = [row.against_base for row in rows if row.against_base is not None]
    at_a_step = any(comparison.step for comparison in comparisons)
    if comparisons:
        phrases.append(f"{RATIOS}, {COMMON_STEP}" if at_a_step else RATIOS)
    lines = ["; ".join(phrases)] if phrases else []
    return [*lines, DECAY_WARNING] if at_a_step else lines


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _bar(progress: StudyProgress, width: int) -> Table:
    """`━━━━━━━━━━━━ 38 %  memory 0.8 GB of 25 GB`."""
    text = f"{int(100 * progress.share):3d} %"  # rounded down: 100 only at the end
    for device, (held, total) in progress.memory.items():
        name = "memory" if device == "cpu" else device
        longer = f"{text}  {name} {size(held)} of {size(total)}"
        if len(longer) < width // 2:
            text = longer
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(1.0, progress.share, width=max(1, min(60, width - len(text) - 1)))
    grid.add_row(bar, Text(text, no_wrap=True))
    return grid


def _table(progress: StudyProgress, rows: Sequence[RowProgress], width: int) -> Table:
    runs, main_metric = progress.runs, progress.main_metric
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim underline")
    table.add_column("row", no_wrap=True, min_width=min(LEAST_LABEL, width))
    # Tuning runs are not compared with base, and their only score is the perplexity.
    compares = any(row.row.is_decoded for row in rows)
    scores = main_metric != PPL
    for title in ("seeds", "PPL"):
        table.add_column(title, justify="right", no_wrap=True)
    if compares:
        table.add_column("vs base", no_wrap=True)
    if scores:
        table.add_column(main_metric.title, justify="right", no_wrap=True)
    table.add_column("step, tokens/s", no_wrap=True)
    room = max(LEAST_LABEL, width - ROOM_OF_NUMBERS)
    # All candidates of tuning have labels of one form, also those that scroll into view later.
    is_short = any(not row.row.is_decoded and len(row.row.label) > room for row in progress.rows)
    for row in rows:
        cells: list[str | Text] = [
            _label(row.row, room, is_short),
            f"{row.ppl.n}/{len(runs.seeds_of(row.row))}",
            _perplexity(row),
        ]
        if compares:
            cells.append(_against(row))
        if scores:
            cells.append(number(row.main_scores.mean, main_metric.digits))
        table.add_row(*cells, _activity(row))
    return table


def _label(row: Row, width: int, is_short: bool = False) -> str:
    """The label of a row; a label that does not fit, or with `is_short` every label, is the group
    and the values: `D 0.3 none`; of a candidate of tuning the row and the values: `A h=1: 0.003`.
    """
    label = row.label
    if (is_short or len(label) > width) and "=" in label and not row.is_labeled:
        settings = label.removeprefix(row.group).split(" ")
        values = [text.partition("=")[2] for text in settings if "=" in text]
        group = row.group if row.is_decoded else f"{row.group}:"
        label = " ".join([group, *values])
    return middle_ellipsis(label, width)


def _visible(rows: Sequence[RowProgress], room: int) -> tuple[list[RowProgress], list[str]]:
    """The rows that fit, in their order, and a line with the number of rows that are left out.

    Base is always shown. The order of importance is: running rows, failed and diverged rows, then
    the rows that are nearest to the first running row.
    """
    if len(rows) <= room:
        return list(rows), []
    room -= 1  # for the line about rows that are left out
    states = list(map(_state_of, rows))
    # The first running row, otherwise the first unfinished row, otherwise base.
    near = min(range(len(rows)), key=lambda i: (states[i] != "running", states[i] == "done", i))
    order = sorted(range(1, len(rows)), key=lambda i: (URGENT.get(states[i], 2), abs(i - near), i))
    shown = sorted([0, *order[: room - 1]])
    left_out = [states[i] for i in order[room - 1 :]]
    return [rows[i] for i in shown], [f"and {len(left_out)} more: {counted(left_out)}"]


def _state_of(row: RowProgress) -> State:
    return row_state(row.states.values())


def _perplexity(row: RowProgress) -> Text:
    """The perplexity of finished runs; without any, of the last evaluations. Geometric means."""
    if row.ppl.n:
        return Text(number(row.ppl.mean, PPL.digits))
    values = _last_perplexities(row)
    if not values:
        return Text()
    return Text(f"~{number(statistics.geometric_mean(values), PPL.digits)}", style="italic")


def _last_perplexities(row: RowProgress) -> list[float]:
    """The last evaluations of the running seeds of a row; empty if a seed has finished."""
    if row.ppl.n:
        return []
    reports = row.reports.values()
    return [report.perplexity for report in reports if report.perplexity is not None]


def _against(row: RowProgress) -> Text:
    if row.against_base is None:
        return Text()
    log_ratio, step = row.against_base.log_ratio, row.against_base.step
    text = f"{PPL.difference_text(log_ratio):>6}"
    if step is None:
        return Text(text)
    return Text(f"{text} @{thousands(step)}", style="italic")


def _activity(row: RowProgress) -> Text:
    """The activity of a running row, or the state of another row."""
    state = _state_of(row)
    if state == "running":
        return Text(_work(row.running), style=STYLES[state])
    text: str = state
    step = next((row.step_of(seed) for seed in row.states if row.states[seed] == state), None)
    if step and state in ("interrupted", "diverged"):
        text += f" at {thousands(step)}"
    return Text(text, style=STYLES.get(state, "dim"))


def _work(reports: Sequence[Progress]) -> str:
    """`240/450, 7.3 K`: the step of the slowest run, and the sum of the runs' tokens per second."""
    slowest = min(reports, key=lambda report: report.step or 0)
    text: str = slowest.phase
    if text == "measuring":  # the last evaluation
        text = "evaluating"
    elif text == "training" and slowest.step:
        text = f"{slowest.step}/{slowest.steps or '?'}"
    speed = sum(report.tokens_per_second or 0.0 for report in reports)
    if speed:
        text += f", {scaled(speed, '').strip()}"
    if len(reports) > 1:
        text += f" x{len(reports)}"
    return text


def noun_of(runs: Runs) -> str:
    """`run`, or `tuning run` if these runs choose settings."""
    return "run" if any(row.is_decoded for row in runs.rows) else TUNING_RUN


def summary_line(progress: StudyProgress) -> str:
    """The study in one line: `tiny: 3 of 10 runs, 1 failed, about 2 min left`."""
    return f"{progress.study.name}: {counts_text(progress)}"


def counts_text(progress: StudyProgress, is_launcher: bool = False) -> str:
    """The counts in a line: `3 of 10 runs, 1 failed, about 2 min left`.

    `is_launcher`: whether this process executes the study.
    """
    counts = progress.counts
    phrases = [f"{progress.ended} of {plural(len(progress.states), noun_of(progress.runs))}"]
    for state in STATES:
        if state not in ("done", "pending") and counts[state]:
            phrases.append(f"{counts[state]} {state}")
    if progress.seconds_left is not None:
        phrases.append(f"about {duration(progress.seconds_left)} left")
    elif progress.ended < len(progress.states) and not counts["running"] and not is_launcher:
        waiting = "no process is running this study"
        if progress.starting:
            waiting = f"{plural(progress.starting, 'pilot')} in the queue or starting"
        phrases.append(waiting)
    return ", ".join(phrases)


def saved_line(runs: Runs, results: Results) -> str:
    """The numbers of runs that are done, diverged or failed, and the step from which each
    interrupted run resumes, in a line. Runs that other processes execute are not interrupted.
    """
    steps = []
    counts = Counter[State]()
    for run in runs:
        state = run_state(run, results)
        counts[state] += 1
        if state not in (*ENDED, "running") and (step := saved_step(results.run(run.id))):
            steps.append(f"{runs.labels[run.id]} at step {step}")
    text = f"{counts['done']} of {plural(counts.total(), 'run')} done"
    for state in ("diverged", "failed"):
        if counts[state]:
            text += f", {counts[state]} {state}"
    return f"{text}; saved: {first_few(steps)}" if steps else text
