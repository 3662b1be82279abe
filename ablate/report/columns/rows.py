"""Rows: their settings as in Table 3 of the paper, or their labels."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ablate.analysis.table import Table, TableRow
from ablate.config import resolve_row
from ablate.config.identity import NOT_IDENTITY
from ablate.config.plugins import settings_text
from ablate.config.resolve import SETTING_FIELDS, SETTINGS, Setting
from ablate.formatting import setting_text, thousands
from ablate.report.columns.column import Column, Form
from ablate.report.layout import ROW, SETTING


def label_column(table: Table | None = None, *, is_shown: bool = True) -> Column:
    """The labels of rows; with the legend of their settings if the rows of the table have some."""
    return Column(
        "row",
        "row",
        lambda row: row.row.label,
        (lambda row: row.row.label) if is_shown else None,
        partial(_legend, table) if table else lambda form: (),
        ROW,
        numeric=False,
        folds=True,
    )


def row_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the columns that say which row it is."""
    groups = _groups(table)
    yield label_column(table, is_shown=form.labels)
    yield Column(
        "group",
        "",
        lambda row: row.row.group,
        None if form.labels else lambda row: groups[row.row.label],
        numeric=False,
        folds=True,
    )
    # The most changed settings come first on a terminal. sorted() is stable: settings that as many
    # rows change keep the order of Table 3.
    order = sorted(form.settings, key=lambda setting: -_own_changes(table, setting))
    for setting in SETTINGS:
        shown = setting in form.settings
        yield Column(
            setting.field,
            setting.head,
            partial(_setting, setting),
            partial(_setting_cell, table, setting) if shown else None,
            priority=SETTING + (order.index(setting) if shown else 0),
            latex=setting.latex,
        )
    yield Column(
        "changed",
        "other",
        lambda row: row.row.changed,
        None if form.labels else partial(_other_changes, _tuned_fields(table)),
        numeric=False,
        folds=True,
        only_filled=True,
    )


def varied_settings(table: Table) -> tuple[Setting, ...]:
    """The settings that some row changes."""
    changed = {name for row in table.rows for name in row.row.changed}
    return tuple(setting for setting in SETTINGS if setting.field in changed)


def _own_changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting by itself: not head sizes that follow from h."""
    count, name = 0, setting.field
    for row in table.rows:
        follows = name in ("d_k", "d_v") and row.row.config.has_derived_heads(name)
        count += name in row.row.changed and not follows
    return count


def _legend(table: Table, form: Form) -> Iterator[str]:
    """Yield the settings without a column, which all rows share or are base's, and those of rows
    with a written label.
    """
    base = table.rows[0]
    hidden = []
    for setting in SETTINGS:
        if setting not in form.settings or not form.shows(setting.head):
            hidden.append(f"{setting.head}={_setting_text(base, setting)}")
    if hidden:
        yield f"{'base' if form.labels else 'all rows'}: {', '.join(hidden)}"
    yield f"base also: {settings_text(_other_settings(base, table))}."
    for row in table.rows:
        if row.row.is_labeled:
            yield f"{row.row.label}: {settings_text(row.row.changed)}."


def _groups(table: Table) -> dict[str, str]:
    """`base`, then the name of each group at its first row, as in the paper: (A)."""
    cells, before = {}, ""
    for row in table.rows:
        group = row.row.label if row.row.is_base else f"({row.row.group})"
        cells[row.row.label] = "" if group == before else group
        before = group
    return cells


def _setting(setting: Setting, row: TableRow) -> object:
    return getattr(row.row.config, setting.field)


def _setting_cell(table: Table, setting: Setting, row: TableRow) -> str:
    """The setting of base, and of rows that change it."""
    shown = row is table.rows[0] or setting.field in row.row.changed
    return _setting_text(row, setting) if shown else ""


def _setting_text(row: TableRow, setting: Setting) -> str:
    if setting.field == "train_steps":
        return thousands(row.steps)
    value = _setting(setting, row)
    return setting_text(value) if isinstance(value, tuple) else str(value)


def _tuned_fields(table: Table) -> set[str]:
    tuned = set[str]()
    for row in table.rows:
        if row.row.tuning:
            tuned |= row.row.tuning.candidates[0].values.keys()
    return tuned


def _other_changes(tuned: set[str], row: TableRow) -> str:
    """Changes of fields that are no columns of Table 3, or the row's label; tuned fields have their
    own column.
    """
    if row.row.is_labeled:
        return row.row.label
    with_column = SETTING_FIELDS | tuned if row.row.tuning else SETTING_FIELDS
    changed = row.row.changed.items()
    return settings_text({name: value for name, value in changed if name not in with_column})


def _other_settings(base: TableRow, table: Table) -> dict[str, object]:
    """Base's settings that are no columns of Table 3: batch and decoding, and all that differ from
    the paper's.
    """
    # `resolve_row` without settings gives the paper's base model.
    paper, always = resolve_row({}), table.study.task.shown_fields
    settings = {}
    for name, value in base.row.config.model_dump().items():
        # `probes` follows from the metrics; who reads it here would write it, which is refused.
        if name in SETTING_FIELDS | NOT_IDENTITY | {"probes"}:
            continue
        if name in always or value != getattr(paper, name):
            settings[name] = value
    return settings
