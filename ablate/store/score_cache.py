"""Cached scores of a run's predictions, by all metrics of studies, also on resampled test sets.

Predictions and corpus determine the scores. Both are compared with their recorded hashes before
scoring. A cache for predictions or a corpus with another hash is ignored.
"""

from __future__ import annotations

import hashlib
from functools import partial

from ablate.errors import Damaged, Fault
from ablate.store.files import read_bytes
from ablate.store.layout import RunFolder
from ablate.store.records import (
    Decoding,
    Measurement,
    Score,
    ScoreCache,
    ScoreSource,
    fault_in,
)

# Raised when the same predictions would get other scores, so that older caches are ignored.
FORMAT = 2  # before 2, the text was not compared with its hash


def read_predictions(folder: RunFolder, id: str, decoding: Decoding) -> list[str]:
    """Read the predictions of a decoding for the test split; empty if there are none.

    Raises:
        Damaged: the predictions are missing, or are not those that were made.
        StoreError: the file cannot be read.
    """
    # Not splitlines(), which also splits at U+2028 and others, which may be within a sentence.
    return verified_predictions(folder, id, decoding).decode().split("\n")[:-1]


def verified_predictions(folder: RunFolder, id: str, decoding: Decoding) -> bytes:
    """Read the file of predictions, and compare it with its hash; see `read_predictions`."""
    if decoding.sha256 is None:
        return b""
    path = folder.predictions(id)
    content = read_bytes(path)
    if content is None:
        raise Damaged(f"{path}: is missing")
    if hashlib.sha256(content).hexdigest() != decoding.sha256:
        raise Damaged(f"{path}: is damaged (its SHA-256 is not the one written)")
    return content


def is_archived(folder: RunFolder, id: str) -> bool:
    """Whether a run was unpacked from an archive of `ablate publish`.

    Such a run has scores, but no folders of predictions and checkpoints. Its scores are final,
    because it cannot be decoded again.
    """
    return (
        not folder.predictions(id).parent.exists()
        and not folder.checkpoints.exists()
        and folder.scores(id).exists()
    )


def fault_in_predictions(folder: RunFolder, id: str, decoding: Decoding) -> Fault | None:
    """The fault of damaged predictions; None if they are undamaged or archived."""
    if is_archived(folder, id):
        return None
    read = partial(verified_predictions, folder, id, decoding)
    return fault_in(read, "`ablate run` decodes it again")


def read_scores(folder: RunFolder, id: str, decoding: Decoding) -> dict[str, Score]:
    """The scores of a decoding, by metric; a score with resampled test sets is a `Measurement`.

    result.json has the scores that the run computed. The file in scores/ has their resamples, and
    metrics that were requested later; it is ignored if it is for other predictions or another
    corpus.

    Raises:
        StoreError: the file in scores/ is damaged, or cannot be read.
    """
    scores: dict[str, Score] = dict(read_measurements(folder, id, decoding))
    for name, score in decoding.scores.items():
        cached = scores.get(name)
        if cached is None:
            scores[name] = score
        else:  # the result takes precedence over the cache
            update = {"value": score.value, "parts": {**cached.parts, **score.parts}}
            scores[name] = cached.model_copy(update=update)
    return scores


def read_measurements(folder: RunFolder, id: str, decoding: Decoding) -> dict[str, Measurement]:
    """The scores of predictions in scores/; errors as in `read_scores`."""
    cache = ScoreCache.read(folder.scores(id))
    if cache is None or decoding.sha256 is None:
        return {}
    return cache.metrics if cache.source == score_source(decoding.sha256, decoding.corpus) else {}


def write_scores(
    folder: RunFolder, id: str, source: ScoreSource, metrics: dict[str, Measurement]
) -> None:
    """Cache the scores of predictions."""
    # Without flushing: a cache that a power cut loses is computed again.
    ScoreCache(source=source, metrics=metrics).write(folder.scores(id), durable=False)


def score_source(sha256: str, corpus: str) -> ScoreSource:
    """The inputs of scores: the SHA-256 of predictions, and the corpus with the references."""
    return ScoreSource(format=FORMAT, predictions_sha256=sha256, corpus=corpus)
