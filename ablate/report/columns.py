"""Columns and legend of the results table.

Markdown, LaTeX and HTML show the table as the paper does: base in full, cells of other rows blank where they equal
base. A terminal shows each row by its label, and as many columns as fit, the most important ones first. A table is a
sequence of sections, each some columns and the legend lines that explain them. A new column is a function and an entry
in SECTIONS. The csv file comes from `report/frames.py`, and the JSON file from `report/table.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ablate.config import resolve_row
from ablate.config.identity import NOT_IDENTITY
from ablate.config.metrics import PPL, PPL_CHAR, Metric
from ablate.config.plugins import without_digest
from ablate.formatting import (
    duration,
    interval_text,
    millions,
    number,
    plural,
    scaled,
    setting_text,
    signed,
    thousands,
)
from ablate.paper import PaperTable
from ablate.report.agreement import agreement_lines
from ablate.report.layout import (
    DIFFERENCE,
    FURTHER,
    OTHER_DIFFERENCE,
    OTHER_SCORE,
    P_VALUE,
    REQUESTED,
    ROW,
    SCORE,
    SETTING,
    VERDICT,
    Column,
    Layout,
    fitting,
    folded,
)
from ablate.report.scores import mean_and_std
from ablate.report.table import Table, TableRow, paper_metrics
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict
from ablate.tasks import Task


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
_SETTING_FIELDS = {setting.field for setting in SETTINGS}

Mark = Callable[[str], str]  # marks the cell of a best value


@dataclass(frozen=True)
class _Form:
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


def paper_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, *, every_setting: bool = True
) -> Layout:
    """The layout of the paper; without `every_setting`, settings that no row changes are in the legend."""
    settings = SETTINGS if every_setting else _varied_settings(table)
    return _layout(table, _Form(mark, against_paper, with_cost, settings))


def terminal_layout(
    table: Table, mark: Mark, against_paper: bool, with_cost: bool = False, width: int | None = None
) -> Layout:
    """Rows by label, the most important columns first, as many as fit into `width`; all of them without a width.

    Columns that do not fit are named in the first line of the legend.
    """
    form = _Form(mark, against_paper, with_cost, _varied_settings(table), labels=True)
    columns = sorted(_columns(table, form), key=lambda column: column.priority)
    if width is None:
        return Layout(tuple(columns), _legend(table, form))
    shown = fitting(columns, width)
    left_out = [column.name for column in columns if column not in shown]
    form = replace(form, left_out=frozenset(left_out))
    legend = _legend(table, form)
    if left_out:
        line = f"Left out at {width} columns: {', '.join(left_out)}; `ablate table --wide` shows all."
        legend = (line, *legend)
    return Layout(tuple(folded(shown, width)), legend)


def by_labels(table: Table, mark: Mark) -> Layout:
    """Every column but the settings, for a table whose rows can be sorted: their labels name the settings."""
    form = _Form(mark, with_paper=False, with_cost=True, settings=(), labels=True)
    filled = [
        replace(column, priority=FURTHER) if column.priority == REQUESTED else column  # not asked for here
        for column in _columns(table, form)
        if any(column.cells)
    ]
    return Layout(tuple(sorted(filled, key=lambda column: column.priority)), _legend(table, form))


def _layout(table: Table, form: _Form) -> Layout:
    return Layout(tuple(_columns(table, form)), _legend(table, form))


def _columns(table: Table, form: _Form) -> list[Column]:
    return [column for section in SECTIONS for column in section.columns(table, form)]


def _legend(table: Table, form: _Form) -> tuple[str, ...]:
    return tuple(line for section in SECTIONS for line in section.legend(table, form))


def _varied_settings(table: Table) -> tuple[Setting, ...]:
    """The settings that some row changes."""
    return tuple(one for one in SETTINGS if _changes(table, one))


def _changes(table: Table, setting: Setting) -> int:
    """Number of rows that change a setting."""
    return sum(setting.field in row.row.changed for row in table.rows)


# Rows: their settings, or their labels


def _row_columns(table: Table, form: _Form) -> list[Column]:
    rows = table.rows
    settings = [
        Column(one.head, True, _setting_cells(rows, one), latex=one.latex, priority=SETTING + rank)
        for one, rank in zip(form.settings, _ranks(table, form.settings), strict=True)
    ]
    if form.labels:
        return [Column("row", False, tuple(row.row.label for row in rows), folds=True, priority=ROW), *settings]
    return [Column("", False, _group_cells(rows), folds=True), *settings, *_other_changes(rows)]


def _ranks(table: Table, settings: Sequence[Setting]) -> list[int]:
    """The place of each setting among all by the number of rows that change it, the most changed first."""
    # sorted() is stable: settings that as many rows change keep the order of Table 3.
    order = sorted(settings, key=lambda one: -_changes(table, one))
    return [order.index(one) for one in settings]


def _row_legend(table: Table, form: _Form) -> list[str]:
    """The settings without a column, which all rows share or are base's, and those of rows with a written label."""
    base = table.rows[0]
    hidden = [one for one in SETTINGS if one not in form.settings or not form.shows(one.head)]
    values = ", ".join(f"{one.head}={_setting_value(base, one)}" for one in hidden)
    rows = "base" if form.labels else "all rows"
    labels = [
        f"{row.row.label}: "
        f"{', '.join(f'{name}={without_digest(setting_text(value))}' for name, value in row.row.changed.items())}."
        for row in table.rows
        if row.row.is_labeled
    ]
    return [*([f"{rows}: {values}"] if hidden else []), _other_settings(base, table.study.task), *labels]


