"""The options of a layout, and a section of columns with their legend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ablate.analysis.table import Table
from ablate.config.resolve import Setting
from ablate.report.layout import Column

Mark = Callable[[str], str]  # marks the cell of a best value


@dataclass(frozen=True)
class Form:
    """Options of a layout.

    settings: columns of settings.
    labels: row labels in place of the groups' names.
    left_out: heads of columns that are not shown; the legend has their most important content.
    """

    mark: Mark
    with_paper: bool
    with_cost: bool
    settings: tuple[Setting, ...]
    labels: bool = False
    left_out: frozenset[str] = frozenset()

    def shows(self, head: str) -> bool:
        """Return whether a column with this name is not left out."""
        return head not in self.left_out


class Section(NamedTuple):
    """Columns that belong together, and the legend lines that explain them."""

    columns: Callable[[Table, Form], list[Column]] = lambda table, form: []
    legend: Callable[[Table, Form], list[str]] = lambda table, form: []
