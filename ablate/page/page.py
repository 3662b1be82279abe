"""The report: one HTML file with all results of a study, which fetches nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ablate.analysis.curves import Curve
from ablate.analysis.results import predictions_of
from ablate.analysis.table import Table
from ablate.config.inactive import inactive_fields
from ablate.formatting import duration, number, plural, setting_text
from ablate.page.drawings import costs, differences, learning_curves
from ablate.page.html import Best, environment, table_context
from ablate.page.points import equal_costs
from ablate.page.sections import Listing, design_sections
from ablate.plotting import PALETTE
from ablate.report.publish import TableProvenance, provenance_of
from ablate.store import Results
from ablate.store.records import Provenance
from ablate.table.columns.layouts import by_labels
from ablate.table.conclusion import conclusion
from ablate.table.render import comma_separated

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


@dataclass(frozen=True)
class Attention:
    """The attention weights of a run for a sentence, drawn as SVG."""

    row: str
    run: str
    sentence: str
    drawing: bytes


def page(
    table: Table,
    results: Results,
    curves: Sequence[Curve],
    samples: Sequence[Example],
    attention: Attention | None = None,
) -> str:
    """Return the text of the page."""
    published = provenance_of(table, results)
    origins = list(_origins(table, published))
    return _page(
        table,
        {row.row.label: f"runs-{index}" for index, row in enumerate(table.rows)},
        curves=list(learning_curves(curves)),
        designs=design_sections(table, curves),
        costs=list(costs(table)),
        equal_costs=equal_costs(table),
        samples=samples,
        attention=attention,
        **_settings(table),
        origins=Listing("How the numbers were made", ("what", "value"), origins),
        runs=_runs(table, published),
    )


def page_of_scores(table: Table) -> str:
    """The page of scores measured elsewhere: conclusion, table, differences from base."""
    without = ("curves", "designs", "costs", "equal_costs", "samples", "attention")
    return _page(table, {}, **dict.fromkeys((*without, "changes", "origins"), ()))


def _page(table: Table, links: Mapping[str, str], **sections: Any) -> str:
    verdicts = chain.from_iterable(row.verdicts.values() for row in table.rows)
    template = environment().get_template("page.html")
    return template.render(
        study=table.study,
        summary=conclusion(table),
        **table_context(table, by_labels(table, Best, "bold:"), is_page=True, links=links),
        csv=comma_separated(table).encode(),
        differences=list(differences(table)),
        intervals_shown=any(verdict.seed_test for verdict in verdicts),
        palette=PALETTE,
        **sections,
    )


def _settings(table: Table) -> dict[str, Listing]:
    config = table.rows[0].row.config
    unused = {**inactive_fields(config), **table.study.task.unused_fields}
    changes = []
    for row in table.rows[1:]:
        texts = [f"{name}={setting_text(value)}" for name, value in row.row.changed.items()]
        changes.append((row.row.label, ", ".join(texts)))
    return {
        "changes": Listing("What each row changes", ("row", "changes"), changes),
        "base_fields": _fields("Base", config.model_dump(exclude=set(unused))),
        "data_fields": _fields("Data", table.study.data.model_dump(exclude={"folder"})),
    }


def _fields(caption: str, values: Mapping[str, Any]) -> Listing:
    rows = [(name, setting_text(value)) for name, value in values.items()]
    return Listing(caption, ("field", "value"), rows)


def _origins(table: Table, published: TableProvenance) -> Iterator[tuple[str, str]]:
    """Yield signatures, corpora, code and machines."""
    for name, signatures in table.signatures.items():
        for signature in signatures:
            yield table.study.task.metrics[name].title, signature
    for corpus in published.corpora:
        yield "corpus", corpus
    made: dict[str, dict[str, None]] = {"code": {}, "packages": {}, "machine": {}}
    for provenance in published.provenances:
        if provenance is not None:
            for what, text in _made_with(provenance):
                made[what][text] = None  # once: runs of several revisions often share a machine
    for what, texts in made.items():
        for text in texts:
            yield what, text


def _made_with(made: Provenance) -> Iterator[tuple[str, str]]:
    code, machine = made.ablate, made.machine
    if code:
        yield "code", f"{code.text}, Python {made.python}"
        yield "packages", ", ".join(f"{name} {version}" for name, version in made.packages.items())
    where = f"{made.device}, {plural(made.threads, 'thread')}"
    yield "machine", f"{where}; {machine.processor}, {plural(machine.cores, 'core')}"


def _runs(table: Table, published: TableProvenance) -> Iterator[tuple[str, Sequence[object]]]:
    """Yield an anchor for the first run of a row, and the cells of every run: row, seed, id, state,
    steps, time and the hash of the weights. Rows that differ only in decoding share runs.
    """
    for index, row in enumerate(table.rows):
        anchor = f"runs-{index}"
        for run in row.runs:
            cells: list[object] = [row.row.label, run.run.seed, run.run.id, run.state, "", "", ""]
            if made := published.runs.get(run.run.id):
                cells[4:6] = made.result.steps, duration(made.result.seconds)
                if made.result.weights:
                    cells[6] = made.result.weights.sha256[:16]
            yield anchor, cells
            anchor = ""


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


def samples(table: Table, results: Results, corpus: Corpus, count: int) -> list[Example]:
    """Return `count` items of the test split, spread evenly over it, with the predictions of each
    row's first seed.

    Of a task that generates texts, the samples are those, and have nothing given; of one whose
    predictions are no texts to read, there are none. Rows without a prediction for every item are
    left out. Each prediction has its score in the main metric, if the task scores single items in
    it.
    """
    generated: dict[str, Sequence[str]] = {}
    for row in table.rows:
        if decoding := row.runs[0].decoding:
            generated[row.row.label] = decoding.generated
    if any(generated.values()):
        longest = max(map(len, generated.values()))
        return [Example(i + 1, (), _predictions(generated, i)) for i in range(min(count, longest))]
    task, metric = table.study.task, table.of_items
    if not task.predicts_texts:
        return []
    total = task.n_predictions(corpus)
    texts: dict[str, Sequence[str]] = {}
    for row in table.rows:
        lines = task.of_items(predictions_of(row.runs[0], results))
        if len(lines) == total:
            texts[row.row.label] = lines
    if not total or not texts:
        return []
    # A set, because more samples than items may be asked for.
    picked = sorted({total * i // count for i in range(count)})
    scores: list[Sequence[float]] = []
    title = ""
    if task.scores_items(metric) and not metric.is_probe:
        scores = [task.measure_items(metric.name, lines, corpus) for lines in texts.values()]
        title = metric.title
    shown = []
    for i, item in zip(picked, task.samples(corpus, picked), strict=True):
        of_item = tuple(number(of_row[i], metric.digits) for of_row in scores)
        shown.append(Example(item.number, item.texts, _predictions(texts, i), of_item, title))
    return shown


def _predictions(texts: Mapping[str, Sequence[str]], item: int) -> tuple[tuple[str, str], ...]:
    """The text of each row for an item, of the rows that have one."""
    return tuple((label, lines[item]) for label, lines in texts.items() if item < len(lines))