def _group_cells(rows: tuple[TableRow, ...]) -> tuple[str, ...]:
    """`base`, then the name of each group at its first row, as in the paper: (A)."""
    groups = [row.row.label if row.row.is_base else f"({row.row.group})" for row in rows]
    return (groups[0], *(group if group != before else "" for before, group in itertools.pairwise(groups)))


def _setting_cells(rows: tuple[TableRow, ...], setting: Setting) -> tuple[str, ...]:
    return tuple(
        _setting_value(row, setting) if index == 0 or setting.field in row.row.changed else ""
        for index, row in enumerate(rows)
    )


def _setting_value(row: TableRow, setting: Setting) -> str:
    if setting.field == "train_steps":
        return thousands(row.steps)
    return str(getattr(row.row.config, setting.field))


def _other_changes(rows: tuple[TableRow, ...]) -> list[Column]:
    """Changes of fields that are no columns of Table 3, or the row's label; tuned fields have their own column."""
    tuned = {name for row in rows if row.row.tuning for name in row.row.tuning.candidates[0].values}
    cells = tuple(
        row.row.label
        if row.row.is_labeled
        else ", ".join(
            f"{name}={without_digest(setting_text(value))}"
            for name, value in row.row.changed.items()
            if name not in _SETTING_FIELDS and not (name in tuned and row.row.tuning)
        )
        for row in rows
    )
    return [Column("other", False, cells, folds=True)] if any(cells) else []


def _other_settings(base: TableRow, task: Task) -> str:
    """Base's settings that are no columns of Table 3: batch and decoding, and all that differ from the paper's."""
    # `resolve_row` without settings gives the paper's base model.
    config, paper = base.row.config, resolve_row({})
    shown = ", ".join(
        f"{name}={without_digest(setting_text(value))}"
        for name, value in config.model_dump().items()
        if name not in _SETTING_FIELDS | NOT_IDENTITY and (name in task.shown_fields or value != getattr(paper, name))
    )
    return f"base also: {shown}."


# Scores


def _score_columns(table: Table, form: _Form) -> list[Column]:
    return [_scores(table, metric, form.mark) for metric in table.metrics]


def _scores(table: Table, metric: Metric, mark: Mark) -> Column:
    """A metric over seeds. The best mean of complete rows is marked, with all that print the same digits."""
    best, seeds = table.best(metric.name), len(table.study.seeds)
    cells = []
    for row in table.rows:
        scores = row.scores[metric.name]
        text = mean_and_std(scores, metric.digits, seeds)
        can_be_best = best is not None and scores.n == seeds
        # Equal to the last digit that is printed: two equal numbers, only one of them bold, would confuse.
        is_best = can_be_best and number(scores.mean, metric.digits) == number(best, metric.digits)
        cells.append(mark(text) if is_best else text)
    priority = SCORE if metric == table.main else OTHER_SCORE
    return Column(f"{metric.title}\n({metric.side})", True, tuple(cells), priority=priority)


