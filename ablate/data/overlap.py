"""Test records that also occur in the training split, counted on token ids: the text as the model sees it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from ablate.data.corpus import TokenSequences, open_sequences
from ablate.store.records import Overlap

CHUNK = 10_000  # training records


def count_overlap(folder: Path, fields: Sequence[str]) -> Overlap:
    """Count the test records whose text occurs in the training split, by text field and as whole records.

    The training split is read once, in chunks. Memory holds the test split and one chunk.

    Args:
        folder: with the token ids of both splits.
        fields: the text fields.
    """
    test = list(zip(*(_texts(open_sequences(folder, "test", field)) for field in fields), strict=True))
    # One set for each field, and one of whole records.
    wanted = [*(set(texts) for texts in zip(*test, strict=True)), set(test)]
    found: list[set[bytes | tuple[bytes, ...]]] = [set() for _ in wanted]
    train = zip(*(_texts(open_sequences(folder, "train", field)) for field in fields), strict=True)
    while chunk := list(islice(train, CHUNK)):
        for known, texts, hits in zip(wanted, [*zip(*chunk, strict=True), chunk], found, strict=True):
            hits.update(known.intersection(texts))
    *by_field, records = (
        sum(text in hits for text in texts) for texts, hits in zip([*zip(*test, strict=True), test], found, strict=True)
    )
    return Overlap(fields=dict(zip(fields, by_field, strict=True)), records=records)


def _texts(sequences: TokenSequences) -> Iterator[bytes]:
    """Yield each sequence's ids as bytes: equal texts have equal bytes."""
    for start in range(0, len(sequences), CHUNK):
        # One read for each chunk: slicing bytes is much faster than slicing a memory map.
        ends = sequences.offsets[start : start + CHUNK + 1].tolist()
        ids, size = sequences.ids[ends[0] : ends[-1]].tobytes(), sequences.ids.itemsize
        for begin, end in pairwise(ends):
            yield ids[(begin - ends[0]) * size : (end - ends[0]) * size]
