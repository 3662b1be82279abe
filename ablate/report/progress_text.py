"""Progress of a study as lines for a terminal: its table, filling while runs train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

from ablate.formatting import duration, number, size, thousands
from ablate.report.plan_text import STYLES
from ablate.report.progress import RowProgress, StudyProgress
from ablate.store.records import Progress
from ablate.store.status import STATES, State
from ablate.study import Row, Study

GAP = "  "
LEAST_LABEL = 12  # columns that a row's label keeps in any case
ENOUGH_LABEL = 28  # it gets no more than this before the other columns have their longer forms
ROOM_FOR_LEGEND = 6  # rows; below that they need the line themselves
LEGEND = '~ still training; "vs base": difference in PPL, @ last step that both evaluated'
# State shown for a row with runs in several states; the first match wins.
_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "interrupted", "pending", "done")
_WORDS = {"pending": "waiting"}


def lines(standing: StudyProgress, width: int, height: int) -> list[Text]:
    """The standing in at most `height` lines of at most `width` columns, the active part of a tall table."""
    head = [_title(standing, width), _bar(standing, width)]
    room = height - len(head) - 1  # under the columns' heads
    if room < 2:
        return head[:height]
    legend = [_cut(Text(LEGEND, style="dim"), width)] if room > ROOM_FOR_LEGEND else []
    rows, left_out = _chosen(standing.rows, room - len(legend))
    return [*head, *_table(standing.study, rows, width), *(_cut(line, width) for line in left_out), *legend]


def _title(standing: StudyProgress, width: int) -> Text:
    """`tiny: 3 of 10 runs, 1 failed, about 2 min left`."""
    counts = standing.counts
    parts = [f"{standing.ended} of {len(standing.states)} runs"]
    parts += [f"{counts[state]} {state}" for state in STATES if state not in ("done", "pending") and counts[state]]
    if standing.seconds_left is not None:
        parts.append(f"about {duration(standing.seconds_left)} left")
    elif standing.ended < len(standing.states) and not counts["running"]:
        parts.append("no process is running this study")
    said = ", ".join(parts)
    name = _cut(Text(standing.study.name), max(LEAST_LABEL, width - len(said) - 2))
    return _cut(Text.assemble(name, ": ", said, style="bold"), width)


def _bar(standing: StudyProgress, width: int) -> Text:
    """`━━━━━━━━━━━━───────── 38 %  memory 0.8 GB of 25 GB`."""
    percent = int(100 * standing.share)  # never 100 before the end
    said = f" {percent:3d} %"
    for device, (held, total) in standing.memory.items():
        name = "memory" if device == "cpu" else device
        longer = f"{said}{GAP}{name} {size(held)} of {size(total)}"
        said = longer if len(longer) <= width // 2 else said
    room = max(0, min(60, width - len(said)))
    full = int(room * standing.share)
    return _cut(Text.assemble(("━" * full, "green"), ("─" * (room - full), "dim"), said), width)


def _chosen(rows: Sequence[RowProgress], room: int) -> tuple[list[RowProgress], list[Text]]:
    """The rows that there is room for, in their order: base, those at work, what failed, the last done, the next."""
    if len(rows) <= room:
        return list(rows), []
    room -= 1  # a line says what is left out
    at_work = [i for i, row in enumerate(rows) if _state(row) == "running"]
    middle = at_work[0] if at_work else next((i for i, row in enumerate(rows) if _state(row) != "done"), 0)
    urgent: dict[State, int] = {"running": 0, "failed": 1, "diverged": 1}
    order = sorted(
        range(1, len(rows)), key=lambda i: (urgent.get(_state(rows[i]), 2), abs(i - middle), i)
    )  # those nearest to where work is going on come before others
    kept = sorted([0, *order[: room - 1]])
    others = [_state(row) for i, row in enumerate(rows) if i not in kept]
    counts = [f"{others.count(state)} {_WORDS.get(state, state)}" for state in STATES if state in others]
    return [rows[i] for i in kept], [Text(f"and {len(others)} more: {', '.join(counts)}", style="dim")]


def _state(row: RowProgress) -> State:
    return next(state for state in _FIRST if state in row.states.values())


@dataclass(frozen=True)
class _Column:
    """A column of fixed width, so that nothing moves while numbers change."""

    head: str
    width: int
    cell: Callable[[RowProgress], Text]
    right: bool = True


def _table(study: Study, rows: Sequence[RowProgress], width: int) -> list[Text]:
    """The columns' heads and the rows, in the widest form that leaves labels some room."""
    wanted = min(ENOUGH_LABEL, max(len(row.label) for row in study.rows))
    forms = [_columns(study, spread, long) for spread, long in ((True, True), (True, False), (False, False))]
    columns = next((form for form in forms if width - _width(form) >= wanted), forms[-1])
    room = max(LEAST_LABEL, width - _width(columns))
    label = min(room, max(len(row.label) for row in study.rows))
    columns = [_Column("row", label, lambda row: Text(_called(row.row, label)), right=False), *columns]
    head = GAP.join(_fit(Text(c.head), c.width, c.right).plain for c in columns)
    body = [Text(GAP).join(_fit(c.cell(row), c.width, c.right) for c in columns) for row in rows]
    return [_cut(line, width) for line in (Text(head, style="dim underline"), *body)]


