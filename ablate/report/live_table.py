"""The table of `ablate run` and `status` on a terminal, drawn again while the study goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.formatting import middle_ellipsis, number, size, spread_text, thousands
from ablate.plan.progress import RowProgress, StudyProgress, counts_text
from ablate.report.run_text import PHASES
from ablate.report.terminal import STYLES
from ablate.stats.metrics import PPL
from ablate.store import State
from ablate.store.records import Progress
from ablate.store.status import STATES
from ablate.study import Row
from ablate.table.experiment import row_state
from ablate.table.scores import Scores

LEAST_LABEL = 12  # minimum width of row labels
WITH_SPREAD, WITH_WORDS = 96, 124  # columns of a terminal from which cells have longer forms
ROOM_FOR_LEGEND = 6  # rows; with fewer, the legend's line is used for a row
LEGEND = '~ still training; "vs base": ratio of PPL, @ last step that both evaluated'
# Wen et al., "Fantastic Pretraining Optimizers and Where to Find Them" (2025), arXiv 2509.02046.
DECAY_WARNING = "@ rankings at a common step can still flip while the learning rate decays"
_WORDS = {"pending": "waiting"}


def live_table(progress: StudyProgress, width: int, height: int, *, is_own: bool = False) -> Group:
    """Progress in at most `height` lines of `width` columns; of a tall table the active part.

    `is_own`: this process runs the study.
    """
    text = counts_text(progress, is_own)
    name = middle_ellipsis(progress.study.name, max(LEAST_LABEL, width - len(text) - 2))
    parts: list[RenderableType] = [_line(f"{name}: {text}", "bold"), _bar(progress, width)]
    room = height - len(parts) - 1  # under the columns' heads
    if room < 2:
        return Group(*parts[:height])
    notes = [LEGEND] if room > ROOM_FOR_LEGEND else []
    at_a_step = any(row.against_base and row.against_base.step for row in progress.rows)
    if at_a_step and room > ROOM_FOR_LEGEND + 1:
        notes.append(DECAY_WARNING)
    rows, left_out = _visible(progress.rows, room - len(notes))
    parts.append(_table(progress, rows, width))
    for note in (*left_out, *notes):
        parts.append(_line(note, "dim"))
    return Group(*parts)


def _line(text: str, style: str) -> Text:
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
    runs, main = progress.runs, progress.main
    seeds = len(runs.seeds_of(runs.rows[0]))
    spread, long = seeds > 1 and width >= WITH_SPREAD, width >= WITH_WORDS
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim underline")
    table.add_column("row")
    for head in ("seeds", "PPL"):
        if head == "PPL" or seeds > 1:
            table.add_column(head, justify="right", no_wrap=True)
    table.add_column("vs base", no_wrap=True)
    table.add_column(main.title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        score = _final(row.main, main.digits, spread)
        cells = [_ppl(row, spread), _against(row), score, _activity(row, long)]
        if seeds > 1:
            cells.insert(0, Text(f"{row.ppl.n}/{len(runs.seeds_of(row.row))}"))
        table.add_row(_Label(row.row), *cells)
    return table


@dataclass(frozen=True)
class _Label:
    """A row's label on one line; where that does not fit, group and values: `D 0.3 none`."""

    row: Row

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        label, width = self.row.label, options.max_width
        if len(label) > width and "=" in label and not self.row.is_labeled:
            values = []
            for part in label.removeprefix(self.row.group).split(" "):
                if "=" in part:
                    values.append(part.partition("=")[2])
            label = " ".join([self.row.group, *values])
        yield _line(middle_ellipsis(label, width), "")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(LEAST_LABEL, len(self.row.label)), len(self.row.label))


def _visible(rows: Sequence[RowProgress], room: int) -> tuple[list[RowProgress], list[str]]:
    """The rows that fit, in their order, and a line that counts the others.

    Base comes first, then running rows, then failed and diverged ones, then those nearest to the
    first running row.
    """
    if len(rows) <= room:
        return list(rows), []
    room -= 1  # for the line that counts the others
    states = list(map(_state_of, rows))
    # The first running row, else the first that is not done, else base.
    near = min(range(len(rows)), key=lambda i: (states[i] != "running", states[i] == "done", i))
    urgent: dict[State, int] = {"running": 0, "failed": 1, "diverged": 1}
    order = sorted(range(1, len(rows)), key=lambda i: (urgent.get(states[i], 2), abs(i - near), i))
    kept, others = [0, *order[: room - 1]], Counter(states[i] for i in order[room - 1 :])
    counts = [f"{others[state]} {_WORDS.get(state, state)}" for state in STATES if others[state]]
    return [rows[i] for i in sorted(kept)], [f"and {others.total()} more: {', '.join(counts)}"]


def _state_of(row: RowProgress) -> State:
    return row_state(row.states.values())


def _ppl(row: RowProgress, spread: bool) -> Text:
    """Perplexity of finished runs; while no run is finished, the mean of the last evaluations."""
    if row.ppl.n:
        return _final(row.ppl, 2, spread)
    values = [report.perplexity for report in row.reports.values() if report.perplexity is not None]
    if not values:
        return Text()
    mean = sum(values) / len(values)
    return Text(f"~{number(mean, _fitting(mean, 2))}", style="italic")


def _final(scores: Scores, digits: int, spread: bool) -> Text:
    if scores.mean is None:
        return Text()
    text = number(scores.mean, _fitting(scores.mean, digits))
    if spread and scores.std is not None:
        text += spread_text(scores.std, _fitting(scores.std, digits), scores.is_log)
    return Text(text)


def _fitting(value: float, digits: int) -> int:
    """Digits with which a number has at most five characters, if it is below 100000."""
    if abs(value) < 99.995:
        return digits
    return int(abs(value) < 999.5)


def _against(row: RowProgress) -> Text:
    if row.against_base is None:
        return Text()
    difference, step = row.against_base.difference, row.against_base.step
    text = PPL.difference_text(difference)
    if step is None:
        return Text(f"{text:>6}")
    return Text(f"{text:>6} @{thousands(step)}", style="italic")


def _activity(row: RowProgress, long: bool) -> Text:
    """The activity of running rows, or the state of others."""
    state = _state_of(row)
    if state == "running":
        return Text(_work(row.running, long), style=STYLES[state])
    text = _WORDS.get(state, state)
    step = next((row.step_of(seed) for seed in row.states if row.states[seed] == state), None)
    if step and state in ("interrupted", "diverged"):
        text += f" at {thousands(step)}"
    return Text(text, style=STYLES.get(state, "dim"))


def _work(reports: Sequence[Progress], long: bool) -> str:
    """`step 240 of 450, 7,300 tokens/s`, or `240/450 7.3K/s`; the step of the slowest run."""
    behind = min(reports, key=lambda report: report.step or 0)
    phase, step, steps = behind.phase, behind.step, behind.steps
    speed = sum(report.tokens_per_second or 0.0 for report in reports)
    if phase == "training" and step and long:
        text, at_speed = f"step {step} of {steps or '?'}", f", {speed:,.0f} tokens/s"
    elif phase == "training" and step:
        text, at_speed = f"{step}/{steps or '?'}", f" {_per_second(speed)}"
    else:
        text, at_speed = str(phase), ""
        if long:
            text = PHASES.get(phase, phase)
        if long and phase == "evaluating":
            text += f" at step {step}"
    if speed:
        text += at_speed
    if len(reports) > 1:
        text += f" x{len(reports)}"
    return text


def _per_second(speed: float) -> str:
    if speed < 999.5:
        return f"{speed:.0f}/s"
    return f"{speed / 1e3:.{int(speed < 9950)}f}K/s"
