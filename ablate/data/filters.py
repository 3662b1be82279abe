"""Filters and checks of records.

They drop training records, refuse faulty records of dev and test, warn of text that scores do not
suit, and count test records that occur in training.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html.entities import name2codepoint
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray

from ablate.config import DataConfig
from ablate.data.corpus import TokenSequences
from ablate.data.sources import Document, Source
from ablate.data.tokenizer import EOS, IDS, UNK, Encoded, Tokenizer
from ablate.errors import DataError
from ablate.formatting import ellipsis, percent
from ablate.store.records import Overlap

# Reasons for dropping a training record, as in the manifest
EMPTY = "empty"
IDENTICAL = "identical sides"
DUPLICATE = "duplicate"
LONG = "too long"
UNEVEN = "uneven"


def training_records(
    source: Source, data: DataConfig, left_out: Counter[str]
) -> Iterator[Document]:
    """Yield the training records that pass the filters of text, and add the number of dropped
    records by reason to `left_out`.

    Raises:
        DataError: the files cannot be used.
    """
    duplicates = _find_duplicates(source) if data.drop_duplicates else None
    drop_identical = data.pair_rules.drop_identical
    for index, record in enumerate(source.documents()):
        texts = record.texts
        if not all(texts):
            left_out[EMPTY] += 1
        elif drop_identical and texts[0] == texts[1]:
            left_out[IDENTICAL] += 1
        elif duplicates is not None and duplicates[index]:
            left_out[DUPLICATE] += 1
        else:
            yield record


def complete_records(source: Source, data: DataConfig, split: str) -> list[Document]:
    """Read all records of dev or test.

    Raises:
        DataError: a text is empty, or there is no record.
    """
    records = []
    for record in source.documents():
        for index, text in enumerate(record.texts):
            if not text:
                raise DataError(
                    f"{record.where(index)}: the {data.fields[index]} side is empty; {split} "
                    f"must be complete"
                )
        records.append(record)
    if not records:
        raise DataError(f"{source.location}: contains no records")
    return records


def within_limits(
    lengths: NDArray[np.int64], data: DataConfig, left_out: Counter[str]
) -> NDArray[np.bool_]:
    """Filter training records by their lengths in tokens (fields, records), and add the number of
    dropped records by reason to `left_out`.

    Returns:
        (records,), true for records that are short enough and whose first two fields have similar
        lengths.
    """
    is_short = np.asarray(lengths.max(axis=0) <= data.longest_trained)
    left_out[LONG] += int((~is_short).sum())
    max_ratio = data.pair_rules.max_ratio
    if max_ratio is None:
        return is_short
    is_even = np.asarray(lengths[:2].max(axis=0) <= max_ratio * lengths[:2].min(axis=0))
    # A record that is also too long is counted as too long only.
    left_out[UNEVEN] += int((is_short & ~is_even).sum())
    return np.asarray(is_short & is_even)


def refuse_long(records: Sequence[Document], lengths: NDArray[np.int64], data: DataConfig) -> None:
    """Refuse records of dev or test that are longer than `max_length`.

    Raises:
        DataError: a record is too long; the message names the first such record.
    """
    too_long = np.flatnonzero(lengths.max(axis=0) > data.max_length)
    if len(too_long):
        first = too_long[0]
        field = int(np.argmax(lengths[:, first] > data.max_length))
        raise DataError(
            f"{records[first].where(field)}: is longer than data.max_length={data.max_length} "
            f"tokens; increase data.max_length, and set data.max_train_length="
            f"{data.longest_trained} to train on the same records"
        )


def refuse_lost(
    records: Sequence[Document],
    field: int,
    texts: Sequence[str],
    encoded: Encoded,
    tokenizer: Tokenizer,
) -> None:
    """Refuse records of dev or test whose text encoding changes although no token is unknown.

    Repeated spaces, and spaces at the ends, do not count as changes.

    Raises:
        DataError: a text changes; the message names the first such record.
    """
    ids = [row.tolist() for row in np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])]
    decoded_texts = tokenizer.decode(ids)
    for record, text, text_ids, decoded in zip(records, texts, ids, decoded_texts, strict=True):
        if decoded != " ".join(filter(None, text.split(" "))) and UNK not in text_ids:
            lost = next(char for char in text if char not in (" ", *decoded))
            raise DataError(
                f"{record.where(field)}: has U+{ord(lost):04X}, which SentencePiece takes for "
                f"another character, as the training split has none; remove it"
            )


def _find_duplicates(source: Source) -> NDArray[np.bool_]:
    """(records,), true for records with the 64-bit hash of an earlier record."""
    hashes = np.fromiter((_hash(record.texts) for record in source.documents()), dtype=np.uint64)
    is_duplicate = np.ones(len(hashes), dtype=bool)
    first_indices = np.unique(hashes, return_index=True)[1]
    is_duplicate[first_indices] = False
    return is_duplicate


def _hash(texts: Sequence[str]) -> int:
    # Not Python's hash(): its values, and so its collisions, differ between processes.
    digest = hashlib.blake2b("\n".join(texts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


# Scores need plain, detokenized text. A few lines of plain text have an entity or a space before a
# full stop too, so a warning needs this share of lines.
SHARE = 0.1
CHECKED_RECORDS = 20_000  # from the beginning of a split

_MOSES = re.compile(r" @-@ |(?:^| )&(?:apos|quot|#91|#93|#124);|[^\s.] [.?!]$")
_ENTITY = re.compile(rf"&(?:{'|'.join((*name2codepoint, 'apos'))}|#\d{{2,5}});")
# Marks of subword-nmt (@@), SentencePiece (U+2581), OpenNMT (U+FFED), WordPiece (##) and GPT-2
# (U+0120).
_SUBWORDS = re.compile(r"@@(?: |$)|(?:^| )[\u2581\u0120](?:\w| |$)|\uffed|(?:^|\w) ##\w|\w</w>")
_HAN_OR_KANA = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]"  # of scripts without spaces
_WORDS = re.compile(f"{_HAN_OR_KANA} {_HAN_OR_KANA}+ {_HAN_OR_KANA}")
_MARKUP = {
    "HTML-escaped": _ENTITY,
    "Moses-tokenized": _MOSES,
    "segmented into subwords": _SUBWORDS,
    "segmented into words": _WORDS,
}


def markup_warnings(split: str, records: Sequence[Document], labels: Sequence[str]) -> list[str]:
    """Warn of fields whose first lines look tokenized, escaped or segmented."""
    beginning = records[:CHECKED_RECORDS]
    warnings = []
    for field, label in enumerate(labels):
        for markup, pattern in _MARKUP.items():
            matches = sum(pattern.search(record.texts[field]) is not None for record in beginning)
            share = matches / max(1, len(beginning))
            if share >= SHARE:
                warnings.append(
                    f"{split} ({label}): {percent(share, 0)} of lines look {markup}; scores need "
                    f"plain text"
                )
    return warnings


def copy_warnings(split: str, records: Sequence[Document]) -> list[str]:
    """Warn of records whose first two fields are the same text, such as sentences that were not
    translated.
    """
    beginning = [record.texts for record in records[:CHECKED_RECORDS] if len(record.texts) > 1]
    share = sum(texts[0] == texts[1] for texts in beginning) / max(1, len(beginning))
    if share < SHARE:
        return []
    return [f"{split}: {percent(share, 0)} of the records have the same text in both fields"]


def repeat_warnings(records: Sequence[Document]) -> list[str]:
    """Warn of training records that repeat earlier ones, such as a text that is there twice."""
    repeated = len(records) - len({record.texts for record in records})
    share = repeated / max(1, len(records))
    if share < SHARE:
        return []
    return [
        f"train: {percent(share, 0)} of the records repeat earlier records; "
        f"drop_duplicates: true leaves them out"
    ]


def form_warnings(
    splits: tuple[str, str],
    records: tuple[Sequence[Document], Sequence[Document]],
    labels: Sequence[str],
) -> list[str]:
    """Warn of fields that are in different normalization forms of Unicode in two splits.

    A letter with an accent is one character in NFC, and two or more in NFD. A model that was
    trained on one form never writes the other form, and scores compare characters.
    """
    return [
        f"{splits[0]} ({label}): {first} of lines with accents are in Unicode's form NFC, and "
        f"{second} of {splits[1]}: one letter is two different texts; bring both splits into one "
        f"form"
        for label, first, second in _unlike_fields(records, labels, _composed_share, SHARE)
    ]


def _unlike_fields(
    records: tuple[Sequence[Document], Sequence[Document]],
    labels: Sequence[str],
    share_of: Callable[[Sequence[Document], int], float],
    difference: float,
) -> Iterator[tuple[str, str, str]]:
    """Yield (label, percentage in each split) of fields whose shares differ by at least
    `difference`.
    """
    for field, label in enumerate(labels):
        first, second = (share_of(split_records, field) for split_records in records)
        if abs(first - second) >= difference:  # false if a share is NaN
            yield label, percent(first, 0), percent(second, 0)


def _composed_share(records: Sequence[Document], field: int) -> float:
    """The share of NFC among the first lines whose NFC and NFD differ; NaN without such lines."""
    composed = []
    for record in records[:CHECKED_RECORDS]:
        text = record.texts[field]
        if not text.isascii() and not (is_normalized("NFC", text) and is_normalized("NFD", text)):
            composed.append(is_normalized("NFC", text))
    return sum(composed) / len(composed) if composed else nan


# Nearly every line of cased text has a capital letter, and no line of lower-cased text has one. The
# shares of two samples of 20 lines of one text, half of which have one, differ by 0.16 (standard
# deviation).
CASE_DIFFERENCE = 0.6
MIN_CASED = 20  # lines


def case_warnings(
    splits: tuple[str, str],
    records: tuple[Sequence[Document], Sequence[Document]],
    labels: Sequence[str],
) -> list[str]:
    """Warn of fields that have capital letters in the lines of one split and not of the other, such
    as lower-cased training text. Scores compare capital letters.
    """
    return [
        f"{splits[0]} ({label}): {first} of lines have capital letters, and {second} of "
        f"{splits[1]}: a model writes the case on which it was trained, and scores compare it; "
        f"bring both splits into one case"
        for label, first, second in _unlike_fields(records, labels, _capital_share, CASE_DIFFERENCE)
    ]


def _capital_share(records: Sequence[Document], field: int) -> float:
    """The share with capital letters among the first lines with letters that have a case; NaN for
    fewer than MIN_CASED lines.
    """
    has_capital = []
    for record in records[:CHECKED_RECORDS]:
        text = record.texts[field]
        lowered = text.lower()
        if lowered != text.upper():
            has_capital.append(text != lowered)
    return sum(has_capital) / len(has_capital) if len(has_capital) >= MIN_CASED else nan


# Cosines of Multi30k: 0.98 between 3,000 training and 120 dev texts of a language, and 0.23 between
# English and German.
CLEARLY_NEARER = 0.2
COMPARED_RECORDS = 2000  # from the beginning of a split
SHOWN_RECORD = 40  # characters of a text


def exchange_warnings(
    splits: tuple[str, str],
    records: tuple[Sequence[Document], Sequence[Document]],
    labels: Sequence[str],
) -> list[str]:
    """Warn of two splits whose first two fields are exchanged, such as files with the names of the
    wrong languages.

    Each field of one split is compared with both fields of the other, by the cosine of the
    frequencies of their sequences of three characters. This needs no list of languages and no
    spaces between words. A warning needs a clearly larger cosine with the other field for both
    fields, so fields in one language are never taken for exchanged.
    """
    if len(labels) < 2:
        return []
    counts = [[_trigrams(split_records, field) for field in (0, 1)] for split_records in records]
    for field in (0, 1):
        same = _cosine(counts[0][field], counts[1][field])
        other = _cosine(counts[0][field], counts[1][1 - field])
        if other - same < CLEARLY_NEARER:
            return []
    split, reference = splits
    first, second = labels[:2]
    return [
        f"{split} ({first}) looks like {reference} ({second}), and {split} ({second}) like "
        f"{reference} ({first}), by their sequences of three letters: the two sides are exchanged "
        f"in one of these splits, so the model would learn the opposite direction; {split} begins "
        f"with {_shown_record(records[0][0])}, and {reference} with "
        f"{_shown_record(records[1][0])}; exchange the files or columns of the wrong split; if "
        f"runs have begun with this text, use another --results for the mended text"
    ]


def _shown_record(record: Document) -> str:
    """`"A dog runs." -> "Ein Hund rennt."`: the beginnings of the first two fields."""
    return " -> ".join(f'"{ellipsis(text, SHOWN_RECORD)}"' for text in record.texts[:2])


def _trigrams(records: Sequence[Document], field: int) -> Counter[str]:
    """How often each sequence of three characters occurs in the first texts of a field."""
    counts = Counter[str]()
    for record in records[:COMPARED_RECORDS]:
        text = f" {record.texts[field].lower()} "
        counts.update(text[start : start + 3] for start in range(len(text) - 2))
    return counts


def _cosine(first: Counter[str], second: Counter[str]) -> float:
    """The cosine of the angle between two vectors of counts; 0 if one is empty."""
    product = sum(count * second[text] for text, count in first.items())
    squares = sum(count**2 for count in first.values())
    squares *= sum(count**2 for count in second.values())
    return float(product / squares**0.5) if squares else 0.0


_LONG = 1024  # bytes


def count_overlap(folder: Path, fields: Sequence[str], split: str) -> Overlap:
    """Count the records of a split whose text occurs in training, by field and as whole records.

    The split is in memory, with a hash in place of a long text. The training split is read once.
    """
    records = list(_records(folder, split, fields))
    unseen: list[set[Any]] = [*map(set, zip(*records, strict=True)), set(records)]
    for record in _records(folder, "train", fields):
        for texts, text in zip(unseen, (*record, record), strict=True):
            texts.discard(text)
    counts = [0] * len(unseen)
    for record in records:
        for index, text in enumerate((*record, record)):
            counts[index] += text not in unseen[index]
    *field_counts, whole_records = counts
    return Overlap(by_field=dict(zip(fields, field_counts, strict=True)), records=whole_records)


def _records(folder: Path, split: str, fields: Sequence[str]) -> Iterator[tuple[bytes, ...]]:
    """Yield the records of a split, as `_texts` of each field."""
    columns = [_texts(TokenSequences.open(folder, split, field)) for field in fields]
    return zip(*columns, strict=True)


def _texts(sequences: TokenSequences) -> Iterator[bytes]:
    """Yield the ids of each sequence as bytes, or a hash of many ids, without the mark between
    documents.
    """
    # Slices of a memoryview are much faster than slices of a memory map.
    content = sequences.ids.view(np.uint8).data
    size = sequences.ids.itemsize
    end_mark = IDS.type(EOS).tobytes()
    for begin, end in pairwise(sequences.offsets.data):
        ids = content[begin * size : end * size]
        if ids[-size:].tobytes() == end_mark:
            ids = ids[:-size]
        yield ids.tobytes() if len(ids) <= _LONG else hashlib.sha256(ids).digest()
