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
    cells = _groups(table)
    labels = replace(label_column(), legend=partial(_legend, table, setup))
    groups = Column(
        "group",
        "",
        lambda row: row.group,
        lambda row: cells[row.label],
        numeric=False,
        folds=True,
    )
    changes = Column(
        "changed",
        "other",
        lambda row: row.recipe.changed,
        lambda row: row.recipe.other,
        numeric=False,
        folds=True,
        only_filled=True,
        flat=lambda row: " ".join(row.recipe.changes),
    )
    if form.compact:
        groups = replace(groups, text=partial(_group_and_changes, cells))
        changes = replace(changes, text=None)
    if form.labels:  # labels have the group and the changes
        groups = replace(groups, text=None)
        changes = replace(changes, text=None)
    else:
        labels = replace(labels, text=None)
    yield from (labels, verdict_column(table), groups)
    # The settings that most rows change come first on a terminal; ties have the order of Table 3.
    order = sorted(form.settings, key=lambda setting: -_count_changes(table, setting))
    for setting in setup.settings:
        value = partial(_setting, setting)
        column = Column(setting.field, setting.head, value, latex=setting.latex)
        if setting in form.settings:
            text = partial(_setting_cell, table, setting)
            column = replace(column, text=text, priority=SETTING + order.index(setting))
        yield column
    yield changes


def _setting(setting: PaperColumn, row: TableRow) -> Any:
    return row.recipe.settings[setting.field]


def varied_settings(table: Table) -> tuple[PaperColumn, ...]:
    """The settings that some row changes; none if the settings are unknown."""
    changed: set[str] = set()
    for row in table.rows:
        changed.update(row.recipe.changed)
    settings = table.experiment.setup.settings
    return tuple(setting for setting in settings if setting.field in changed)


def _count_changes(table: Table, setting: PaperColumn) -> int:
    """Number of rows that change a setting. Derived changes, such as head sizes that follow from h,
    do not count.
    """
    count = 0
    for row in table.rows:
        direct_changes = row.recipe.changed.keys() - row.recipe.derived
        count += setting.field in direct_changes
    return count


def _legend(table: Table, setup: Setup, form: Form) -> Iterator[str]:
    """Yield the settings of base that have no column, the settings of the parts of designs, and
    the changes of rows whose label does not show them.
    """
    base = table.rows[0]
    hidden = []
    for setting in setup.settings:
        if setting not in form.settings or not form.shows(setting.head):
            hidden.append(f"{setting.head}={_setting_text(base, setting)}")
    if hidden:
        yield f"{'base' if form.labels else 'all rows'}: {', '.join(hidden)}"
    yield f"base also: {setup.base}."
    # A part of several designs has a single line.
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for design in setup.designs:
        for part in design.settings.items():
            groups.setdefault(part, {})[design.group] = None
    for (name, settings), names in groups.items():
        yield f"{name} of {', '.join(names)}: {settings}."
    for row in table.rows:
        if row.recipe.is_labeled:
            yield f"{row.label}: {', '.join(row.recipe.changes)}."


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
