"""The table as the paper lays it out: base full, other rows blank where they are as base."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from ablate.config import resolve_row
from ablate.config.identity import NOT_IDENTITY
from ablate.config.metrics import PPL, PPL_CHAR
from ablate.config.plugins import without_digest
from ablate.formatting import setting_text, thousands
from ablate.report import columns
from ablate.report.agreement import agreement_lines
from ablate.report.columns import Column, Mark
from ablate.report.table import Table, TableRow

# Table 3's columns: the paper's letter, and the field.
SETTINGS = (
    ("N", "n_layers"), ("d_model", "d_model"), ("d_ff", "d_ff"), ("h", "n_heads"), ("d_k", "d_k"), ("d_v", "d_v"),
    ("P_drop", "dropout"), ("eps_ls", "label_smoothing"), ("steps", "train_steps"),
)  # fmt: skip
_SETTING_FIELDS = {name for _, name in SETTINGS}
_ALWAYS_TOLD = ("batch_tokens", "warmup_steps", "beam", "alpha")


@dataclass(frozen=True)
class Layout:
    """Columns, and lines under the table."""

    columns: tuple[Column, ...]
    legend: tuple[str, ...]


Settings = Callable[[Table], list[tuple[str, str]]]


def layouts(table: Table, mark: Mark, against_paper: bool, with_cost: bool = False) -> list[Layout]:
    """The table's layouts, widest first.

    The paper's; without settings that no row changes; with the verdict alone of what is against base; by row labels;
    and with the verdicts below the table.
    """
    forms = ((_all, 2), (_varying, 2), (_varying, 1), (None, 2), (None, 1), (None, 0))
    return [_lay_out(table, mark, against_paper, with_cost, settings, detail) for settings, detail in forms]


def by_labels(table: Table, mark: Mark) -> Layout:
    """Every column but the settings, which the row's label stands for: rows may be sorted."""
    layout = _lay_out(table, mark, against_paper=False, with_cost=True, settings=None, detail=2)
    label, *others = layout.columns
    ordered = sorted(others, key=lambda column: column.head != "verdict")  # beside the label, where nobody scrolls
    return replace(layout, columns=(label, *ordered))


def _lay_out(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool, settings: Settings | None, detail: int
) -> Layout:
    """One layout.

    `settings` picks the columns of settings, None puts the row's label in their place. `detail` of what is against
    base: 2 differences, intervals and verdicts, 1 verdicts alone, 0 verdicts below the table.
    """
    rows = table.rows
    legend = [_beside(rows[0]), *_legend(table), *columns.meaning(table, detail == 2)]
    if settings is None:
        shown = [Column("row", False, tuple(row.row.label for row in rows), folds=True)]
        legend = [f"base: {_everything(table)}", *legend, *_notes(rows)]  # a column of notes would leave no room
    else:
        varied = settings(table)
        shown = [Column("", False, _groups(rows), folds=True), *(_setting(rows, head, name) for head, name in varied)]
        shown += _other(rows)
        hidden = [(head, name) for head, name in SETTINGS if (head, name) not in varied]
        if hidden:
            same = ", ".join(f"{head}={_value(rows[0], name)}" for head, name in hidden)
            legend = [f"all rows: {same}", *legend]
    shown += columns.scores(table, mark)
    shown += columns.against_base(table) if detail == 2 else []
    shown.append(columns.parameters(table))
    if with_cost:
        shown += columns.costs(table)
        legend += columns.costs_meaning(table)
    if against_paper:
        shown += columns.paper(table)
        legend += _paper_legend(table)
    if detail:
        shown += columns.verdict(table)
    else:
        legend += columns.verdict_lines(table)
    if settings is not None and any(row.note for row in rows):
        shown.append(Column("state", False, tuple(row.note for row in rows), folds=True))
    return Layout(tuple(shown), tuple(legend))


def _notes(rows: tuple[TableRow, ...]) -> list[str]:
    """Each note with the rows that it is of: `pending: A h=1, B d_k=16`."""
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return [f"{note}: {', '.join(row.row.label for row in rows if row.note == note)}." for note in notes]


