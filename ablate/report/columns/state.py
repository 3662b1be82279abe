"""Rows that are not finished."""

from __future__ import annotations

from ablate.analysis.table import Table
from ablate.report.columns.form import Form, Section
from ablate.report.layout import Column


def _state_columns(table: Table, form: Form) -> list[Column]:
    cells = tuple(row.note for row in table.rows)
    return [Column("state", False, cells, folds=True)] if not form.labels and any(cells) else []


def _state_legend(table: Table, form: Form) -> list[str]:
    """Each note with its rows: `pending: A h=1, B d_k=16`; beside labels, a column would leave no
    space.
    """
    if not form.labels:
        return []
    notes = dict.fromkeys(row.note for row in table.rows if row.note)
    return [
        f"{note}: {', '.join(row.row.label for row in table.rows if row.note == note)}."
        for note in notes
    ]


PENDING = Section(legend=_state_legend)
STATE = Section(_state_columns)
