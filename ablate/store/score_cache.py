"""Cached scores of a run's predictions, in every metric that a study asked for, and on resampled test sets.

Scores follow from the predictions and the corpus, so a cache that is damaged, or that was made from other predictions,
counts as empty.
"""

from __future__ import annotations

import hashlib

from ablate.errors import StoreError
from ablate.store.layout import RunFolder
from ablate.store.records import Measurement, ScoreCache, ScoreSource

# Raised when the same predictions would get other scores, so that cached ones no longer count.
FORMAT = 1


def read_predictions(folder: RunFolder, decoding: str) -> list[str]:
    """The predictions for the test split; empty if there are none. Only LF ends a line."""
    # Not splitlines(), which also splits at U+2028 and other characters that a prediction may contain.
    return (_bytes(folder, decoding) or b"").decode(errors="replace").split("\n")[:-1]


def read_scores(folder: RunFolder, decoding: str, corpus: str) -> dict[str, Measurement]:
    """The cached scores of the predictions, by metric."""
    text = _bytes(folder, decoding)
    if text is None:
        return {}
    try:
        cache = ScoreCache.read(folder.scores(decoding))
    except StoreError:
        return {}
    return cache.metrics if cache is not None and cache.of == _source(text, corpus) else {}


def write_scores(folder: RunFolder, decoding: str, corpus: str, metrics: dict[str, Measurement]) -> None:
    """Cache the scores of the predictions, which must exist."""
    text = _bytes(folder, decoding)
    assert text is not None
    # Not durable: scores that a power cut destroys are computed again.
    ScoreCache(of=_source(text, corpus), metrics=metrics).write(folder.scores(decoding), durable=False)


def _bytes(folder: RunFolder, decoding: str) -> bytes | None:
    path = folder.predictions(decoding)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None


def _source(text: bytes, corpus: str) -> ScoreSource:
    return ScoreSource(format=FORMAT, translations=hashlib.sha256(text).hexdigest(), corpus=corpus)
