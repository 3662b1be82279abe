"""Rows: their settings as in Table 3, or their labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ablate.analysis.table import Table, TableRow
from ablate.config import resolve_row
from ablate.config.identity import NOT_IDENTITY
from ablate.config.plugins import without_digest
from ablate.config.resolve import SETTING_FIELDS, SETTINGS, Setting
from ablate.formatting import setting_text, thousands
from ablate.report.columns.form import Form, Section
from ablate.report.columns.settings import own_changes
from ablate.report.layout import ROW, SETTING, Column
from ablate.tasks import Task


def _row_columns(table: Table, form: Form) -> list[Column]:
    rows = table.rows
    settings = [
        Column(one.head, True, _setting_cells(rows, one), latex=one.latex, priority=SETTING + rank)
        for one, rank in zip(form.settings, _ranks(table, form.settings), strict=True)
    ]
    if form.labels:
        return [
            Column("row", False, tuple(row.row.label for row in rows), folds=True, priority=ROW),
            *settings,
        ]
    return [Column("", False, _group_cells(rows), folds=True), *settings, *_other_changes(rows)]


def _ranks(table: Table, settings: Sequence[Setting]) -> list[int]:
    """The place of each setting among all by the number of rows that change it, the most changed
    first.
    """
    # sorted() is stable: settings that as many rows change keep the order of Table 3.
    order = sorted(settings, key=lambda one: -own_changes(table, one))
    return [order.index(one) for one in settings]


def _row_legend(table: Table, form: Form) -> list[str]:
    """The settings without a column, which all rows share or are base's, and those of rows with a
    written label.
    """
    base = table.rows[0]
    hidden = [one for one in SETTINGS if one not in form.settings or not form.shows(one.head)]
    values = ", ".join(f"{one.head}={_setting_value(base, one)}" for one in hidden)
    rows = "base" if form.labels else "all rows"
    labels = []
    for row in table.rows:
        if row.row.is_labeled:
            changed = [
                f"{name}={without_digest(setting_text(value))}"
                for name, value in row.row.changed.items()
            ]
            labels.append(f"{row.row.label}: {', '.join(changed)}.")
    return [
        *([f"{rows}: {values}"] if hidden else []),
        _other_settings(base, table.study.task),
        *labels,
    ]


def _group_cells(rows: tuple[TableRow, ...]) -> tuple[str, ...]:
    """`base`, then the name of each group at its first row, as in the paper: (A)."""
    groups = [row.row.label if row.row.is_base else f"({row.row.group})" for row in rows]
    return (
        groups[0],
        *(group if group != before else "" for before, group in itertools.pairwise(groups)),
    )


def _setting_cells(rows: tuple[TableRow, ...], setting: Setting) -> tuple[str, ...]:
    return tuple(
        _setting_value(row, setting) if index == 0 or setting.field in row.row.changed else ""
        for index, row in enumerate(rows)
    )


def _setting_value(row: TableRow, setting: Setting) -> str:
    if setting.field == "train_steps":
        return thousands(row.steps)
    value = getattr(row.row.config, setting.field)
    return setting_text(value) if isinstance(value, tuple) else str(value)


def _other_changes(rows: tuple[TableRow, ...]) -> list[Column]:
    """Changes of fields that are no columns of Table 3, or the row's label; tuned fields have their
    own column.
    """
    tuned = {name for row in rows if row.row.tuning for name in row.row.tuning.candidates[0].values}
    cells = tuple(
        row.row.label
        if row.row.is_labeled
        else ", ".join(
            f"{name}={without_digest(setting_text(value))}"
            for name, value in row.row.changed.items()
            if name not in SETTING_FIELDS and not (name in tuned and row.row.tuning)
        )
        for row in rows
    )
    return [Column("other", False, cells, folds=True)] if any(cells) else []


def _other_settings(base: TableRow, task: Task) -> str:
    """Base's settings that are no columns of Table 3: batch and decoding, and all that differ from
    the paper's.
    """
    # `resolve_row` without settings gives the paper's base model.
    config, paper = base.row.config, resolve_row({})
    shown = ", ".join(
        f"{name}={without_digest(setting_text(value))}"
        for name, value in config.model_dump().items()
        if name not in SETTING_FIELDS | NOT_IDENTITY
        and (name in task.shown_fields or value != getattr(paper, name))
    )
    return f"base also: {shown}."


ROWS = Section(_row_columns, _row_legend)
