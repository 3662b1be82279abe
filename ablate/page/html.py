"""HTML from templates: their environment, and the table as an element for any web page."""

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
from ablate.table.columns.layouts import paper_layout
from ablate.table.conclusion import conclusion
from ablate.table.layout import Layout
from ablate.table.render import further_tables
from ablate.table.table import Table


class Best(str):
    """A cell with the best value of its column."""

    __slots__ = ()


@cache
def environment() -> Environment:
    """Return the environment of `templates/`. Everything that a template is given is escaped."""
    templates = Environment(
        # StrictUndefined: a misspelled name in a template is an error and not an empty cell.
        loader=PackageLoader("ablate.page"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        finalize=_visible,
    )
    # Where a narrow screen may break a label, beside its spaces.
    templates.filters["parts"] = lambda text: re.split(r"(?<=[=,])", text)
    templates.filters["word_differences"] = word_differences
    templates.filters["base64"] = lambda content: b64encode(content).decode()
    templates.tests["best"] = lambda cell: isinstance(cell, Best)
    return templates


def _visible(value: object) -> object:
    """Escape the characters that would act on the page; markup is made of escaped parts."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def word_differences(text: str, reference: str) -> list[tuple[str, str]]:
    """Compare the words of a text with those of a reference.

    Returns:
        (kind, words) of each part in order: "same" and "other" are parts of the text, "missing" are
        words that only the reference has at this place.
    """
    ours, theirs = text.split(), reference.split()
    parts = []
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    for kind, low, high, first, last in matcher.get_opcodes():
        if kind == "equal":
            parts.append(("same", " ".join(ours[first:last])))
            continue
        if last > first:
            parts.append(("other", " ".join(ours[first:last])))
        if high - low > last - first:
            parts.append(("missing", " ".join(theirs[low + last - first : high])))
    return parts


def table_html(table: Table, against_paper: bool = False, with_cost: bool = False) -> str:
    """Return the conclusion and the table with its legend, in the paper's layout and without any
    style.

    Each design has a table of its own below, and so have several sizes.
    """
    layout = paper_layout(table, Best, against_paper, with_cost, best="bold:", every_setting=False)
    below = {"conclusion": conclusion(table), "further": list(further_tables(table))}
    return environment().get_template("table.html").render(table_context(table, layout) | below)


def table_context(
    table: Table, layout: Layout, *, is_page: bool = False, links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what `table.html` needs.

    Args:
        table: of the study.
        layout: of the table.
        is_page: whether the legend can be folded, as on the page.
        links: by row label, the anchor of the row's runs.
    """
    groups: list[list[dict[str, Any]]] = []
    before, has_chosen = None, False
    for row, cells in zip(table.rows, layout.rows, strict=True):
        if row.row.group != before:
            groups.append([])
        before = row.row.group
        groups[-1].append({"label": row.label, "group": before, "cells": cells})
        recipe = row.row.recipe
        if recipe and not row.row.is_base and (recipe.tuned or recipe.matched):
            has_chosen = True
    return {
        "is_of_study": table.experiment.setup is not None,
        "has_chosen": has_chosen,
        "name": table.experiment.name,
        "columns": layout.columns,
        "groups": groups,
        "legend": layout.legend,
        "warnings": layout.warnings,
        "is_page": is_page,
        "conclusion": [],  # the page has its own, and its own sections for designs
        "further": [],
        "links": links or {},
    }
