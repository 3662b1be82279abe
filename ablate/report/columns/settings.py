"""The settings that have a column of their own, as in Table 3 of the paper."""

from __future__ import annotations

from typing import NamedTuple

from ablate.report.table import Table


class Setting(NamedTuple):
    """A column of Table 3.

    head: the paper's symbol.
    field: of the configuration.
    latex: the symbol in LaTeX.
    """

    head: str
    field: str
    latex: str


SETTINGS = (
    Setting("N", "n_layers", "$N$"),
    Setting("d_model", "d_model", r"$d_{\mathrm{model}}$"),
    Setting("d_ff", "d_ff", r"$d_{\mathrm{ff}}$"),
    Setting("h", "n_heads", "$h$"),
    Setting("d_k", "d_k", "$d_k$"),
    Setting("d_v", "d_v", "$d_v$"),
    Setting("P_drop", "dropout", "$P_{drop}$"),
    Setting("eps_ls", "label_smoothing", r"$\epsilon_{ls}$"),
    Setting("steps", "train_steps", "steps"),
)
SETTING_FIELDS = {setting.field for setting in SETTINGS}


def varied_settings(table: Table) -> tuple[Setting, ...]:
    """The settings that some row changes."""
    return tuple(one for one in SETTINGS if changes(table, one))


def changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting."""
    return sum(setting.field in row.row.changed for row in table.rows)
