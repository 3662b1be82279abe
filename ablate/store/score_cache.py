"""Cached scores of a run's predictions, by all metrics that studies have requested, also on
resampled test sets.

Predictions and corpus determine the scores. Both are compared with their recorded hashes before
scoring. A cache that was computed from other predictions or another corpus is ignored.
"""

from __future__ import annotations

import hashlib
from functools import partial

from ablate.errors import Damaged, Fault
from ablate.store.files import read_bytes
from ablate.store.layout import RunFolder
from ablate.store.records import Decoding, Measurement, Score, ScoreCache, ScoreSource, fault_in

# Raised when a new version would score the same predictions differently, so that older caches are
# ignored. Before 2, the predictions were not compared with their hash.
FORMAT = 2


def read_predictions(folder: RunFolder, id: str, decoding: Decoding) -> list[str]:
    """Read the predictions of a decoding for the test split; empty if it makes no predictions.

    Raises:
        Damaged: the predictions are missing, or do not match their hash.
        StoreError: the file cannot be read.
    """
    # Not splitlines(): it would also split at characters within a sentence, such as U+2028.
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
    """The fault of a decoding's predictions; None if they are undamaged or archived."""
    if is_archived(folder, id):
        return None
    read = partial(verified_predictions, folder, id, decoding)
    return fault_in(read, "`ablate run` decodes it again")


def read_scores(folder: RunFolder, id: str, decoding: Decoding) -> dict[str, Score]:
    """Read the scores of a decoding, by metric. A score with resampled test sets is a
    `Measurement`.

    result.json has the scores that the run computed. The file in scores/ has their resamples, and
    the scores by metrics that were requested later. It is ignored if it was computed from other
    predictions or another corpus.

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
    """Read the scores of predictions in scores/; see `read_scores` for the errors."""
    cache = ScoreCache.read(folder.scores(id))
    if cache is None or decoding.sha256 is None:
        return {}
    if cache.source != score_source(decoding.sha256, decoding.corpus):
        return {}
    return cache.metrics


def write_scores(
    folder: RunFolder, id: str, source: ScoreSource, metrics: dict[str, Measurement]
) -> None:
    """Cache the scores of predictions."""
    # Without flushing: a cache that a power cut loses is computed again.
    ScoreCache(source=source, metrics=metrics).write(folder.scores(id), durable=False)


def score_source(sha256: str, corpus: str) -> ScoreSource:
    """Identify the inputs of scores: the SHA-256 of the predictions, and the id of the corpus that
    has the references.
    """
    return ScoreSource(format=FORMAT, predictions_sha256=sha256, corpus=corpus)
