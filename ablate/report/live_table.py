"""The table of `ablate run` and `status` on a terminal, drawn again while the study goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from ablate.formatting import middle_ellipsis, number, size, thousands
from ablate.plan.progress import RowProgress, StudyProgress, counts_text
from ablate.report.run_text import PHASES
from ablate.report.terminal import STYLES
from ablate.store import State
from ablate.store.records import Progress
from ablate.store.status import STATES
from ablate.study import Row, Study

GAP = "  "
LEAST_LABEL = 12  # minimum width of row labels
ENOUGH_LABEL = 28  # labels are this wide before other columns get their longer forms
ROOM_FOR_LEGEND = 6  # rows; with fewer, the legend's line is used for a row
LEGEND = '~ still training; "vs base": difference in PPL, @ last step that both evaluated'
# Wen et al., "Fantastic Pretraining Optimizers and Where to Find Them" (2025), arXiv 2509.02046.
DECAY_WARNING = "@ rankings at a common step can still flip while the learning rate decays"
# State shown for a row with runs in several states; the first match wins.
_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "interrupted", "pending", "done")
_WORDS = {"pending": "waiting"}


def lines(progress: StudyProgress, width: int, height: int) -> list[Text]:
    """Draw progress in at most `height` lines of at most `width` columns; of a tall table its
    active part.
    """
    head = [_title(progress, width), _bar(progress, width)]
    room = height - len(head) - 1  # under the columns' heads
    if room < 2:
        return head[:height]
    notes = [LEGEND] if room > ROOM_FOR_LEGEND else []
    if room > ROOM_FOR_LEGEND + 1 and any(
        row.against_base and row.against_base.step for row in progress.rows
    ):
        notes.append(DECAY_WARNING)
    legend = [_cut(Text(note, style="dim"), width) for note in notes]
    rows, left_out = _visible(progress.rows, room - len(legend))
    return [
        *head,
        *_table(progress.study, rows, width),
        *(_cut(line, width) for line in left_out),
        *legend,
    ]


def _title(progress: StudyProgress, width: int) -> Text:
    """`tiny: 3 of 10 runs, 1 failed, about 2 min left`, in at most `width` columns."""
    text = counts_text(progress)
    name = _cut(Text(progress.study.name), max(LEAST_LABEL, width - len(text) - 2))
    return _cut(Text.assemble(name, ": ", text, style="bold"), width)


def _bar(progress: StudyProgress, width: int) -> Text:
    """`━━━━━━━━━━━━───────── 38 %  memory 0.8 GB of 25 GB`."""
    percent = int(100 * progress.share)  # rounded down: 100 only at the end
    text = f" {percent:3d} %"
    for device, (held, total) in progress.memory.items():
        name = "memory" if device == "cpu" else device
        longer = f"{text}{GAP}{name} {size(held)} of {size(total)}"
        text = longer if len(longer) <= width // 2 else text
    room = max(0, min(60, width - len(text)))
    full = int(room * progress.share)
    return _cut(Text.assemble(("━" * full, "green"), ("─" * (room - full), "dim"), text), width)


def _visible(rows: Sequence[RowProgress], room: int) -> tuple[list[RowProgress], list[Text]]:
    """The rows that fit, in their order, and a line that counts the others.

    Base comes first, then running rows, then failed and diverged ones, then those nearest to the
    first running row.
    """
    if len(rows) <= room:
        return list(rows), []
    room -= 1  # for the line that counts the others
    running = [i for i, row in enumerate(rows) if _state(row) == "running"]
    middle = (
        running[0]
        if running
        else next((i for i, row in enumerate(rows) if _state(row) != "done"), 0)
    )
    urgent: dict[State, int] = {"running": 0, "failed": 1, "diverged": 1}
    order = sorted(
        range(1, len(rows)), key=lambda i: (urgent.get(_state(rows[i]), 2), abs(i - middle), i)
    )
    kept = sorted([0, *order[: room - 1]])
    others = [_state(row) for i, row in enumerate(rows) if i not in kept]
    counts = [
        f"{others.count(state)} {_WORDS.get(state, state)}" for state in STATES if state in others
    ]
    return [rows[i] for i in kept], [
        Text(f"and {len(others)} more: {', '.join(counts)}", style="dim")
    ]


def _state(row: RowProgress) -> State:
    return next(state for state in _FIRST if state in row.states.values())


@dataclass(frozen=True)
class _Column:
    """A column of fixed width, so that columns do not move while numbers change."""

    head: str
    width: int
    cell: Callable[[RowProgress], Text]
    right: bool = True


def _table(study: Study, rows: Sequence[RowProgress], width: int) -> list[Text]:
    """Heads and rows, in the widest form that leaves enough room for labels."""
    wanted = min(ENOUGH_LABEL, max(len(row.label) for row in study.rows))
    forms = [
        _columns(study, spread, long)
        for spread, long in ((True, True), (True, False), (False, False))
    ]
    columns = next((form for form in forms if width - _width(form) >= wanted), forms[-1])
    room = max(LEAST_LABEL, width - _width(columns))
    label = min(room, max(len(row.label) for row in study.rows))
    columns = [
        _Column("row", label, lambda row: Text(_label(row.row, label)), right=False),
        *columns,
    ]
    head = GAP.join(_fit(Text(c.head), c.width, c.right).plain for c in columns)
    body = [Text(GAP).join(_fit(c.cell(row), c.width, c.right) for c in columns) for row in rows]
    return [_cut(line, width) for line in (Text(head, style="dim underline"), *body)]


def _label(row: Row, width: int) -> str:
    """The row's label; if it does not fit, its group and values, which tell rows apart: `D 0.3
    none`.
    """
    if len(row.label) <= width or row.is_labeled:
        return middle_ellipsis(row.label, width)
    parts = row.label.removeprefix(row.group).split(" ")
    short = " ".join([row.group, *(part.partition("=")[2] for part in parts if "=" in part)])
    return middle_ellipsis(short, width)


def _columns(study: Study, spread: bool, long: bool) -> list[_Column]:
    seeds, steps = (
        len(study.seeds),
        len(str(max(row.config.train_steps or 0 for row in study.rows))) or 1,
    )
    spread, main = spread and seeds > 1, study.task.metrics[study.metrics[0]]
    least = len("interrupted at ") + steps
    counted = [_Column("seeds", 5, lambda row: Text(f"{row.ppl.n}/{seeds}"))] if seeds > 1 else []
    return [
        *counted,
        _Column("PPL", 12 if spread else 6, lambda row: _ppl(row, spread)),
        _Column("vs base", 6 + 2 + steps, _against, right=False),
        _Column(
            main.title,
            10 if spread else 5,
            lambda row: _final(row.main.mean, row.main.std, main.digits, spread),
        ),
        _Column(
            "",
            30 + 2 * steps if long else max(10 + 2 * steps, least),
            lambda row: _activity(row, long),
            right=False,
        ),
    ]


def _width(columns: Sequence[_Column]) -> int:
    return sum(len(GAP) + column.width for column in columns)


def _ppl(row: RowProgress, spread: bool) -> Text:
    """Perplexity of finished runs; while no run is finished, the mean of the last evaluations."""
    if row.ppl.n:
        return _final(row.ppl.mean, row.ppl.std, 2, spread)
    values = [report.perplexity for report in row.reports.values() if report.perplexity is not None]
    return Text(f"~{_short(sum(values) / len(values), 2)}" if values else "", style="italic")


def _final(mean: float | None, std: float | None, digits: int, spread: bool) -> Text:
    text = "" if mean is None else _short(mean, digits)
    return Text(f"{text} ±{_short(std, digits)}" if spread and std is not None else text)


def _short(value: float, digits: int) -> str:
    """A number in at most five characters, if it is below 100000."""
    return number(value, digits if abs(value) < 99.995 else 0 if abs(value) >= 999.5 else 1)


def _against(row: RowProgress) -> Text:
    if row.against_base is None:
        return Text()
    difference, step = row.against_base.difference, row.against_base.step
    text = f"{'+' if difference >= 0 else '-'}{_short(abs(difference), 2)}"
    return (
        Text(f"{text:>6}")
        if step is None
        else Text(f"{text:>6} @{thousands(step)}", style="italic")
    )


def _activity(row: RowProgress, long: bool) -> Text:
    """The activity of running rows, or the state of others."""
    state = _state(row)
    if state == "running":
        return Text(_work(row.running, long), style=STYLES[state])
    step = next((row.step_of(seed) for seed in row.states if row.states[seed] == state), None)
    where = f" at {thousands(step)}" if step and state in ("interrupted", "diverged") else ""
    return Text(_WORDS.get(state, state) + where, style=STYLES.get(state, "dim"))


def _work(reports: Sequence[Progress], long: bool) -> str:
    """`step 240 of 450, 7,300 tokens/s`, or `240/450 7.3K/s`; the step of the slowest run."""
    behind = min(reports, key=lambda report: report.step or 0)
    phase, step, steps = behind.phase, behind.step, behind.steps
    speed = sum(report.tokens_per_second or 0.0 for report in reports)
    several = f" x{len(reports)}" if len(reports) > 1 else ""
    if phase != "training" or not step:
        at = f" at step {step}" if phase == "evaluating" else ""
        return f"{PHASES.get(phase, phase)}{at}{several}" if long else f"{phase}{several}"
    if long:
        return (
            f"step {step} of {steps or '?'}"
            + (f", {speed:,.0f} tokens/s" if speed else "")
            + several
        )
    return f"{step}/{steps or '?'}" + (f" {_per_second(speed)}" if speed else "") + several


def _per_second(speed: float) -> str:
    return f"{speed:.0f}/s" if speed < 999.5 else f"{speed / 1e3:.{0 if speed >= 9950 else 1}f}K/s"


def _fit(text: Text, width: int, right: bool) -> Text:
    """Pad or cut a text to a width."""
    text = _cut(text, width)
    text.align("right" if right else "left", width)
    return text


def _cut(text: Text, width: int) -> Text:
    text = text.copy()
    text.rstrip()
    text.truncate(width, overflow="ellipsis")
    return text
