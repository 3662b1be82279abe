"""The table as a part of a web page: marked up so that a screen reader tells heads from cells."""

from __future__ import annotations

from html import escape

from ablate.report.columns import Column
from ablate.report.layout import Layout, layouts
from ablate.report.table import Table

_BEST = "\N{START OF HEADING}"  # stands for the mark of a best value until the text is escaped


def html(table: Table, against_paper: bool = False, with_cost: bool = False) -> str:
    """A `<figure>` with the table, grouped as the paper's, and its legend; it brings no style of its own."""
    return table_html(table, layouts(table, mark, against_paper, with_cost)[1])


def mark(text: str) -> str:
    """Mark a best value until the text is escaped."""
    return f"{_BEST}{text}"


def table_html(table: Table, layout: Layout) -> str:
    """A `<figure>` with one layout of the table."""
    lines = [
        f'<figure class="scores" id="scores-{escape(table.study.name)}">',
        '<div class="wide"><table>',
        f"<caption>Ablation study {escape(table.study.name)}: each row is base but for what it shows.</caption>",
        f"<thead><tr>{''.join(map(_head, layout.columns))}</tr></thead>",
        *_groups(table, layout),
        "</table></div>",
        "<figcaption><ul>",
        *(f"<li>{escape(line.replace('* best', 'bold: best'))}</li>" for line in layout.legend),
        "</ul></figcaption>",
        "</figure>",
    ]
    return "\n".join(lines) + "\n"


def _head(column: Column) -> str:
    text = escape(column.head).replace("\n", "<br>") or "row"
    return f'<th scope="col"{_class(column)}>{text}</th>'


def _class(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _groups(table: Table, layout: Layout) -> list[str]:
    """A `<tbody>` a group."""
    lines: list[str] = []
    for index, row in enumerate(table.rows):
        if index == 0 or row.row.group != table.rows[index - 1].row.group:
            lines += ["</tbody>"] * bool(lines) + ["<tbody>"]
        label = escape(row.row.label, quote=True)
        shown = _breakable(layout.columns[0].cells[index]) or f'<span class="again">({escape(row.row.group)})</span>'
        cells = "".join(_cell(column, index) for column in layout.columns[1:])
        lines.append(f'<tr data-row="{label}"><th scope="row" title="{label}">{shown}</th>{cells}</tr>')
    return [*lines, "</tbody>"]


def _breakable(label: str) -> str:
    """A label that a narrow screen breaks where its words end."""
    return escape(label).replace("_", "_<wbr>").replace("=", "=<wbr>")


def _cell(column: Column, index: int) -> str:
    text = column.cells[index]
    shown = escape(text.removeprefix(_BEST))
    if text.startswith(_BEST):
        shown = f"<strong>{shown}</strong>"
    word = f' class="{text}"' if column.head == "verdict" and text in ("worse", "better") else ""
    return f"<td{_class(column) or word}>{shown}</td>"