def _score_legend(table: Table, form: _Form) -> list[str]:
    """Signatures of the metrics, marks of the cells, and warnings about runs that were not made alike."""
    seeds = len(table.study.seeds)
    lines = [_signature(table, metric) for metric in table.metrics]
    if len(table.vocabularies) > 1:
        comparable = f"{PPL_CHAR.title}, the perplexity per character,"
        if PPL_CHAR.name not in table.study.task.metrics:
            comparable = table.main.title
        lines.append(f"Vocabularies differ: compare {comparable} and not {PPL.title}.")
    if seeds > 1:
        lines.append(f"Mean ± standard deviation over n = {seeds} seeds; k/{seeds} where only k are in.")
    marked = any(table.best(metric.name) is not None for metric in table.metrics)
    lines.append("* best; blank: as base." if marked else "Blank: as base.")
    if len(table.corpora) > len(table.vocabularies):
        lines.append(f"WARNING: these results mix corpora {', '.join(table.corpora)}: they cannot be compared.")
    return [*lines, *table.remarks, *table.faults]


def _signature(table: Table, metric: Metric) -> str:
    signature = "; ".join(table.signatures[metric.name]) or "(nothing scored yet)"
    if metric.name in table.study.task.on_predictions:
        scorer = f"{metric.scorer} " if metric.scorer else ""
        signature = f"test={table.study.data.test}, {scorer}{signature}"
    return f"{metric.title}: {signature}."


# Comparison with base


def _difference_columns(table: Table, form: _Form) -> list[Column]:
    """Differences with their intervals, and the p value of the verdict; columns without any cell are left out."""
    main = replace(_differences(table, table.main), priority=DIFFERENCE)
    perplexity = replace(_differences(table, table.perplexity), priority=OTHER_DIFFERENCE)
    p_value = replace(_verdict_column(table, "p\n(adj.)", table.main, _p_value, numeric=True), priority=P_VALUE)
    columns = [main] if table.main == table.perplexity else [perplexity, main]
    return [column for column in (*columns, p_value) if any(column.cells)]


def _differences(table: Table, metric: Metric) -> Column:
    seeds = len(table.study.seeds)
    head = f"Δ{metric.title}\n{'[95 %]' if _has_intervals(table, metric) else f'(n = {_most_seeds(table)})'}"
    return _verdict_column(table, head, metric, lambda verdict: _interval(verdict, seeds), numeric=True)


def _interval(verdict: Verdict, seeds: int) -> str:
    """`-4.5 [-9.1, +0.1]`, with the number of seeds while some are missing."""
    digits, text = verdict.metric.digits, signed(verdict.mean, verdict.metric.digits)
    if verdict.seed_test:
        text += f" {interval_text(verdict.seed_test.low, verdict.seed_test.high, digits)}"
    return f"{text} ({verdict.n}/{seeds})" if text and verdict.n < seeds else text


def _p_value(verdict: Verdict) -> str:
    """The p value that the verdict follows from."""
    if verdict.p is None:
        return ""
    return "<0.001" if verdict.p < 0.001 else f"{verdict.p:.3f}"