def _called(row: Row, width: int) -> str:
    """The row's label, or where there is no room its group and its values alone: `D 0.3 none`, in which rows differ."""
    if len(row.label) <= width:
        return row.label
    parts = row.label.removeprefix(row.group).split(" ")
    short = " ".join([row.group, *(part.partition("=")[2] for part in parts if "=" in part)])
    end = (width - 1) // 2
    return short if len(short) <= width else f"{short[: width - 1 - end]}…{short[len(short) - end :]}"


def _columns(study: Study, spread: bool, long: bool) -> list[_Column]:
    seeds, steps = len(study.seeds), len(str(max(row.config.train_steps or 0 for row in study.rows))) or 1
    spread, main = spread and seeds > 1, study.task.metrics[study.metrics[0]]
    counted = [_Column("seeds", 5, lambda row: Text(f"{row.ppl.n}/{seeds}"))] if seeds > 1 else []
    return [
        *counted,
        _Column("PPL", 12 if spread else 6, lambda row: _ppl(row, spread)),
        _Column("vs base", 6 + 2 + steps, _against, right=False),
        _Column(main.title, 10 if spread else 5, lambda row: _final(row.main.mean, row.main.std, main.digits, spread)),
        _Column("", 30 + 2 * steps if long else 10 + 2 * steps, lambda row: _now(row, long), right=False),
    ]


def _width(columns: Sequence[_Column]) -> int:
    return sum(len(GAP) + column.width for column in columns)


def _ppl(row: RowProgress, spread: bool) -> Text:
    """Of finished runs; while there is none, what those under way have reached."""
    if row.ppl.n:
        return _final(row.ppl.mean, row.ppl.std, 2, spread)
    found = [report.perplexity for report in row.reports.values() if report.perplexity is not None]
    return Text(f"~{_short(sum(found) / len(found), 2)}" if found else "", style="italic")


def _final(mean: float | None, std: float | None, digits: int, spread: bool) -> Text:
    text = "" if mean is None else _short(mean, digits)
    return Text(f"{text} ±{_short(std, digits)}" if spread and std is not None else text)


def _short(value: float, digits: int) -> str:
    """In at most five characters where that is possible."""
    return number(value, digits if abs(value) < 99.995 else 0 if abs(value) >= 999.5 else 1)


def _against(row: RowProgress) -> Text:
    if row.against_base is None:
        return Text()
    difference, step = row.against_base.difference, row.against_base.step
    text = f"{'+' if difference >= 0 else '-'}{_short(abs(difference), 2)}"
    return Text(f"{text:>6}") if step is None else Text(f"{text:>6} @{thousands(step)}", style="italic")


def _now(row: RowProgress, long: bool) -> Text:
    """What is being done, or why nothing is."""
    state = _state(row)
    if state == "running":
        return Text(_work(row.running, long), style=STYLES[state])
    step = next((row.step_of(seed) for seed in row.states if row.states[seed] == state), None)
    where = f" at {thousands(step)}" if step and state in ("interrupted", "diverged") else ""
    return Text(_WORDS.get(state, state) + where, style=STYLES.get(state, "dim"))


def _work(reports: Sequence[Progress], long: bool) -> str:
    """`step 240 of 450, 7,300 tokens/s`, or `240/450 7.3K/s`; of several runs the one that is least far."""
    behind = min(reports, key=lambda report: report.step or 0)
    phase, step, steps = behind.phase, behind.step, behind.steps
    speed = sum(report.tokens_per_second or 0.0 for report in reports)
    several = f" x{len(reports)}" if len(reports) > 1 else ""
    if phase != "training" or not step:
        return f"{phase}{several}"
    if long:
        return f"step {step} of {steps or '?'}" + (f", {speed:,.0f} tokens/s" if speed else "") + several
    return f"{step}/{steps or '?'}" + (f" {_per_second(speed)}" if speed else "") + several


def _per_second(speed: float) -> str:
    return f"{speed:.0f}/s" if speed < 999.5 else f"{speed / 1e3:.{0 if speed >= 9950 else 1}f}K/s"


def _fit(text: Text, width: int, right: bool) -> Text:
    """Exactly so wide."""
    text = _cut(text, width)
    text.align("right" if right else "left", width)
    return text


def _cut(text: Text, width: int) -> Text:
    text = text.copy()
    text.rstrip()
    text.truncate(width, overflow="ellipsis")
    return text
