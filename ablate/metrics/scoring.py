"""Score what is translated already, in the metrics that a study asks for; nothing is trained or decoded for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ablate.errors import StoreError
from ablate.store import Results, RunFolder, state_of
from ablate.store.corpora import is_prepared
from ablate.store.score_cache import read_measured, translations, write_measured
from ablate.study import Study

RESAMPLE_DIGITS = 6


class _Missing(NamedTuple):
    folder: RunFolder
    decoding: str
    corpus: str
    known: dict[str, Any]
    metrics: tuple[str, ...]


def measure_missing(study: Study, results: Results, told: Callable[[int, int], None] = lambda done, of: None) -> None:
    """Score the study's translations in its metrics, as far as that is not done, and remember it.

    `told` hears how many of how many are done. Where nothing is missing, nothing heavy is loaded. A run whose corpus
    or translations are not there stays without.

    Raises:
        StoreError: a result is damaged, or translations are not of the corpus.
    """
    missing = _missing(study, results)
    for done, one in enumerate(missing):
        told(done, len(missing))
        _measure(one, results)
    if missing:
        told(len(missing), len(missing))


def _missing(study: Study, results: Results) -> list[_Missing]:
    found: dict[tuple[str, str], _Missing] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            folder = results.run(run.id)
            if (run.id, row.decoding) in found or state_of(folder, row.decoding) != "done":
                continue
            corpus = (folder.read_result() or {})["decodings"][row.decoding]["corpus"]
            if not folder.translations(row.decoding).exists() or not is_prepared(results.corpora / corpus):
                continue
            known = read_measured(folder, row.decoding, corpus)
            metrics = tuple(metric for metric in study.metrics if metric not in known)
            if metrics:
                found[run.id, row.decoding] = _Missing(folder, row.decoding, corpus, known, metrics)
    return list(found.values())


def _measure(one: _Missing, results: Results) -> None:
    from ablate.data.corpus import Corpus  # these load numpy
    from ablate.metrics.sacrebleu import measure

    references = Corpus(results.corpora / one.corpus).text("test", "target")
    hypotheses = translations(one.folder, one.decoding)
    if len(hypotheses) != len(references):
        raise StoreError(
            f"{one.folder.translations(one.decoding)}: has {len(hypotheses)} sentences, and the test side of corpus "
            f"{one.corpus} has {len(references)}"
        )
    known = dict(one.known)
    for name in one.metrics:
        found = measure(name, hypotheses, references)
        resamples = [round(value, RESAMPLE_DIGITS) for value in found.resamples]
        known[name] = {"value": found.value, "signature": found.signature, "resamples": resamples}
    write_measured(one.folder, one.decoding, one.corpus, known)