def _difference_legend(table: Table, form: _Form) -> list[str]:
    verdicts, several = verdicts_of(table, table.main), _has_verdicts(table)
    seeds = len(table.study.seeds)
    lines = list(_explained_differences(table, form)) if any(verdict.n for verdict in verdicts) else []
    if several:
        several_bases = sum(row.row.is_base for row in table.rows) > 1
        rows = "the rows of each size" if several_bases else plural(table.family, "row")
        sentences = f" and of the test {table.main.item}s" if any(verdict.bootstrap for verdict in verdicts) else ""
        margin = next((verdict.margin for verdict in verdicts if verdict.margin is not None), None)
        within = "" if margin is None else f" as good as base: significantly less than ±{margin:g} away."
        lines.append(
            f"verdict: by {table.main.title}. worse, better: beyond the noise of {plural(seeds, 'seed')}{sentences} "
            f"(p < {LEVEL:g}, Holm-corrected over {rows}).{within} cannot tell (d): not "
            "significant; d is the smallest difference that this study could see."
        )
        lines += _look_legend(table)
        if form.shows("p"):
            lines.append("p: the corrected p value of the verdict; `ablate compare` shows each test.")
    elif seeds == 1 and any(verdict.n for verdict in verdicts):
        lines.append("One seed (n = 1): the variance over seeds is unknown, so no row has a verdict: cannot tell.")
    return lines


def _explained_differences(table: Table, form: _Form) -> Iterator[str]:
    """Yield the meaning of the differences; the metrics are named if only some have intervals."""
    metrics = [one for one in dict.fromkeys((table.perplexity, table.main)) if form.shows(f"Δ{one.title}")]
    several = [metric for metric in metrics if _has_intervals(table, metric)]
    without = [metric for metric in metrics if metric not in several]
    if metrics and _most_seeds(table) == 1:
        several, without = [], []
        yield "Δ: difference from base with one seed."
    if several:
        text = "mean difference from base, paired by seed, with an interval of at least 95 % for each row alone"
        judged = _judged_by_intervals(table) if table.main in several else ""
        yield f"{_heads(several) if without else 'Δ'}: {text}{judged}."
    if without:
        early = next((one.look for one in verdicts_of(table, table.main) if one.is_early and one.look), None)
        titles = " and ".join(metric.title for metric in without)
        why = f"{early.text} is not complete" if early else f"the seeds show no spread in {titles}"
        yield f"{_heads(without) if several else 'Δ'}: mean difference from base; no interval, because {why}."


def _judged_by_intervals(table: Table) -> str:
    """Relation of the main metric's intervals to the verdicts, with the rows that do not follow it."""
    found = ((row.row.label, row.verdicts[table.main.name]) for row in table.rows if table.main.name in row.verdicts)
    others = [
        label
        for label, verdict in found
        if (test := verdict.seed_test) and verdict.is_different != (not test.low <= 0 <= test.high)
    ]
    rest = f", except for {', '.join(others)}, decided by diverged seeds or an earlier look" if others else ""
    return f"; the interval of Δ{table.main.title} excludes 0 exactly if the verdict is worse or better{rest}"


def _heads(metrics: Sequence[Metric]) -> str:
    return ", ".join(f"Δ{metric.title}" for metric in metrics)


def _look_legend(table: Table) -> list[str]:
    """The look of the verdicts, and the rows whose verdict is of an earlier one."""
    if table.look is None:
        return []
    rows = [(row, row.verdicts[table.main.name]) for row in table.rows if table.main.name in row.verdicts]
    kept = [row.row.label for row, one in rows if one.is_different and one.p is not None and one.p >= LEVEL]
    earlier = f" The verdict of an earlier look stays: {', '.join(kept)}." if kept else ""
    return [
        f"Judged at {table.look.text}, at the level {table.look.level:.3g}; all looks together spend {table.error:.3g}."
        f" p values are multiplied by {LEVEL / table.look.level:.3g}.{earlier}"
    ]


def _verdict_columns(table: Table, form: _Form) -> list[Column]:
    """The verdict on each row, if some row has more than one seed."""
    if not _has_verdicts(table):
        return []
    column = _verdict_column(table, "verdict", table.main, lambda verdict: verdict.short, numeric=False)
    return [replace(column, priority=VERDICT, folds=form.labels)]


def _verdict_legend(table: Table, form: _Form) -> list[str]:
    """Verdicts as lines, such as `worse: A h=1, B d_k=16`, if the form has no column for them."""
    if form.shows("verdict") or not _has_verdicts(table):
        return []
    words = [(row.verdicts[table.main.name].short, row.row.label) for row in table.rows if row.verdicts]
    distinct = dict.fromkeys(word for word, _ in words if word)
    return [f"{one}: {', '.join(label for word, label in words if word == one)}." for one in distinct]


