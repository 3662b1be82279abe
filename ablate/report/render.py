"""The table's forms: for the terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ablate.config.metrics import PPL
from ablate.report.agreement import agreements_json
from ablate.report.layout import SETTINGS, Layout, bare, layouts
from ablate.report.scores import Scores
from ablate.report.table import Table, TableRow, paper_metrics
from ablate.report.verdicts import as_json as verdict_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def print_rich(table: Table, console: Console, against_paper: bool, with_cost: bool = False) -> None:
    """Print to a terminal in the widest layout that it holds; piped, in the paper's, however wide."""
    forms = layouts(table, lambda text: f"{text}*", against_paper, with_cost)
    chosen = forms[0]
    if console.is_terminal:
        chosen = next((form for form in forms if _width(form, console) <= console.width), forms[-1])
    else:
        console.width = max(console.width, _width(chosen, console))
    console.print(_rich(chosen), highlight=False)
    for line in chosen.legend:
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def markdown(table: Table, against_paper: bool, with_cost: bool = False) -> str:
    """A Markdown table with its legend as a list."""
    layout = bare(layouts(table, lambda text: f"**{text}**", against_paper, with_cost)[0])
    rows = zip(*(column.cells for column in layout.columns), strict=True)
    lines = [
        _markdown_row(column.head for column in layout.columns),
        _markdown_row("---:" if column.numeric else "---" for column in layout.columns),
        *(_markdown_row(cells) for cells in rows),
        "",
        *(f"- {line.replace('* best', '**bold**: best')}" for line in layout.legend),
    ]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table, timed: bool = True) -> str:
    """One line a row, numbers in full; `timed`: with what a clock has measured."""
    out = io.StringIO()
    lines = [flat(row, paper_metrics(table), timed) for row in table.rows]
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def flat(row: TableRow, in_paper: Sequence[str], timed: bool = True) -> dict[str, Any]:
    """A row's numbers in full, by column: for CSV and for frames. Settings that a row changes are in `changed` too.

    `timed`: with what a clock has measured.
    """
    verdicts = row.verdicts or dict.fromkeys(row.scores)
    cells: dict[str, Any] = {"row": row.row.label, "group": row.row.group}
    cells |= {name: getattr(row.row.config, name) for _, name in SETTINGS if name != "train_steps"}
    cells["train_steps"] = row.row.config.train_steps
    cells["changed"] = " ".join(f"{name}={value}" for name, value in row.row.changed.items())
    cells |= {"params": row.params, "steps": row.steps, "state": row.state}
    for name, scores in row.scores.items():
        cells |= _parts(name, scores)
        cells |= _parts(f"delta_{name}", row.deltas.get(name, Scores()))
        verdict = verdicts[name]
        found = verdict_json(verdict) if verdict else {}
        cells |= {f"delta_{name}_{part}": found.get(part) for part in ("low", "high", "p", "p_holm", "least_told")}
        cells[f"verdict_{name}"] = found.get("verdict")
        test = found.get("test_set") or {}
        if name != PPL.name:
            cells |= {f"test_set_{name}_{part}": test.get(part) for part in ("low", "high", "p", "p_holm")}
    if timed:
        cells |= {"seconds": row.cost.seconds.mean, "tokens_per_second": row.cost.tokens_per_second.mean}
    cells["flops"] = row.cost.flops
    cells |= {f"paper_{name}": row.paper.scores.get(name) if row.paper else None for name in in_paper}
    return cells


def flat_runs(row: TableRow) -> list[dict[str, Any]]:
    """A row's runs, each with its seed, state and scores; None where there is none yet."""
    runs = []
    for seed, state in row.states.items():
        run: dict[str, Any] = {"row": row.row.label, "seed": seed, "group": row.row.group, "state": state}
        run |= {name: scores.by_seed.get(seed) for name, scores in row.scores.items()}
        run["seconds"] = row.cost.seconds.by_seed.get(seed)
        run["tokens_per_second"] = row.cost.tokens_per_second.by_seed.get(seed)
        runs.append(run)
    return runs


def _parts(name: str, scores: Scores) -> dict[str, Any]:
    return {f"{name}_mean": scores.mean, f"{name}_std": scores.std, f"{name}_n": scores.n}


def as_json(table: Table, timed: bool = True) -> str:
    """The contract for scripts; `timed`: with what a clock has measured."""
    return json.dumps({**table.as_json(timed), "agreement": agreements_json(table)}, indent=1) + "\n"


def _markdown_row(cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"  # type: ignore[attr-defined]


def _rich(layout: Layout) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in layout.columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if column.folds else "ellipsis"  # a long label goes on below
        rich.add_column(Text(column.head), justify=justify, no_wrap=not column.folds, overflow=overflow)
    for cells in zip(*(column.cells for column in layout.columns), strict=True):
        rich.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in cells))
    return rich


def _width(layout: Layout, console: Console) -> int:
    from rich.measure import Measurement

    wide = console.options.update(width=10_000, max_width=10_000)
    return Measurement.get(console, wide, _rich(layout)).maximum
