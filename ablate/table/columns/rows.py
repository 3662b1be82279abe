"""Rows: their settings as in Table 3 of the paper, or their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter

from ablate.analysis.table import Table, TableRow
from ablate.config import resolve_row
from ablate.config.identity import INTRODUCED_DECODING, NOT_IDENTITY
from ablate.config.resolve import SETTING_FIELDS, SETTINGS, Setting
from ablate.formatting import setting_text, thousands
from ablate.own.reference import settings_text
from ablate.table.columns.column import Column, Form
from ablate.table.columns.differences import verdict_column
from ablate.table.layout import ROW, SETTING


def label_column() -> Column:
    """The labels of rows."""
    return Column("row", "row", _label, _label, priority=ROW, numeric=False, folds=True)


def _label(row: TableRow) -> str:
    return row.row.label


def row_columns(table: Table, form: Form) -> Iterator[Column]:
    """Yield the columns that say which row it is."""
    cells = _groups(table)
    labels = replace(label_column(), legend=partial(_legend, table))
    groups = Column(
        "group",
        "",
        lambda row: row.row.group,
        lambda row: cells[row.row.label],
        numeric=False,
        folds=True,
    )
    others = Column(
        "changed",
        "other",
        lambda row: row.row.changed,
        _other_changes,
        numeric=False,
        folds=True,
        only_filled=True,
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
    for setting in SETTINGS:
        value = attrgetter(f"row.config.{setting.field}")
        column = Column(setting.field, setting.head, value, latex=setting.latex)
        if setting in form.settings:
            text = partial(_setting_cell, table, setting)
            column = replace(column, text=text, priority=SETTING + order.index(setting))
        yield column
    yield others


def varied_settings(table: Table) -> tuple[Setting, ...]:
    """The settings that some row changes."""
    changed = set[str]()
    for row in table.rows:
        changed.update(row.row.changed)
    return tuple(setting for setting in SETTINGS if setting.field in changed)


def _own_changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting by itself: not head sizes that follow from h."""
    count, name = 0, setting.field
    for row in table.rows:
        follows = name in ("d_k", "d_v") and row.row.config.has_derived_heads(name)
        count += name in row.row.changed and not follows
    return count


def _legend(table: Table, form: Form) -> Iterator[str]:
    """Yield the settings without a column, which all rows share or are base's, those of parts of
    designs, and those of rows with a written label.
    """
    base = table.rows[0]
    hidden = []
    for setting in SETTINGS:
        if setting not in form.settings or not form.shows(setting.head):
            hidden.append(f"{setting.head}={_setting_text(base, setting)}")
    if hidden:
        yield f"{'base' if form.labels else 'all rows'}: {', '.join(hidden)}"
    yield f"base also: {settings_text(_other_settings(base, table))}."
    groups: dict[tuple[str, str], dict[str, None]] = {}  # one line for a part of several designs
    for design in table.study.designs:
        for part in design.settings.items():
            groups.setdefault(part, {})[design.group] = None
    for (name, settings), of_groups in groups.items():
        yield f"{name} of {', '.join(of_groups)}: {settings}."
    for row in table.rows:
        if row.row.is_labeled:
            yield f"{row.row.label}: {settings_text(row.row.changed)}."


def _groups(table: Table) -> dict[str, str]:
    """`base`, then the name of each group at its first row, as in the paper: (A)."""
    cells, before = {}, ""
    for row in table.rows:
        group = row.row.label if row.row.is_base else f"({row.row.group})"
        cells[row.row.label] = group if group != before else ""
        before = group
    return cells


def _group_and_changes(groups: Mapping[str, str], row: TableRow) -> str:
    """`(E) learned positions`; a group that the change repeats stands alone."""
    group, changes = groups[row.row.label], _other_changes(row)
    return group if group == f"({changes})" else f"{group} {changes}".strip()


def _setting_cell(table: Table, setting: Setting, row: TableRow) -> str:
    """The setting of base, and of rows that change it."""
    if row is table.rows[0] or setting.field in row.row.changed:
        return _setting_text(row, setting)
    return ""


def _setting_text(row: TableRow, setting: Setting) -> str:
    if setting.field == "train_steps":
        return thousands(row.steps)
    return setting_text(getattr(row.row.config, setting.field))


def _other_changes(row: TableRow) -> str:
    """Changes of fields that are no columns of Table 3, or a label that does not show them; chosen
    fields have their own column.
    """
    if row.row.is_labeled or row.row.has_parts:
        return row.row.label
    with_column = set(SETTING_FIELDS)
    if row.row.choice:
        with_column.update(row.row.choice.candidates[0].values)
    changed = row.row.changed.items()
    return settings_text({name: value for name, value in changed if name not in with_column})


def _other_settings(base: TableRow, table: Table) -> dict[str, object]:
    """Base's settings without a column: batch, decoding, and all that is not the paper's.

    A decoding field counts from its first default, so that tables of older results keep their text.
    """
    # `resolve_row` without settings gives the paper's base model.
    paper = {**resolve_row({}).model_dump(), **INTRODUCED_DECODING}
    always = table.study.task.shown_fields
    settings = {}
    for name, value in base.row.config.model_dump().items():
        # `probes` follows from the metrics; who reads it here would write it, which is refused.
        if name in SETTING_FIELDS | NOT_IDENTITY | {"probes"}:
            continue
        if name in always or value != paper[name]:
            settings[name] = value
    return settings
