"""The table as a pandas data frame, which the CSV format prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.table.columns.column import Form, flat_rows
from ablate.table.columns.layouts import table_columns
from ablate.table.table import Table

if TYPE_CHECKING:
    import pandas as pd


def rows_frame(table: Table, timed: bool = True, with_paper: bool = True) -> pd.DataFrame:
    """A data frame with a line for each row, indexed by its label; see `ablate.load`.

    Args:
        table: the table.
        timed: whether to add measured times.
        with_paper: whether to add the paper's scores, if the paper has a table for the task.
    """
    import pandas as pd

    columns = table_columns(table, Form(timed=timed, with_paper=with_paper))
    frame = pd.DataFrame(flat_rows(columns, table)).set_index("row")
    # Int64 is the integer type of pandas that allows missing values. A column of missing values
    # would have the type object, so it becomes a column of floats.
    types: dict[str, Any] = {"train_steps": "Int64", "steps": "Int64"}
    for name in frame.columns[frame.isna().all()]:
        if not name.startswith("verdict"):
            types.setdefault(name, float)
    typed: pd.DataFrame = frame.astype({name: types[name] for name in types if name in frame})
    return typed