def _verdict_column(
    table: Table, head: str, metric: Metric, cell: Callable[[Verdict], str], *, numeric: bool
) -> Column:
    """A cell for each row from its verdict; base has none."""
    verdicts = [row.verdicts.get(metric.name) for row in table.rows]
    return Column(head, numeric, tuple(cell(verdict) if verdict else "" for verdict in verdicts))


def verdicts_of(table: Table, metric: Metric) -> list[Verdict]:
    """The verdicts in a metric on every row but base."""
    return [row.verdicts[metric.name] for row in table.rows if metric.name in row.verdicts]


def _most_seeds(table: Table) -> int:
    """Largest number of seeds that a row shares with base; 1 if no row has any."""
    return max((verdict.n for verdict in verdicts_of(table, table.main) if verdict.n), default=1)


def _has_verdicts(table: Table) -> bool:
    return _has_intervals(table, table.main)


def _has_intervals(table: Table, metric: Metric) -> bool:
    return any(verdict.seed_test for verdict in verdicts_of(table, metric))


# Parameters and cost


def _parameter_columns(table: Table, form: _Form) -> list[Column]:
    cells = tuple(millions(row.params) for row in table.rows)
    return [Column("params\n(10^6)", True, cells, latex="params\n$\\times10^6$")]


def _match_columns(table: Table, form: _Form) -> list[Column]:
    """The fields that `match` chose, and the FLOPs of each training beside the parameters."""
    matched = [row.row.matched for row in table.rows]
    if not any(matched):
        return []
    chosen = tuple(f"{one.field}={one.value}" if one else "" for one in matched)
    flops = Column("FLOPs", True, tuple(scaled(row.cost.flops, "").strip() for row in table.rows))
    return [*([] if form.with_cost else [flops]), Column("matched", False, chosen, folds=True)]


def _match_legend(table: Table, form: _Form) -> list[str]:
    rules = dict.fromkeys(
        (one.cost, one.within, one.tokens if one.cost == "flops" else None)
        for row in table.rows
        if (one := row.row.matched) is not None
    )
    names = {"params": "parameters", "flops": "training FLOPs"}
    # The column FLOPs counts the corpus's real lengths, with which the difference may be larger than the tolerance.
    return [
        f"matched: the field that brings the row's {names[cost]} within {100 * within:g} % of base's"
        + ("." if tokens is None else f", counted for sentences of {tokens} tokens.")
        for cost, within, tokens in rules
    ]


def _tuning_columns(table: Table, form: _Form) -> list[Column]:
    """The tuned values, and the sensitivity of the loss to them."""
    tunings = [row.row.tuning for row in table.rows]
    if not any(tunings):
        return []
    chosen = tuple(one.text if one else "" for one in tunings)
    sensitivity = tuple(number(one.sensitivity if one else None, 2) for one in tunings)
    return [Column("tuned", False, chosen, folds=True), Column("sensitivity\n(nats)", True, sensitivity)]


def _tuning_legend(table: Table, form: _Form) -> list[str]:
    tune = table.study.tune
    if tune is None or not any(row.row.tuning for row in table.rows):
        return []
    seeds, count = ", ".join(map(str, tune.seeds)), math.prod(map(len, tune.grid.values()))
    seeds = f"seed{'s' if len(tune.seeds) > 1 else ''} {seeds}"
    return [
        f"tuned: the best of {count} values by dev loss, each row alike, with {seeds} and {100 * tune.share:g} % of "
        "the steps; edge: the smallest or largest of the grid, so that a better value may be outside.",
        "sensitivity: mean dev loss over the grid, at most ln V each, less that of the best value (arXiv 2309.14322).",
    ]


def _cost_columns(table: Table, form: _Form) -> list[Column]:
    if not form.with_cost:
        return []
    rows, seeds = table.rows, len(table.study.seeds)
    return [
        Column(head, True, cells, priority=REQUESTED)
        for head, cells in (
            ("tokens/s", tuple(mean_and_std(row.cost.tokens_per_second, 0, seeds) for row in rows)),
            ("time", tuple(_time(row) for row in rows)),
            ("FLOPs", tuple(scaled(row.cost.flops, "").strip() for row in rows)),
        )
    ]


