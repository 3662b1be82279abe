"""HTML from templates: the environment that all of them share, and the table as an element for any web page."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ablate.report.layout import Layout, paper_layout
from ablate.report.table import Table


class Best(str):
    """A cell with the best value of its column."""

    __slots__ = ()


@cache
def environment() -> Environment:
    """Return the environment of `templates/`. Everything that a template is given is escaped."""
    found = Environment(
        # StrictUndefined: a misspelled name in a template is an error and not an empty cell.
        loader=PackageLoader("ablate.page"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    found.filters["parts"] = lambda text: re.split(r"(?<=[=_])", text)  # where a narrow screen may break a label
    found.tests["best"] = lambda cell: isinstance(cell, Best)
    return found


def table_html(table: Table, against_paper: bool = False, with_cost: bool = False) -> str:
    """Return the table as a `<figure>` with its legend, in the paper's layout and without any style."""
    layout = paper_layout(table, Best, against_paper, with_cost, every_setting=False)
    return environment().get_template("table.html").render(table_context(table, layout))


def table_context(table: Table, layout: Layout) -> dict[str, Any]:
    """Return what `table.html` needs."""
    cells = zip(*(column.cells for column in layout.columns), strict=True)
    rows = [
        {"label": row.row.label, "group": row.row.group, "cells": row_cells}
        for row, row_cells in zip(table.rows, cells, strict=True)
    ]
    return {
        "name": table.study.name,
        "columns": layout.columns,
        "groups": [list(group) for _, group in groupby(rows, key=lambda row: row["group"])],
        "legend": layout.legend_with("bold"),
    }
