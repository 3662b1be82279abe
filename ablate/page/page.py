"""The report: one HTML file with all results of a study, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ablate.formatting import duration, setting_text
from ablate.page.drawings import costs, differences, learning_curves
from ablate.page.html import Best, environment, table_context
from ablate.page.points import equal_costs
from ablate.page.sections import Listing, design_sections
from ablate.plotting import PALETTE
from ablate.table.columns.layouts import sortable_layout
from ablate.table.conclusion import conclusion
from ablate.table.curves import Curve
from ablate.table.render import comma_separated
from ablate.table.table import Table


@dataclass(frozen=True)
class Attention:
    """The attention weights of a run for a sentence, drawn as SVG."""

    row: str
    run: str
    sentence: str
    drawing: bytes


@dataclass(frozen=True)
class Example:
    """One item of the test set.

    number: of the item, from 1.
    given: (name, text) of the input and of the reference.
    predictions: (row label, text) of each row.
    scores: of each prediction alone, in `metric` and with its digits; empty if the task has none.
    """

    number: int
    given: tuple[tuple[str, str], ...]
    predictions: tuple[tuple[str, str], ...]
    scores: tuple[str, ...] = ()
    metric: str = ""

    @property
    def reference(self) -> str | None:
        """The text that a prediction is compared with word by word, if the task has one."""
        return dict(self.given).get("reference")


@dataclass(frozen=True)
class EndedRun:
    """What is known of a run that has ended; `weights` is the SHA-256 of its weights."""

    steps: int
    seconds: float
    weights: str = ""


@dataclass(frozen=True)
class Background:
    """A study as the page describes it beside its results.

    study_file: its text.
    base: fields of base that have an effect, with their values.
    data: fields of the data.
    origins: (what, value) of the code, the machines and all else that made the numbers.
    runs: that have ended, by id.
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
    """Return the text of the page."""
    changes = []
    for row in table.rows[1:]:
        texts = [f"{name}={setting_text(value)}" for name, value in row.recipe.changed.items()]
        changes.append((row.label, ", ".join(texts)))
    return _page(
        table,
        {row.label: f"runs-{index}" for index, row in enumerate(table.rows)},
        curves=list(learning_curves(curves)),
        designs=design_sections(table, curves),
        costs=list(costs(table)),
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


def page_of_scores(table: Table) -> str:
    """The page of scores measured elsewhere: conclusion, table, differences from base."""
    without = ("curves", "designs", "costs", "equal_costs", "samples", "attention")
    return _page(table, {}, **dict.fromkeys((*without, "changes", "origins"), ()))


def _page(table: Table, links: Mapping[str, str], **sections: Any) -> str:
    verdicts = chain.from_iterable(row.verdicts.values() for row in table.rows)
    template = environment().get_template("page.html")
    return template.render(
        summary=conclusion(table),
        **table_context(table, sortable_layout(table, Best, "bold:"), is_page=True, links=links),
        csv=comma_separated(table).encode(),
        differences=list(differences(table)),
        intervals_shown=any(verdict.seed_test for verdict in verdicts),
        palette=PALETTE,
        **sections,
    )


def _fields(caption: str, values: Mapping[str, Any]) -> Listing:
    rows = [(name, setting_text(value)) for name, value in values.items()]
    return Listing(caption, ("field", "value"), rows)


def _runs(table: Table, ended: Mapping[str, EndedRun]) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield an anchor for the first run of a row, and the cells of every run: row, seed, id, state,
    steps, time and the hash of the weights. Rows that differ only in decoding share runs.
    """
    for index, row in enumerate(table.rows):
        anchor = f"runs-{index}"
        for run in row.runs:
            cells: list[object] = [row.label, run.seed, run.id, run.state, "", "", ""]
            if known := ended.get(run.id):
                cells[4:] = known.steps, duration(known.seconds), known.weights[:16]
            yield anchor, cells
            anchor = ""
