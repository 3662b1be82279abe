"""Columns that identify a row: settings as in Table 3 of the paper, or labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ablate.formatting import setting_text, thousands
from ablate.paper import PaperColumn
from ablate.table.columns.column import Column, Form
from ablate.table.columns.differences import verdict_column
from ablate.table.experiment import Setup
from ablate.table.layout import ROW, SETTING
from ablate.table.table import Table, TableRow


def label_column() -> Column:
    """The labels of rows."""
    return Column("row", "row", _label, _label, priority=ROW, numeric=False, folds=True)


def _label(row: TableRow) -> str:
    return row.label


def row_columns(table: Table, setup: Setup, form: Form) -> Iterator[Column]:
    """Yield the columns that identify a row."""
    labels = replace(label_column(), legend=partial(_legend, table, setup))
    groups = Column("group", "row", lambda row: row.group, numeric=False, folds=True)
    if form.as_paper:
        labels = replace(labels, text=None)
        groups = replace(groups, text=partial(_group_and_changes, _groups(table)))
    yield from (labels, verdict_column(table), groups)
    for setting in setup.settings:
        text = partial(_setting_cell, table, setting) if form.as_paper else None
        value = partial(_setting, setting)
        yield Column(setting.field, setting.head, value, text, priority=SETTING)
    yield Column(
        "changed",
        value=lambda row: row.recipe.changed,
        flat=lambda row: " ".join(row.recipe.changes),
    )


def _setting(setting: PaperColumn, row: TableRow) -> Any:
    return row.recipe.settings[setting.field]


def _legend(table: Table, setup: Setup, form: Form) -> Iterator[str]:
    """Yield the settings of base that have no column, and the settings that labels do not show."""
    if form.as_paper:
        yield f"base also: {setup.base}."
    else:
        base = table.rows[0]
        texts = [f"{column.head}={_setting_text(base, column)}" for column in setup.settings]
        sentences = [
            f"base: {', '.join(filter(None, [*texts, setup.base]))}.",
            derived_heads(table),
        ]
        yield " ".join(filter(None, sentences))
    for label, settings in settings_of_labels(table):
        yield f"{label}: {settings}."


def settings_of_labels(table: Table) -> Iterator[tuple[str, str]]:
    """Yield (label, settings) of the parts of designs, `modern of F`, and of the rows whose label
    does not show their changes.
    """
    # A part of several designs is yielded once.
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for design in table.experiment.setup.designs:
        for part in design.settings.items():
            groups.setdefault(part, {})[design.group] = None
    for (name, settings), names in groups.items():
        yield f"{name} of {', '.join(names)}", settings
    for row in table.rows:
        if row.recipe.is_labeled:
            yield row.label, ", ".join(row.recipe.changes)


def derived_heads(table: Table) -> str:
    """The sentence on sizes of heads that follow from changes of rows and are not in their labels;
    empty if there are none.
    """
    derived = set[str]()
    for row in table.rows:
        if not row.recipe.is_labeled:
            derived.update(row.recipe.derived)
    if not derived:
        return ""
    sizes = " = ".join([*sorted(derived), "d_model / h"])
    return f"Rows that change h or d_model have {sizes}, unless they set another value."


def _groups(table: Table) -> dict[str, str]:
    """The cells of the column of groups, by label: `base`, then `(A)` at the first row of a
    group.
    """
    cells = {}
    previous = ""
    for row in table.rows:
        group = row.label if row.is_base else f"({row.group})"
        cells[row.label] = group if group != previous else ""
        previous = group
    return cells


def _group_and_changes(groups: Mapping[str, str], row: TableRow) -> str:
    """`(E) learned positions`; only the group if its name equals the change."""
    group, changes = groups[row.label], row.recipe.other
    return group if group == f"({changes})" else f"{group} {changes}".strip()


def _setting_cell(table: Table, setting: PaperColumn, row: TableRow) -> str:
    """The value of a setting in base and in rows that change it; empty in other rows."""
    if row is table.rows[0] or setting.field in row.recipe.changed:
        return _setting_text(row, setting)
    return ""


def _setting_text(row: TableRow, setting: PaperColumn) -> str:
    if setting.field == "train_steps":
        return thousands(row.recipe.steps)
    return setting_text(_setting(setting, row))