def _time(row: TableRow) -> str:
    return "" if row.cost.seconds.mean is None else duration(row.cost.seconds.mean)


def _cost_legend(table: Table, form: _Form) -> list[str]:
    if not form.with_cost:
        return []
    machines = sorted({machine for row in table.rows for machine in row.cost.machines})
    lines = [
        "tokens/s, time: mean over seeds of one training with its evaluations. FLOPs: of one training, closed form."
    ]
    if machines:
        lines.append(f"Trained on: {'; '.join(machines)}.")
    if len(machines) > 1:
        lines.append("WARNING: these runs were trained in different places: their times cannot be compared.")
    return lines


# The paper


def _paper_columns(table: Table, form: _Form) -> list[Column]:
    """The paper's numbers for the same changes."""
    if not form.with_paper:
        return []
    rows = [row.paper for row in table.rows]
    columns = []
    for name in paper_metrics(table):
        metric = table.study.task.metrics[name]
        cells = tuple(number(row.scores.get(name) if row else None, metric.digits) for row in rows)
        columns.append(Column(f"paper\n{metric.title}", True, cells, priority=REQUESTED))
    params = tuple(number(row.params_millions if row else None, 0) for row in rows)
    return [*columns, Column("paper\nparams", True, params, priority=REQUESTED)]


def _paper_legend(table: Table, form: _Form) -> list[str]:
    if not form.with_paper:
        return []
    paper = table.study.task.paper
    if paper is None:
        return [f"paper: has no table for task {table.study.task.name}."]
    lines = [f"paper: {paper.title}'s row with the same change to its base ({paper.measured_on}).", *_published(paper)]
    base = table.study.base.config
    shape = ("n_layers", "d_model", "d_ff")
    if any(getattr(base, name) != paper.base[name] for name in shape) or table.study.data.corpus != paper.corpus:
        lines.append("This study's base or corpus is not the paper's: compare the order of rows, not their values.")
    return [*lines, *agreement_lines(table)] if len(paper.rows) > 1 else lines


def _published(paper: PaperTable) -> list[str]:
    """The systems that a table of the paper compares, a line for each kind of training data."""
    kinds = dict.fromkeys(each.training for each in paper.published)
    lines = []
    for kind in kinds:
        systems = (f"{each.system} {each.score}" for each in paper.published if each.training == kind)
        lines.append(f"{paper.title}, {kind}: {', '.join(systems)}.")
    return lines


# Rows that are not finished


def _state_columns(table: Table, form: _Form) -> list[Column]:
    cells = tuple(row.note for row in table.rows)
    return [Column("state", False, cells, folds=True)] if not form.labels and any(cells) else []


def _state_legend(table: Table, form: _Form) -> list[str]:
    """Each note with its rows: `pending: A h=1, B d_k=16`; beside labels, a column would leave no space."""
    if not form.labels:
        return []
    notes = dict.fromkeys(row.note for row in table.rows if row.note)
    return [f"{note}: {', '.join(row.row.label for row in table.rows if row.note == note)}." for note in notes]


class Section(NamedTuple):
    """Columns that belong together, and the legend lines that explain them."""

    columns: Callable[[Table, _Form], list[Column]] = lambda table, form: []
    legend: Callable[[Table, _Form], list[str]] = lambda table, form: []


# From left to right; the legend has the same order.
SECTIONS = (
    Section(_row_columns, _row_legend),
    Section(_score_columns, _score_legend),
    Section(_difference_columns, _difference_legend),
    Section(legend=_state_legend),
    Section(_parameter_columns),
    Section(_match_columns, _match_legend),
    Section(_tuning_columns, _tuning_legend),
    Section(_cost_columns, _cost_legend),
    Section(_paper_columns, _paper_legend),
    Section(_verdict_columns, _verdict_legend),
    Section(_state_columns),
)
