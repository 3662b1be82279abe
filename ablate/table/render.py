"""The table on a terminal, in Markdown, CSV and JSON, and as a data frame of pandas."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ablate.formatting import visible
from ablate.stats.significance import LEVEL
from ablate.stdio import print_line, whole_lines, widen
from ablate.table.agreement import agreements_json
from ablate.table.columns.column import Form, flat_rows, json_rows
from ablate.table.columns.layouts import full_layout, table_columns, terminal_layout
from ablate.table.conclusion import conclusion
from ablate.table.designs import design_effects, effects_layout
from ablate.table.ladder import ladder_layout, ladders
from ablate.table.layout import Layout
from ablate.table.table import Table

_ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")  # not `<0.001`

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console
    from rich.table import Table as RichTable


def print_rich(
    table: Table,
    console: Console,
    against_paper: bool,
    with_cost: bool = False,
    wide: bool = False,
    whole_legend: bool = False,
) -> None:
    """Print the conclusion, the table and its legend: on a terminal the most important columns that
    fit into its width, and a short legend. With `wide`, a terminal has all columns, too, and with
    `whole_legend`, the whole legend.
    """
    everything = wide or not console.is_terminal
    width = None if everything else console.width
    layout = terminal_layout(table, "{}*".format, against_paper, with_cost, width)
    for sentence in conclusion(table):
        console.print(sentence, soft_wrap=everything)
    console.print()
    rich = _rich(layout)
    if everything:
        widen(console, rich)
    # In a very narrow terminal, the verdicts are lines of the legend.
    has_verdicts = "verdict" in [column.name for column in layout.columns]
    is_short = console.is_terminal and not whole_legend and has_verdicts
    _print_layout(console, rich, layout, everything, is_short)
    for title, below in further_tables(table):
        console.print(f"\n{title}", style="bold")
        _print_layout(console, _rich(below, folds=True), below, everything, is_short)
    if is_short and len(layout.short_legend) < len(layout.legend):
        command = table.experiment.setup.command
        console.print(f"`{command} --legend` explains every column.", style="dim")


def _print_layout(
    console: Console, rich: RichTable, layout: Layout, everything: bool, is_short: bool
) -> None:
    if console.is_terminal:
        console.print(rich)
    else:
        print_line(console, whole_lines(console, rich))
    for line in layout.short_legend if is_short else layout.legend:
        console.print(line, style="dim", soft_wrap=everything)


def markdown(table: Table, against_paper: bool, with_cost: bool = False) -> str:
    """The conclusion, the table and its legend in Markdown."""
    layout = full_layout(table, "**{}**".format, "**bold**:", against_paper, with_cost)
    blocks = [_markdown_list(conclusion(table)), _markdown_table(layout)]
    for title, below in further_tables(table):
        blocks.append(f"### {_markdown_text(title)}\n\n{_markdown_table(below)}")
    return "\n".join(blocks)


def further_tables(table: Table) -> Iterator[tuple[str, Layout]]:
    """Yield (title, table) of the tables below the results: over sizes, and effects of designs."""
    for ladder in ladders(table):
        yield f"Over sizes: Δ{ladder.metric.title}", ladder_layout(ladder)
    for design in design_effects(table):
        yield design.title, effects_layout(table, design)


def _markdown_table(layout: Layout) -> str:
    heads, rules = [], []
    for column in layout.columns:
        heads.append(column.flat_head)
        rules.append("---:" if column.numeric else "---")
    rows = "\n".join(map(_markdown_row, (heads, rules, *layout.rows)))
    return f"{rows}\n\n{_markdown_list(layout.legend)}"


def _markdown_list(lines: Iterable[str]) -> str:
    return "".join(f"- {_markdown_text(line)}\n" for line in lines)


def rows_frame(table: Table, timed: bool = True, with_paper: bool = True) -> pd.DataFrame:
    """A data frame with a line for each row, indexed by its label; see `ablate.load`.

    Args:
        table: the table.
        timed: whether to add measured times.
        with_paper: whether to add the paper's scores, if the paper has a table for the task.
    """
    import pandas as pd

    columns = table_columns(table, Form(timed=timed, with_paper=with_paper))
    frame = pd.DataFrame(flat_rows(columns, table)).set_index("row")
    # Int64 is the integer type of pandas that allows missing values. A column of missing values
    # would have the type object, so it becomes a column of floats.
    types: dict[str, Any] = {"train_steps": "Int64", "steps": "Int64"}
    for name in frame.columns[frame.isna().all()]:
        if not name.startswith("verdict"):
            types.setdefault(name, float)
    typed: pd.DataFrame = frame.astype({name: types[name] for name in types if name in frame})
    return typed


def comma_separated(table: Table, timed: bool = True, with_paper: bool = False) -> str:
    """The rows as CSV, numbers in full; the options are those of `rows_frame`."""
    lines = flat_rows(table_columns(table, Form(timed=timed, with_paper=with_paper)), table)
    text = io.StringIO()
    # Not by a data frame: pandas takes 70 MB and half a second to import.
    writer = csv.DictWriter(text, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def as_json(table: Table, timed: bool = True) -> str:
    """The table and its agreement with the paper as JSON, for scripts; `timed` adds measured times,
    which differ between repetitions of a study.
    """
    experiment = table.experiment
    content: dict[str, Any] = {"study": experiment.name, "conclusion": conclusion(table)}
    content |= experiment.looks.as_json()
    if experiment.error_rate > LEVEL:
        content["error"] = experiment.error_rate
    content["metrics"] = [metric.name for metric in table.shown_metrics]
    content["judge"] = [metric.name for metric in table.judged_metrics]
    content["log_scale"] = [metric.name for metric in table.shown_metrics if metric.is_log]
    if experiment.setup.decoding is not None:
        content["decoding"] = experiment.setup.decoding.content
    content["rows"] = json_rows(table_columns(table, Form(timed=timed)), table)
    content["signatures"] = experiment.signatures
    content["corpora"] = list(experiment.corpora)
    notes = experiment.notes
    content["remarks"] = [*notes.archived, *notes.advised_remarks, *notes.text_sentences]
    content["remarks"] += notes.faults
    for key, further in (("designs", design_effects(table)), ("sizes", ladders(table))):
        if further:
            content[key] = [section.as_json() for section in further]
    content["agreement"] = agreements_json(table)
    return json.dumps(content, indent=1) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    texts = [_markdown_text(cell).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(texts)} |"


def _markdown_text(text: str) -> str:
    """Text on a single line, with HTML and links escaped, because it may come from a stranger."""
    return _ELEMENT.sub("&lt;", visible(" ".join(text.splitlines()))).replace("](", "]\\(")


def _rich(layout: Layout, folds: bool = False) -> RichTable:
    """The table for a terminal; with `folds`, wide cells are broken into several lines."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in layout.columns:
        rich.add_column(
            Text(column.head),
            justify="right" if column.numeric else "left",
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    for row in layout.rows:
        cells = list(map(Text, row))
        for cell in cells:
            if cell.plain.endswith("*"):
                cell.style = "bold"
        rich.add_row(*cells)
    return rich