def _all(table: Table) -> list[tuple[str, str]]:
    return list(SETTINGS)


def _varying(table: Table) -> list[tuple[str, str]]:
    return [(head, name) for head, name in SETTINGS if any(name in row.row.changed for row in table.rows)]


def _everything(table: Table) -> str:
    return ", ".join(f"{head}={_value(table.rows[0], name)}" for head, name in SETTINGS)


def _groups(rows: tuple[TableRow, ...]) -> tuple[str, ...]:
    """`base`, then each group's name at its first row, as in the paper: (A)."""
    groups = [row.row.group for row in rows]
    return ("base", *(f"({now})" if now != before else "" for before, now in itertools.pairwise(groups)))


def _setting(rows: tuple[TableRow, ...], head: str, name: str) -> Column:
    cells = [_value(row, name) if i == 0 or name in row.row.changed else "" for i, row in enumerate(rows)]
    return Column(head, True, tuple(cells))


def _value(row: TableRow, name: str) -> str:
    if name == "train_steps":
        return thousands(row.steps)
    return str(getattr(row.row.config, name))


def _other(rows: tuple[TableRow, ...]) -> list[Column]:
    """Changes of fields that have no column in the paper."""
    cells = [
        ", ".join(
            f"{name}={without_digest(setting_text(value))}"
            for name, value in row.row.changed.items()
            if name not in _SETTING_FIELDS
        )
        for row in rows
    ]
    return [Column("other", False, tuple(cells), folds=True)] if any(cells) else []


def _paper_legend(table: Table) -> list[str]:
    paper = table.study.task.paper
    if paper is None:
        return [f"paper: has no table for task {table.study.task.name}."]
    lines = [f"paper: {paper.title}'s row with the same change to its base ({paper.measured_on})."]
    base = table.study.base.config
    shape = ("n_layers", "d_model", "d_ff")
    if any(getattr(base, name) != paper.base[name] for name in shape) or table.study.data.corpus != paper.corpus:
        lines.append("This study's base or corpus is not the paper's: compare the order of rows, not their values.")
    return [*lines, *agreement_lines(table)]


def _beside(base: TableRow) -> str:
    """What base is beside the columns: how it is fed and decoded, and all that is not as in the paper."""
    config, usual = base.row.config, resolve_row({})
    told = {
        name: value
        for name, value in config.model_dump().items()
        if name not in _SETTING_FIELDS | NOT_IDENTITY and (name in _ALWAYS_TOLD or value != getattr(usual, name))
    }
    return f"base also: {', '.join(f'{name}={without_digest(setting_text(value))}' for name, value in told.items())}."


def _legend(table: Table) -> list[str]:
    seeds, data = len(table.study.seeds), table.study.data
    lines = []
    for metric in table.metrics:
        signature = "; ".join(table.signatures[metric.name]) or "(nothing scored yet)"
        if metric.name in table.study.task.on_predictions:
            signature = f"test={data.test}, {metric.scorer} {signature}"
        lines.append(f"{metric.title}: {signature}.")
    if len(table.vocabularies) > 1:
        lines.append(
            f"Vocabularies differ: compare {PPL_CHAR.title}, the perplexity per character, and not {PPL.title}."
        )
    if seeds > 1:
        lines.append(f"Mean ± standard deviation over n = {seeds} seeds; k/{seeds} where only k are in.")
    marked = any(table.best(metric.name) is not None for metric in table.metrics)
    lines.append("* best; blank: as base." if marked else "Blank: as base.")
    if len(table.corpora) > len(table.vocabularies):
        lines.append(f"WARNING: these results mix corpora {', '.join(table.corpora)}: they cannot be compared.")
    return [*lines, *table.remarks]


def bare(layout: Layout) -> Layout:
    """The layout with heads on one line, for formats without line breaks in a cell."""
    flat = tuple(replace(column, head=column.head.replace("\n", " ")) for column in layout.columns)
    return replace(layout, columns=flat)
