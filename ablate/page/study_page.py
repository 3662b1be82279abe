"""The page of a study: what it describes beside the table, read from the study and its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ablate.analysis.outcome import Outcome
from ablate.analysis.results import predictions_of
from ablate.config.inactive import inactive_fields
from ablate.formatting import number, plural
from ablate.page.page import Attention, Background, EndedRun, Example, page
from ablate.publication.provenance import TableProvenance, provenance_of
from ablate.store import Results
from ablate.store.records import Provenance
from ablate.table.curves import Curve

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


def study_page(
    outcome: Outcome,
    results: Results,
    curves: Sequence[Curve],
    samples: Sequence[Example],
    attention: Attention | None = None,
) -> str:
    """Return the text of the page of a study."""
    return page(outcome.table, curves, background_of(outcome, results), samples, attention)


def background_of(outcome: Outcome, results: Results) -> Background:
    """Read what the page describes beside the results."""
    study, published = outcome.study, provenance_of(outcome, results)
    config = outcome.planned.base.config
    unused = {**inactive_fields(config), **study.task.unused_fields}
    runs = {}
    for id, run in published.runs.items():
        weights = run.result.weights.sha256 if run.result.weights else ""
        runs[id] = EndedRun(run.result.steps, run.result.seconds, weights)
    return Background(
        study.source.text,
        config.model_dump(exclude=set(unused)),
        study.data.model_dump(exclude={"folder"}),
        list(_origins(outcome, published)),
        runs,
    )


def _origins(outcome: Outcome, published: TableProvenance) -> Iterator[tuple[str, str]]:
    """Yield signatures, corpora, code and machines."""
    for name, signatures in outcome.experiment.signatures.items():
        for signature in signatures:
            yield outcome.study.task.metrics[name].title, signature
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


def generated_samples(outcome: Outcome, count: int) -> list[Example]:
    """Return at most `count` texts that each row's first run has generated; they have nothing
    given.
    """
    generated: dict[str, Sequence[str]] = {}
    for label, runs in outcome.by_label.items():
        if runs[0].decoding:
            generated[label] = runs[0].decoding.generated
    longest = max(map(len, generated.values()), default=0)
    return [Example(i + 1, (), _predictions(generated, i)) for i in range(min(count, longest))]


def samples(outcome: Outcome, results: Results, corpus: Corpus, count: int) -> list[Example]:
    """Return `count` items of the test split, spread evenly over it, with the predictions of each
    row's first seed.

    Of a task whose predictions are no texts to read, there are none. Rows without a prediction for
    every item are left out. Each prediction has its score in the main metric, if the task scores
    single items in it.
    """
    task, metric = outcome.study.task, outcome.table.item_metric
    if not task.predicts_texts:
        return []
    total = task.n_predictions(corpus)
    texts: dict[str, Sequence[str]] = {}
    for label, runs in outcome.by_label.items():
        lines = task.item_predictions(predictions_of(runs[0], results))
        if len(lines) == total:
            texts[label] = lines
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
