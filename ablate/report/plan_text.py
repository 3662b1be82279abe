"""The plan and the status, for a terminal."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.config import cost
from ablate.config.plugins import references
from ablate.formatting import duration, plural, scaled, size, thousands
from ablate.report.plan import Plan
from ablate.store.status import STATES, State

STYLES: dict[str, str] = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "diverged": "red",
    "interrupted": "yellow",
}


def print_plan(plan: Plan) -> None:
    """Every row with its cost, then the sums and how they were reckoned."""
    table = plain_table("row", "+params", "+FLOPs a step", "+steps", "+memory", "runs")
    for row in plan.rows:
        table.add_row(
            Text(row.row.label),
            f"{row.params:,}",
            scaled(row.flops_per_step, ""),
            thousands(row.steps),
            size(row.peak_memory),
            counted(Counter(state for _, state in row.runs)),
        )
    print_wide(table)
    console, totals = Console(highlight=False, soft_wrap=True), plan.totals()
    console.print(
        f"{plural(totals['rows'], 'row')}, {plural(totals['runs'], 'run')}, {totals['missing']} to do: "
        f"{scaled(totals['flops'], 'FLOP')} in all, up to {size(totals['disk_bytes'])} on disk, "
        f"time {duration(plan.seconds) if plan.seconds is not None else 'unknown until a run has finished here'}."
    )
    if plan.trained:
        count = len(plan.trained)
        console.print(f"{plural(count, 'run')} {'is' if count == 1 else 'are'} trained and only to be translated.")
    if plan.study.dropped:
        dropped = plan.study.dropped
        console.print(f"{plural(dropped, 'combination')} {'was' if dropped == 1 else 'were'} dropped by `where`.")
    if plan.lengths is None:
        console.print(f"The corpus is not prepared: sentences of {cost.ASSUMED_LENGTH} tokens are assumed.")
    own = [row.row.label for row in plan.rows if references(row.row.config)]
    if own:
        console.print(f"Classes of your own are not counted in params, FLOPs and memory of: {', '.join(own)}.")
    console.print("Memory is for a whole batch at once; on a smaller machine it is split, at the same result.")


def print_status(plan: Plan, details: list[tuple[str, int, str, State, str]]) -> None:
    """Every run with its state: (row, seed, id, state, where it is)."""
    table = plain_table("row", "+seed", "run", "state", "")
    for label, seed, id, state, detail in details:
        table.add_row(Text(label), str(seed), id, Text(state, style=STYLES.get(state, "")), Text(detail))
    print_wide(table)
    states = Counter(state for _, state in plan.runs.values())
    line = f"{plural(len(plan.runs), 'run')}: {counted(states)}"
    if plan.seconds:
        line += f"; about {duration(plan.seconds)} of work left"
    Console(highlight=False, soft_wrap=True).print(line)


def plain_table(*heads: str) -> Table:
    """A table without a frame; a head that begins with + is of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for head in heads:
        table.add_column(head.lstrip("+"), justify="right" if head.startswith("+") else "left")
    return table


def print_wide(table: Table) -> None:
    """Print within a terminal's width; piped, as wide as each line needs."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = max(console.width, console.measure(table, options=console.options.update(max_width=10_000)).maximum)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def counted(states: Counter[State]) -> str:
    """`2 done, 1 running`."""
    return ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
