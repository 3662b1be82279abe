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
