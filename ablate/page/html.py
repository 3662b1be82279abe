"""HTML from templates: their environment, and the table as an element of any web page."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ablate.formatting import visible
from ablate.table.columns.layouts import full_layout
from ablate.table.conclusion import conclusion
from ablate.table.layout import Layout
from ablate.table.render import further_tables
from ablate.table.table import Table


class Best(str):
    """A cell with the best value of its column."""

    __slots__ = ()


@cache
def environment() -> Environment:
    """The environment of `templates/`. All values in templates are escaped."""
    templates = Environment(
        # StrictUndefined: a misspelled name in a template is an error and not an empty cell.
        loader=PackageLoader("ablate.page"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    # A narrow screen may break a label at these positions, besides its spaces.
    templates.filters["parts"] = lambda text: re.split(r"(?<=[=,])", text)
    templates.filters["with_code"] = with_code
    templates.filters["word_differences"] = word_differences
    templates.filters["base64"] = lambda content: b64encode(content).decode()
    templates.tests["best"] = lambda cell: isinstance(cell, Best)
    return templates


def _visible(value: object) -> object:
    """Escape control characters in text; markup is escaped already."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def with_code(text: str) -> Markup:
    """A sentence as HTML, with the parts between backticks as code."""
    pieces = re.split(r"`([^`]+)`", visible(text))
    for index in range(1, len(pieces), 2):
        pieces[index] = Markup("<code>{}</code>").format(pieces[index])
    return Markup("").join(pieces)


def word_differences(text: str, reference: str) -> list[tuple[str, str]]:
    """Compare the words of a text with the words of a reference.

    Returns:
        (kind, words) of each part in order: "same" and "other" are parts of the text, "missing" are
        words that only the reference has.
    """
    ours = text.split()
    theirs = reference.split()
    parts = []
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    for operation, low, high, first, last in matcher.get_opcodes():
        if operation == "equal":
            parts.append(("same", " ".join(ours[first:last])))
            continue
        if last > first:
            parts.append(("other", " ".join(ours[first:last])))
        if high - low > last - first:
            parts.append(("missing", " ".join(theirs[low + last - first : high])))
    return parts


def table_html(table: Table, against_paper: bool = False, with_cost: bool = False) -> str:
    """The conclusion, the table with all columns, and its legend, as HTML without style. The
    tables over sizes and of designs are below.
    """
    layout = full_layout(table, Best, "bold:", against_paper, with_cost)
    context = table_context(table, layout)
    context |= {"conclusion": conclusion(table), "further": list(further_tables(table))}
    return environment().get_template("table.html").render(context)


def table_context(
    table: Table, layout: Layout, *, is_page: bool = False, links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The variables of `table.html`.

    Args:
        table: the table.
        layout: its layout.
        is_page: whether the table is on the page, where the legend can be folded.
        links: anchor of the runs of each row, by label.
    """
    groups: list[list[dict[str, Any]]] = []
    rules = table.rules
    has_chosen = False
    for index, (row, cells) in enumerate(zip(table.rows, layout.rows, strict=True)):
        if not index or index in rules:
            groups.append([])
        groups[-1].append({"label": row.label, "cells": cells})
        if not row.is_base and (row.recipe.tuned or row.recipe.matched):
            has_chosen = True
    return {
        "is_of_study": table.experiment.is_study,
        "has_chosen": has_chosen,
        "name": table.experiment.name,
        "columns": layout.columns,
        "groups": groups,
        "legend": layout.explanations if is_page else layout.legend,
        "warnings": layout.warnings,
        "is_page": is_page,
        "conclusion": [],  # the page has a section for it, and one for each design
        "further": [],
        "links": links or {},
    }
