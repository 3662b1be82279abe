"""Prepare a corpus once: read, check, learn the vocabulary on the training side, encode, write.

A prepared corpus is named by the hash of the text it was made from and of how it was made. It is
built beside its place and renamed when whole; several processes that want it wait for the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ablate.config import DataConfig
from ablate.data import toy
from ablate.data.corpus import FORMAT, IDS, OFFSETS, SIDES, TOKENIZER, Corpus, lengths_of, write_side
from ablate.data.files import read_pairs, split_files, text_hash
from ablate.data.tokenizer import Tokenizer, train_tokenizer
from ablate.errors import Damaged, DataError
from ablate.store.corpora import MANIFEST, remember
from ablate.store.files import sha256, sync_folder, write_bytes, write_json
from ablate.store.lease import Lease

SPLITS = ("train", "dev", "test")
_ENCODE_AT_ONCE = 10_000

Pairs = list[tuple[int, str, str]]  # line number, source, target


@dataclass
class _Raw:
    """A corpus as text, and how many training pairs were left out and why."""

    splits: dict[str, Pairs]
    names: dict[str, tuple[str, ...]]  # one file, or one a side
    left_out: dict[str, int] = field(default_factory=dict)

    def name(self, split: str, side: int = 0) -> str:
        """The file that holds this side of a split."""
        return self.names[split][side if len(self.names[split]) > 1 else 0]


def prepare(data: DataConfig, folder: Path, corpora: Path, say: Callable[[str], None] = lambda line: None) -> Corpus:
    """The prepared corpus, made if it is not there yet, and made again if it was damaged since.

    Args:
        data: what the study says.
        folder: where its splits lie.
        corpora: where prepared corpora are kept.
        say: is told of damage.

    Raises:
        DataError: the corpus is missing or malformed, or holds fewer pieces than vocab_size.
        StoreError: the prepared corpus cannot be read.
    """
    identity = _content_id(data, folder)
    place = corpora / identity
    corpus = _whole(place, say)
    if corpus is None:
        corpora.mkdir(parents=True, exist_ok=True)
        lease = Lease(corpora / f"{identity}.lease")
        with lease.held():
            corpus = _whole(place)  # another may have made it meanwhile
            if corpus is None:
                _build(data, folder, place, lease.check)
                corpus = Corpus(place)
    remember(data, corpora, identity)
    return corpus


def _whole(place: Path, say: Callable[[str], None] = lambda line: None) -> Corpus | None:
    """The prepared corpus in its place; None where there is none that is as it was written."""
    if not (place / MANIFEST).exists():
        return None
    try:
        corpus = Corpus(place)
        corpus.verify()
    except Damaged as error:
        say(f"{error}; the corpus is prepared again")
        return None
    return corpus


def _content_id(data: DataConfig, folder: Path) -> str:
    if data.corpus == "toy":
        content = [f"toy {toy.VERSION}"]
    else:
        files = [file for split in SPLITS for file in split_files(folder, getattr(data, split), data.languages)]
        content = [text_hash(file) for file in files]
    how = [FORMAT, data.vocab_size, data.max_length, content]
    return hashlib.sha256(json.dumps(how).encode()).hexdigest()[:12]


def _build(data: DataConfig, folder: Path, place: Path, guard: Callable[[], None]) -> None:
    raw = _read(data, folder)
    if not raw.splits["train"]:
        raise DataError(f"{raw.name('train')}: has no sentence pair to train on")
    tokenizer = train_tokenizer((text for _, *pair in raw.splits["train"] for text in pair), data.vocab_size)
    encoded = {split: _encode(tokenizer, pairs) for split, pairs in raw.splits.items()}
    _leave_out_long(raw, encoded, data.max_length)
    for leftover in place.parent.glob(f".{place.name}.*.tmp"):  # of killed ones: the caller holds the lock
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        _write(temporary, data, raw, encoded, tokenizer)
        guard()
        shutil.rmtree(place, ignore_errors=True)
        temporary.replace(place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync_folder(place.parent)


def _read(data: DataConfig, folder: Path) -> _Raw:
    if data.corpus == "toy":
        splits = {
            split: [(number, *pair) for number, pair in enumerate(pairs, 1)] for split, pairs in toy.generate().items()
        }
        return _Raw(splits, {split: (f"toy {split}",) for split in SPLITS})
    raw = _Raw({}, {})
    for split in SPLITS:
        files = split_files(folder, getattr(data, split), data.languages)
        raw.names[split] = tuple(map(str, files))
        raw.splits[split] = list(_checked(read_pairs(files), split, raw))
        if not raw.splits[split]:
            raise DataError(f"{files[0]}: has no sentence pair")
    return raw


def _checked(pairs: Iterator[tuple[int, str, str]], split: str, raw: _Raw) -> Iterator[tuple[int, str, str]]:
    """Training pairs with an empty side are left out and counted; elsewhere they are an error."""
    for number, source, target in pairs:
        if source and target:
            yield number, source, target
        elif split == "train":
            raw.left_out["empty"] = raw.left_out.get("empty", 0) + 1
        else:
            side = 1 if source else 0
            where = f"{raw.name(split, side)}:{number}"
            raise DataError(f"{where}: the {SIDES[side]} side is empty; {split} must be complete")


def _encode(tokenizer: Tokenizer, pairs: Pairs) -> list[list[list[int]]]:
    """[source sentences, target sentences] as ids."""
    sides: list[list[list[int]]] = [[], []]
    for start in range(0, len(pairs), _ENCODE_AT_ONCE):
        some = pairs[start : start + _ENCODE_AT_ONCE]
        for side in (0, 1):
            sides[side] += tokenizer.encode([pair[1:][side] for pair in some])
    return sides


def _leave_out_long(raw: _Raw, encoded: dict[str, list[list[list[int]]]], limit: int) -> None:
    """Training pairs over the limit are left out and counted; elsewhere they are an error."""
    for split, (sources, targets) in encoded.items():
        fits = [max(len(s), len(t)) <= limit for s, t in zip(sources, targets, strict=True)]
        if all(fits):
            continue
        if split != "train":
            first = fits.index(False)
            where = f"{raw.name(split, int(len(sources[first]) <= limit))}:{raw.splits[split][first][0]}"
            raise DataError(f"{where}: is longer than data.max_length={limit} tokens; raise it")
        raw.left_out["too long"] = fits.count(False)
        if not any(fits):
            raise DataError(f"{raw.name(split)}: every pair is longer than data.max_length={limit} tokens")
        encoded[split] = [[s for s, fit in zip(side, fits, strict=True) if fit] for side in (sources, targets)]


def _write(
    folder: Path, data: DataConfig, raw: _Raw, encoded: dict[str, list[list[list[int]]]], tokenizer: Tokenizer
) -> None:
    write_bytes(folder / TOKENIZER, tokenizer.model)
    for split, sides in encoded.items():
        for side, sentences in zip(SIDES, sides, strict=True):
            write_side(folder, split, side, sentences)
        if split != "train":
            for index, side in enumerate(SIDES, 1):
                text = "".join(f"{pair[index]}\n" for pair in raw.splits[split])
                write_bytes(folder / f"{split}.{side}.txt", text.encode())
    S, T = (np.array([len(s) + 1 for s in side], dtype=np.int64) for side in encoded["train"])
    manifest = {
        "format": FORMAT,
        "data": data.model_dump(exclude={"folder"}),
        "pairs": {split: len(sides[0]) for split, sides in encoded.items()},
        "left_out": raw.left_out,
        "longest": int(max(S.max(), T.max())),
        "lengths": asdict(lengths_of(S, T)),
        "types": {"ids": IDS.str, "offsets": OFFSETS.str},
        "files": {path.name: sha256(path) for path in sorted(folder.iterdir())},
    }
    write_json(folder / MANIFEST, manifest)  # last: it speaks of the others
