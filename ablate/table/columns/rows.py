"""Rows: their settings as in Table 3 of the paper, or their labels."""

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
    """Yield the columns that say which row it is."""
    cells = _groups(table)
    labels = replace(label_column(), legend=partial(_legend, table, setup))
    groups = Column(
        "group",
        "",
        lambda row: row.row.group,
        lambda row: cells[row.label],
        numeric=False,
        folds=True,
    )
    others = Column(
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
        beside = partial(_group_and_changes, cells)
        groups, others = replace(groups, text=beside), replace(others, text=None)
    if form.labels:  # they name groups and settings
        groups, others = replace(groups, text=None), replace(others, text=None)
    else:
        labels = replace(labels, text=None)
    yield from (labels, verdict_column(table), groups)
    # The most changed settings come first on a terminal. sorted() is stable: settings that as many
    # rows change keep the order of Table 3.
    order = sorted(form.settings, key=lambda setting: -_own_changes(table, setting))
    for setting in setup.settings:
        value = partial(_setting, setting)
        column = Column(setting.field, setting.head, value, latex=setting.latex)
        if setting in form.settings:
            text = partial(_setting_cell, table, setting)
            column = replace(column, text=text, priority=SETTING + order.index(setting))
        yield column
    yield others


def _setting(setting: PaperColumn, row: TableRow) -> Any:
    return row.recipe.settings[setting.field]


def varied_settings(table: Table) -> tuple[PaperColumn, ...]:
    """The settings that some row changes; none where settings are not known."""
    setup, changed = table.experiment.setup, set[str]()
    if setup is None:
        return ()
    for row in table.rows:
        changed.update(row.recipe.changed)
    return tuple(setting for setting in setup.settings if setting.field in changed)


def _own_changes(table: Table, setting: PaperColumn) -> int:
    """Number of rows that change a setting by itself: not head sizes that follow from h."""
    count = 0
    for row in table.rows:
        own = row.recipe.changed.keys() - row.recipe.derived
        count += setting.field in own
    return count


def _legend(table: Table, setup: Setup, form: Form) -> Iterator[str]:
    """Yield the settings without a column, which all rows share or are base's, those of parts of
    designs, and those of rows with a written label.
    """
    base = table.rows[0]
    hidden = []
    for setting in setup.settings:
        if setting not in form.settings or not form.shows(setting.head):
            hidden.append(f"{setting.head}={_setting_text(base, setting)}")
    if hidden:
        yield f"{'base' if form.labels else 'all rows'}: {', '.join(hidden)}"
    yield f"base also: {setup.base}."
    groups: dict[tuple[str, str], dict[str, None]] = {}  # one line for a part of several designs
    for design in setup.designs:
        for part in design.settings.items():
            groups.setdefault(part, {})[design.group] = None
    for (name, settings), of_groups in groups.items():
        yield f"{name} of {', '.join(of_groups)}: {settings}."
    for row in table.rows:
        if row.recipe.is_labeled:
            yield f"{row.label}: {', '.join(row.recipe.changes)}."


def _groups(table: Table) -> dict[str, str]:
    """`base`, then the name of each group at its first row, as in the paper: (A)."""
    cells, before = {}, ""
    for row in table.rows:
        group = row.label if row.row.is_base else f"({row.row.group})"
        cells[row.label] = group if group != before else ""
        before = group
    return cells


def _group_and_changes(groups: Mapping[str, str], row: TableRow) -> str:
    """`(E) learned positions`; a group that the change repeats stands alone."""
    group, changes = groups[row.label], row.recipe.other
    return group if group == f"({changes})" else f"{group} {changes}".strip()


def _setting_cell(table: Table, setting: PaperColumn, row: TableRow) -> str:
    """The setting of base, and of rows that change it."""
    if row is table.rows[0] or setting.field in row.recipe.changed:
        return _setting_text(row, setting)
    return ""


def _setting_text(row: TableRow, setting: PaperColumn) -> str:
    if setting.field == "train_steps":
        return thousands(row.recipe.steps)
    return setting_text(_setting(setting, row))
