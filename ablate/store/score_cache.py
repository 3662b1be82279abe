"""Cached scores of a run's predictions, in every metric that a study asked for, and on resampled
test sets.

Scores follow from the predictions and the corpus. Both are compared with their recorded hashes
before anything is scored, and a cache that was made from predictions or a corpus with another hash
counts as empty.
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
    damage_in,
)

# Raised when the same predictions would get other scores, so that cached ones no longer count.
FORMAT = 2  # before 2, the text was not compared with its hash first


def read_predictions(folder: RunFolder, id: str, decoding: Decoding) -> list[str]:
    """The predictions of a decoding for the test split; empty if there are none. Only LF ends a
    line.

    Raises:
        Damaged: the predictions are missing, or are not those that were made.
        StoreError: the file cannot be read.
    """
    # Not splitlines(), which also divides at U+2028 and other characters within a sentence.
    return verified_predictions(folder, id, decoding).decode().split("\n")[:-1]


def verified_predictions(folder: RunFolder, id: str, decoding: Decoding) -> bytes:
    """The file of predictions, compared with its hash; see `read_predictions`."""
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
    """Whether a run has the scores of a decoding, and no folder of predictions or checkpoints.

    It was unpacked from the archive of `ablate publish`: its scores are final, and it cannot be
    decoded again.
    """
    # Nearly every run has its predictions, which are asked for first.
    return (
        not folder.predictions(id).parent.exists()
        and not folder.checkpoints.exists()
        and folder.scores(id).exists()
    )


def damage_of_predictions(folder: RunFolder, id: str, decoding: Decoding) -> Fault | None:
    """The damage of predictions and what heals it; None if whole, or left out by an archive."""
    if is_archived(folder, id):
        return None
    read = partial(verified_predictions, folder, id, decoding)
    return damage_in(read, "`ablate run` decodes it again")


def read_scores(folder: RunFolder, id: str, decoding: Decoding) -> dict[str, Score]:
    """The scores of a decoding, by metric: a `Measurement` for each with resampled test sets.

    result.json has the scores that the run made itself, and the file in scores/ their resamples and
    the metrics that were asked for later. The file counts only for the predictions and the corpus
    that it names.

    Raises:
        StoreError: the file in scores/ is damaged, or cannot be read.
    """
    scores: dict[str, Score] = dict(read_measurements(folder, id, decoding))
    for name, score in decoding.scores.items():
        measured = scores.get(name)
        scores[name] = score
        if measured is not None:
            # Its own value comes first, so that the table is that of the result.
            own = {"value": score.value, "parts": {**measured.parts, **score.parts}}
            scores[name] = measured.model_copy(update=own)
    return scores


def read_measurements(folder: RunFolder, id: str, decoding: Decoding) -> dict[str, Measurement]:
    """The scores of predictions in scores/; errors as in `read_scores`."""
    cache = ScoreCache.read(folder.scores(id))
    if cache is None or decoding.sha256 is None:
        return {}
    return cache.metrics if cache.of == source(decoding.sha256, decoding.corpus) else {}


def write_scores(
    folder: RunFolder, id: str, of: ScoreSource, metrics: dict[str, Measurement]
) -> None:
    """Cache the scores of predictions."""
    # Not flushed to the disk: a cache that a power cut loses is computed again.
    ScoreCache(of=of, metrics=metrics).write(folder.scores(id), durable=False)


def source(sha256: str, corpus: str) -> ScoreSource:
    """The inputs of scores: the SHA-256 of predictions, and the corpus with the references."""
    return ScoreSource(format=FORMAT, translations=sha256, corpus=corpus)
