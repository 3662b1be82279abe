"""The page of a study: its description and samples, from the study and its results."""

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
    """The page of a study, as HTML."""
    return page(outcome.table, curves, read_background(outcome, results), samples, attention)


def read_background(outcome: Outcome, results: Results) -> Background:
    """Read the description of a study and the provenance of its results."""
    study = outcome.study
    published = provenance_of(outcome, results)
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
    """Yield (kind, value) of signatures, corpora, code, packages and machines."""
    for name, signatures in outcome.experiment.signatures.items():
        for signature in signatures:
            yield outcome.study.task.metrics[name].title, signature
    for corpus in published.corpora:
        yield "corpus", corpus
    values: dict[str, dict[str, None]] = {"code": {}, "packages": {}, "machine": {}}
    for provenance in published.provenances:
        for part in provenance.all_parts if provenance else ():
            for kind, value in _run_origins(part):
                values[kind][value] = None  # runs share most values
    for kind, kind_values in values.items():
        for value in kind_values:
            yield kind, value


def _run_origins(provenance: Provenance) -> Iterator[tuple[str, str]]:
    """Yield (kind, value) of the provenance of a run, or of a part of its training."""
    code = provenance.ablate
    machine = provenance.machine
    if code:
        packages = [f"{name} {version}" for name, version in provenance.packages.items()]
        yield "code", f"{code.text}, Python {provenance.python}"
        yield "packages", ", ".join(packages)
    device = f"{provenance.device}, {plural(provenance.threads, 'thread')}"
    yield "machine", f"{device}; {machine.processor}, {plural(machine.cores, 'core')}"


def generated_samples(outcome: Outcome, count: int) -> list[Example]:
    """At most `count` texts that the first run of each row has generated, without an input."""
    generated: dict[str, Sequence[str]] = {}
    for label, runs in outcome.by_label.items():
        if runs[0].decoding:
            generated[label] = runs[0].decoding.generated
    longest = max(map(len, generated.values()), default=0)
    return [Example(i + 1, (), _predictions(generated, i)) for i in range(min(count, longest))]


def samples(outcome: Outcome, results: Results, corpus: Corpus, count: int) -> list[Example]:
    """Samples of the predictions of each row's first seed, for items spread evenly over the test
    split.

    Tasks whose predictions are not readable have no samples. Rows without a prediction for every
    item are left out. Predictions have a score if the task scores single items.

    Args:
        outcome: the outcome of the study.
        results: the results root, which has the predictions.
        corpus: the corpus, which has the test split.
        count: number of samples, unless the test split has fewer items.
    """
    task = outcome.study.task
    metric = outcome.table.item_metric
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
    # A set: indices repeat if the test split has fewer items than `count`.
    picked = sorted({total * i // count for i in range(count)})
    scores: list[Sequence[float]] = []
    title = ""
    if task.scores_items(metric) and not metric.is_probe:
        scores = [task.measure_items(metric.name, lines, corpus) for lines in texts.values()]
        title = metric.title
    examples = []
    for i, item in zip(picked, task.samples(corpus, picked), strict=True):
        item_scores = tuple(number(row_scores[i], metric.digits) for row_scores in scores)
        example = Example(item.number, item.texts, _predictions(texts, i), item_scores, title)
        examples.append(example)
    return examples


def _predictions(texts: Mapping[str, Sequence[str]], item: int) -> tuple[tuple[str, str], ...]:
    """(row label, text) for an item, for the rows that have a prediction."""
    return tuple((label, lines[item]) for label, lines in texts.items() if item < len(lines))
