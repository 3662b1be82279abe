"""Score stored predictions in the metrics that a study asks for. Nothing is trained or decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ablate.errors import StoreError
from ablate.report.results import measured_metrics
from ablate.store import Results, RunFolder, state_of
from ablate.store.corpora import MANIFEST
from ablate.store.records import Measurement
from ablate.store.score_cache import read_predictions, read_scores, write_scores
from ablate.study import Study


class _Unscored(NamedTuple):
    folder: RunFolder
    decoding: str
    corpus: str
    cached: dict[str, Measurement]
    metrics: tuple[str, ...]


def score_missing(
    study: Study, results: Results, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> str | None:
    """Score the study's predictions in its metrics as far as that is not done, and cache the scores.

    If nothing is missing, no heavy module is loaded. A run without its corpus or its predictions is skipped.

    Args:
        study: names the metrics.
        results: root of the results.
        on_progress: called with the number of scored decodings and their total.

    Returns:
        A line if the scores could not be cached, and are therefore missing; else None.

    Raises:
        StoreError: a result is damaged, or predictions do not match the corpus.
    """
    unscored = _unscored(study, results)
    for done, one in enumerate(unscored):
        on_progress(done, len(unscored))
        try:
            _score(one, study, results)
        except OSError as error:
            return f"{error.filename}: {error.strerror}; new scores are left out"
    if unscored:
        on_progress(len(unscored), len(unscored))
    return None


def _unscored(study: Study, results: Results) -> list[_Unscored]:
    wanted = tuple(name for name in measured_metrics(study) if name in study.task.on_predictions)
    found: dict[tuple[str, str], _Unscored] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            folder = results.run(run.id)
            if (run.id, row.decoding) in found or state_of(folder, row.decoding) != "done":
                continue
            result = folder.read_result()
            assert result is not None
            corpus = result.decodings[row.decoding].corpus
            if not folder.predictions(row.decoding).exists() or not (results.corpora / corpus / MANIFEST).exists():
                continue
            cached = read_scores(folder, row.decoding, corpus)
            metrics = tuple(name for name in wanted if name not in cached)
            if metrics:
                found[run.id, row.decoding] = _Unscored(folder, row.decoding, corpus, cached, metrics)
    return list(found.values())


def _score(one: _Unscored, study: Study, results: Results) -> None:
    from ablate.data.corpus import Corpus  # loads numpy

    corpus = Corpus(results.corpora / one.corpus)
    predictions, expected = read_predictions(one.folder, one.decoding), study.task.n_predictions(corpus)
    if len(predictions) != expected:
        raise StoreError(
            f"{one.folder.predictions(one.decoding)}: has {len(predictions)} lines, and the test split of corpus "
            f"{one.corpus} has {expected} items"
        )
    measured = {name: study.task.measure(name, predictions, corpus) for name in one.metrics}
    write_scores(one.folder, one.decoding, one.corpus, {**one.cached, **measured})
