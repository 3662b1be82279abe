"""The report: an HTML file with all results of a study, which loads nothing from the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from ablate.formatting import duration, plural, setting_text, settings_text
from ablate.page.drawings import cost_drawings, curve_drawings, difference_drawings
from ablate.page.html import Best, environment, table_context
from ablate.page.points import MAX_ROWS, equal_costs, rows_in_figures
from ablate.page.sections import Listing, further_sections
from ablate.plotting import PALETTE
from ablate.table.columns.layouts import full_layout
from ablate.table.conclusion import conclusion
from ablate.table.curves import Curve
from ablate.table.layout import JOINT_VERDICT, VERDICT, Layout, TextColumn
from ablate.table.render import comma_separated
from ablate.table.table import Table

# Widths in pixels: of the content of a window of 1280, and in the table, by page.css.
WINDOW = 1232
LABEL, CROSS, PADDING = 304, 20, 16  # of the longest label, the cross before it, and of each cell
CHARACTER = 7.75  # mean width at the size of the table, in a wide font


@dataclass(frozen=True)
class Attention:
    """The attention weights of a run for a sentence, drawn as SVG."""

    row: str
    run: str
    sentence: str
    drawing: bytes


@dataclass(frozen=True)
class Example:
    """An item of the test set, with predictions.

    number: number of the item, from 1.
    texts: (name, text) of the input and the reference.
    predictions: (row label, text) of each row.
    scores: the score of each prediction in `metric`, as text; empty if the task has none.
    """

    number: int
    texts: tuple[tuple[str, str], ...]
    predictions: tuple[tuple[str, str], ...]
    scores: tuple[str, ...] = ()
    metric: str = ""

    @property
    def reference(self) -> str | None:
        """The text with which predictions are compared word by word; None if the task has none."""
        return dict(self.texts).get("reference")


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended.

    steps: number of optimizer steps made.
    seconds: duration of the work on the run.
    weights: SHA-256 of the weights; empty for a diverged run.
    """

    steps: int
    seconds: float
    weights: str = ""


@dataclass(frozen=True)
class Background:
    """The description of a study on the page.

    study_file: text of the study file.
    base: fields of base that have an effect, with their values.
    data: fields of the data.
    origins: (kind, value) pairs: the code, packages, machines and corpora behind the numbers.
    runs: the runs that have ended, by id.
    """

    study_file: str
    base: Mapping[str, Any]
    data: Mapping[str, Any]
    origins: Sequence[tuple[str, str]]
    runs: Mapping[str, EndedRun] = field(default_factory=dict)


def page(
    table: Table,
    curves: Sequence[Curve],
    background: Background,
    samples: Sequence[Example],
    attention: Attention | None = None,
) -> str:
    """The page of a study, as HTML."""
    changes = [(row.label, settings_text(row.recipe.changed)) for row in table.rows[1:]]
    return _page(
        table,
        {row.label: f"runs-{index}" for index, row in enumerate(table.rows)},
        curves=list(curve_drawings(table, curves)),
        designs=further_sections(table, curves),
        costs=list(cost_drawings(table)),
        equal_costs=equal_costs(table),
        samples=samples,
        attention=attention,
        changes=Listing("What each row changes", ("row", "changes"), changes),
        base_fields=_fields("Base", background.base),
        data_fields=_fields("Data", background.data),
        study_file=background.study_file,
        origins=Listing("How the numbers were made", ("what", "value"), background.origins),
        runs=_runs(table, background.runs),
    )


def scores_page(table: Table) -> str:
    """The page of scores of other code: conclusion, table, differences from base."""
    of_study = ("curves", "designs", "costs", "equal_costs", "samples", "attention", "changes")
    return _page(table, {}, origins=(), **dict.fromkeys(of_study, ()))


def _page(table: Table, links: Mapping[str, str], **sections: Any) -> str:
    verdicts = chain.from_iterable(row.verdicts.values() for row in table.rows)
    whole = full_layout(table, Best, "bold:", with_cost=True, is_sortable=True)
    layout, further_columns = divided(whole)
    template = environment().get_template("page.html")
    return template.render(
        summary=conclusion(table),
        is_unfinished=bool(table.missing_runs),
        **table_context(table, layout, is_page=True, links=links),
        further_columns=further_columns,
        csv=comma_separated(table).encode(),
        differences=list(difference_drawings(table)),
        selection=_selection(table),
        has_tuning=any(row.recipe.tuned for row in table.rows),
        intervals_shown=any(verdict.seed_test for verdict in verdicts),
        palette=PALETTE,
        **sections,
    )


def divided(layout: Layout) -> tuple[Layout, tuple[TextColumn, ...]]:
    """Divide a layout for a window of WINDOW pixels: the columns that fit, with the verdict after
    the label, where a phone shows it; and the other columns, which the page has folded. Columns of
    one priority, such as the p values of two metrics, stay together.
    """
    label, *columns = layout.columns
    columns.sort(key=lambda column: column.priority not in (VERDICT, JOINT_VERDICT))
    shown = [label]
    width = min(_pixels(label), LABEL) + CROSS
    for _, group in groupby(columns, key=attrgetter("priority")):
        together = list(group)
        width += sum(map(_pixels, together))
        if width > WINDOW:
            break
        shown += together
    return Layout(tuple(shown), layout.legend), tuple(columns[len(shown) - 1 :])


def _pixels(column: TextColumn) -> float:
    return CHARACTER * column.full_width + PADDING


def _selection(table: Table) -> str:
    """Which rows the figures show; empty if they show all rows."""
    count = len(table.rows) - len(rows_in_figures(table))
    if not count:
        return ""
    return (
        f"Figures show base and the {MAX_ROWS} rows with the largest differences from base in "
        f"{table.main_metric.title}; they leave out {plural(count, 'row')}, which the table has."
    )


def _fields(caption: str, values: Mapping[str, Any]) -> Listing:
    rows = [(name, setting_text(value)) for name, value in values.items()]
    return Listing(caption, ("field", "value"), rows)


def _runs(table: Table, ended: Mapping[str, EndedRun]) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield (anchor, cells) of each run: row, seed, id, state, steps, time and hash of the weights.
    Only the first run of a row has an anchor. Rows that differ only in decoding share runs.
    """
    for index, row in enumerate(table.rows):
        anchor = f"runs-{index}"
        for run in row.runs:
            cells: list[object] = [row.label, run.seed, run.id, run.state, "", "", ""]
            if record := ended.get(run.id):
                cells[4:] = record.steps, duration(record.seconds), record.weights[:16]
            yield anchor, cells
            anchor = ""
