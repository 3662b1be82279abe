"""The table as the paper lays it out: base full, other rows blank where they are as base."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ablate.config.own import unpinned
from ablate.report.scores import Scores
from ablate.report.table import Table, TableRow

# Table 3's columns: the paper's letter, and the field.
SETTINGS = (
    ("N", "n_layers"), ("d_model", "d_model"), ("d_ff", "d_ff"), ("h", "n_heads"), ("d_k", "d_k"), ("d_v", "d_v"),
    ("P_drop", "dropout"), ("eps_ls", "label_smoothing"), ("steps", "train_steps"),
)  # fmt: skip
_SETTING_FIELDS = {name for _, name in SETTINGS}
METRIC_DIGITS = {"ppl": 2, "ppl_char": 3, "bleu": 1}
METRIC_HEADS = {"ppl": "PPL", "ppl_char": "PPL a\ncharacter", "bleu": "BLEU"}
METRIC_SIDES = {"ppl": "dev", "ppl_char": "dev", "bleu": "test"}  # the legend has the splits' own names


@dataclass(frozen=True)
class Column:
    """A column: its head, whether it is a number, and its cell for each row."""

    head: str
    numeric: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Columns, and lines under the table."""

    columns: tuple[Column, ...]
    legend: tuple[str, ...]


Mark = Callable[[str], str]  # how a best value is marked


def layouts(table: Table, mark: Mark, against_paper: bool) -> list[Layout]:
    """The table's layouts, widest first: the paper's; without settings that no row changes; by row labels."""
    return [lay_out(table, mark, against_paper, settings) for settings in (_all, _varying, None)]


def lay_out(
    table: Table, mark: Mark, against_paper: bool, settings: Callable[[Table], list[tuple[str, str]]] | None
) -> Layout:
    """One layout; `settings` picks the columns of settings, None puts the row's label in their place."""
    rows = table.rows
    legend = _legend(table)
    if settings is None:
        columns = [Column("row", False, tuple(row.row.label for row in rows))]
        legend = [f"base: {_everything(table)}", *legend, *_notes(rows)]  # a column of notes would leave no room
    else:
        shown = settings(table)
        columns = [Column("", False, _groups(rows)), *(_setting(rows, head, name) for head, name in shown)]
        columns += _other(rows)
        hidden = [(head, name) for head, name in SETTINGS if (head, name) not in shown]
        if hidden:
            same = ", ".join(f"{head}={_value(rows[0], name)}" for head, name in hidden)
            legend = [f"all rows: {same}", *legend]
    columns += [_metric(table, metric, mark) for metric in table.metrics]
    columns.append(Column("params\n(10^6)", True, tuple(millions(row.params) for row in rows)))
    if against_paper:
        columns += _paper(rows)
        legend += _paper_legend(table)
    if settings is not None and any(row.note for row in rows):
        columns.append(Column("state", False, tuple(row.note for row in rows)))
    return Layout(tuple(columns), tuple(legend))


def _notes(rows: tuple[TableRow, ...]) -> list[str]:
    """Each note with the rows that it is of: `pending: A h=1, B d_k=16`."""
    notes = dict.fromkeys(row.note for row in rows if row.note)
    return [f"{note}: {', '.join(row.row.label for row in rows if row.note == note)}." for note in notes]


def number(value: float | None, digits: int) -> str:
    """A number as the table shows it; empty where there is none."""
    return "" if value is None else f"{value:.{digits}f}"


def spread(scores: Scores, digits: int, seeds: int) -> str:
    """`25.8 ±0.2`, with how many seeds where not all are in: `25.8 ±0.2 (2/3)`."""
    text = number(scores.mean, digits)
    if scores.std is not None:
        text += f" ±{scores.std:.{digits}f}"
    return f"{text} ({scores.n}/{seeds})" if scores.n and scores.n < seeds else text


def millions(params: int) -> str:
    """Parameters in millions, three digits at least."""
    value = params / 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


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


def thousands(steps: int | None) -> str:
    """Steps as the paper writes them: 100K; in full where that would round."""
    if steps is None:
        return "?"
    return f"{steps // 1000}K" if steps >= 10_000 and steps % 1000 == 0 else str(steps)


def _other(rows: tuple[TableRow, ...]) -> list[Column]:
    """Changes of fields that have no column in the paper."""
    cells = [
        ", ".join(f"{name}={_plain(value)}" for name, value in row.row.changed.items() if name not in _SETTING_FIELDS)
        for row in rows
    ]
    return [Column("other", False, tuple(cells))] if any(cells) else []


def _plain(value: Any) -> str:
    return "unset" if value is None else unpinned(str(value))


def _metric(table: Table, metric: str, mark: Mark) -> Column:
    best, digits, seeds = table.best(metric), METRIC_DIGITS[metric], len(table.study.seeds)
    cells = []
    for row in table.rows:
        scores: Scores = getattr(row, metric)
        text = spread(scores, digits, seeds)
        is_best = best is not None and scores.n == seeds and number(scores.mean, digits) == number(best, digits)
        cells.append(mark(text) if is_best else text)
    return Column(f"{METRIC_HEADS[metric]}\n({METRIC_SIDES[metric]})", True, tuple(cells))


def _paper(rows: tuple[TableRow, ...]) -> list[Column]:
    found = [row.paper for row in rows]
    return [
        Column("paper\nPPL", True, tuple(number(p.ppl if p else None, 2) for p in found)),
        Column("paper\nBLEU", True, tuple(number(p.bleu if p else None, 1) for p in found)),
        Column("paper\nparams", True, tuple(number(p.params_millions if p else None, 0) for p in found)),
    ]


def _paper_legend(table: Table) -> list[str]:
    lines = ["paper: Table 3's row with the same change to its base (newstest2013, English to German)."]
    base = table.study.base.config
    if (base.n_layers, base.d_model, base.d_ff) != (6, 512, 2048) or table.study.data.corpus != "wmt14":
        lines.append("This study's base or corpus is not the paper's: compare the order of rows, not their values.")
    return lines


def _legend(table: Table) -> list[str]:
    seeds, data = len(table.study.seeds), table.study.data
    lines = [
        f"PPL: {'; '.join(table.signatures['ppl'])}.",
        f"BLEU: test={data.test}, sacreBLEU {'; '.join(table.signatures['bleu']) or '(nothing scored yet)'}.",
    ]
    if len(table.vocabularies) > 1:
        lines.append("Vocabularies differ: compare PPL a character, not PPL.")
    if seeds > 1:
        lines.append(f"Mean ± standard deviation over n = {seeds} seeds; k/{seeds} where only k are in.")
    else:
        lines.append("One seed: no spread, so small differences mean nothing; add seeds to tell.")
    lines.append(
        "* best; blank: as base." if any(table.best(m) is not None for m in table.metrics) else "Blank: as base."
    )
    if len(table.corpora) > len(table.vocabularies):
        lines.append(f"WARNING: these results mix corpora {', '.join(table.corpora)}: they cannot be compared.")
    return [*lines, *table.remarks]


def bare(layout: Layout) -> Layout:
    """The layout with heads on one line, for formats without line breaks in a cell."""
    columns = tuple(replace(column, head=column.head.replace("\n", " ")) for column in layout.columns)
    return replace(layout, columns=columns)
