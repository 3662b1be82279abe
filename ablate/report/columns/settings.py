"""The settings that have a column of their own, as in Table 3 of the paper."""

from __future__ import annotations

from ablate.analysis.table import Table
from ablate.config.resolve import SETTINGS, Setting


def varied_settings(table: Table) -> tuple[Setting, ...]:
    """The settings that some row changes."""
    return tuple(one for one in SETTINGS if changes(table, one))


def changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting."""
    return sum(setting.field in row.row.changed for row in table.rows)


def own_changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting by itself: not head sizes that follow from h."""
    rows = [row.row for row in table.rows if setting.field in row.row.changed]
    if setting.field in ("d_k", "d_v"):
        rows = [row for row in rows if not row.config.has_derived_heads(setting.field)]
    return len(rows)
