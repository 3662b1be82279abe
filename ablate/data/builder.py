"""The work of preparing a corpus, in a folder that holds how far it came.

First the vocabulary: the training side is read once, checked and counted, and a seeded sample of it learned from.
Then the ids: the training side is read again, encoded some thousand pairs at once, and written as it comes. Memory
does not grow with the corpus. A preparation that was stopped keeps its vocabulary and what was written up to the last
commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config import DataConfig
from ablate.config.identity import INTRODUCED_DATA
from ablate.data.corpus import FORMAT, OFFSETS, TOKENIZER, Corpus, LengthSums, SequenceWriter
from ablate.data.encoders import Encoders, encoders_of
from ablate.data.encoding import IDS, Encoder
from ablate.data.filters import SIDES, Pair, complete_pairs, fits, refuse_long, training_pairs
from ablate.data.sample import Sample
from ablate.data.sources import Source
from ablate.data.tokenizer import train_tokenizer
from ablate.data.warnings import Notices
from ablate.errors import DataError, StoreError
from ablate.store.corpora import MANIFEST
from ablate.store.files import read_json, remove_temporaries, sha256, sync_file, write_bytes, write_json
from ablate.store.machine import cores

AT_ONCE = 10_000  # pairs
COMMIT_EVERY = 50  # times that: 500,000 pairs
MANY = 200_000  # pairs from which starting further processes pays
_READ, _STATE = "read.json", "state.json"  # in the folder, until it is whole

# Fields that choose the text, which is known by its content, and those that came with the first version.
_BY_CONTENT = {"corpus", "direction", "train", "dev", "test", "source_column", "target_column", "folder"}
_FIRST = ("vocab_size", "max_length")


class Work:
    """One preparation, which goes on where it was stopped."""

    def __init__(
        self,
        folder: Path,
        data: DataConfig,
        sources: dict[str, Source],
        about: dict[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        """In this folder; `about` is what the manifest says of the sources."""
        self.folder, self.data, self.sources, self.about, self.tell = folder, data, sources, about, tell

    def do(self) -> None:
        """Everything that is missing; then the folder is a prepared corpus.

        Raises:
            DataError: the text cannot be used.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        if not (self.folder / MANIFEST).exists():
            self._prepare()
        for name in (_READ, _STATE):
            (self.folder / name).unlink(missing_ok=True)

    def _prepare(self) -> None:
        held = {split: complete_pairs(self.sources[split], split) for split in ("dev", "test")}
        alike = self._alike()
        if alike is not None:
            self._take_over(alike, held["test"])
            return
        read = read_json(self.folder / _READ)
        if read is None:
            read = self._read(held)
            write_json(self.folder / _READ, read)
        encoders = encoders_of(self._models)
        for split, pairs in held.items():
            self._write_held(split, pairs, encoders)
        sums, left_out = self._write_train(read["pairs"])
        self._publish(
            {
                "pairs": {"train": sums.records, **{split: len(pairs) for split, pairs in held.items()}},
                "left_out": {**read["left_out"], **left_out},
                "repaired": read["repaired"],
                "noticed": read["noticed"],
                "longest": sums.longest,
                "lengths": sums.sums(),
            }
        )

    # Another test side of a corpus that is there

    def _alike(self) -> Corpus | None:
        """A prepared corpus that differs in its test side alone."""
        for manifest in sorted(self.folder.parent.glob(f"*/{MANIFEST}")):
            try:
                corpus = Corpus(manifest.parent)
                if self._differs_in_test_alone(corpus.manifest):
                    corpus.verify(every=True)
                    return corpus
            except StoreError:
                continue  # damaged, or of another version
        return None

    def _differs_in_test_alone(self, manifest: dict[str, Any]) -> bool:
        data = DataConfig(**manifest["data"])
        texts = all(manifest["sources"][split]["sha256"] == self.about[split]["sha256"] for split in ("train", "dev"))
        return texts and _prepared_so(data) == _prepared_so(self.data)

    def _take_over(self, alike: Corpus, test: list[Pair]) -> None:
        """All but the test side of another corpus: its files themselves where the file system can share them."""
        self.tell(f"taking the training side, dev and the vocabulary from {alike.id}")
        for name in alike.manifest["files"]:
            if not name.startswith("test."):
                (self.folder / name).unlink(missing_ok=True)
                try:
                    os.link(alike.folder / name, self.folder / name)
                except OSError:
                    shutil.copyfile(alike.folder / name, self.folder / name)
        notices = Notices()
        self._look(notices, "test", test)
        self._write_held("test", test, encoders_of(self._models))
        before, repaired = alike.manifest, dict(self.sources["test"].repaired)
        others = {split: counts for split, counts in before["repaired"].items() if split != "test"}
        self._publish(
            {
                "pairs": {**before["pairs"], "test": len(test)},
                "left_out": before["left_out"],
                "repaired": {**others, **({"test": repaired} if repaired else {})},
                "noticed": [*notices.lines(), *(line for line in before["noticed"] if not line.startswith("test "))],
                "longest": before["longest"],
                "lengths": before["lengths"],
            }
        )

    # The vocabulary

    def _read(self, held: dict[str, list[Pair]]) -> dict[str, Any]:
        """Read the training side once and learn the vocabulary; what there is to say of the text."""
        source, left_out, notices = self.sources["train"], Counter[str](), Notices()
        for split, pairs in held.items():
            self._look(notices, split, pairs)
        sample = Sample(self.data.tokenizer_pairs)
        self.tell("reading the training side")
        for pair in training_pairs(source, self.data, left_out):
            sample.offer(pair)
        if not sample.offered:
            raise DataError(f"{source.files()[0]}: has no sentence pair")
        pairs = sample.drawn()
        notices.look("train", pairs, self.data.languages)
        self._learn(pairs, sample.offered)
        repaired = {split: dict(source.repaired) for split, source in self.sources.items() if source.repaired}
        return {
            "pairs": sample.offered,
            "left_out": dict(left_out),
            "repaired": repaired,
            "noticed": notices.lines(),
        }

    def _look(self, notices: Notices, split: str, pairs: list[Pair]) -> None:
        """What there is to say of dev or test; each line begins with its name."""
        notices.look(split, pairs, self.data.languages)
        if self.about[split]["sha256"] == self.about["train"]["sha256"]:
            notices.add(f"{split} is the training side itself: what is measured on it says nothing of other text")

    def _learn(self, pairs: list[Pair], of: int) -> None:
        data = self.data
        on = f"{len(pairs):,} pairs" if len(pairs) == of else f"a sample of {len(pairs):,} of {of:,} pairs"
        self.tell(f"learning a vocabulary of {data.vocab_size:,} on {on}")
        if data.vocabulary == "joint":
            learned = {self._models[0]: chain.from_iterable(pair[1:] for pair in pairs)}
        else:
            learned = {path: chain(side) for path, side in zip(self._models, _texts(pairs), strict=True)}
        for path, texts in learned.items():
            write_bytes(path, train_tokenizer(texts, data.vocab_size, data.tokenizer, data.byte_fallback).model)

    @property
    def _models(self) -> tuple[Path, Path]:
        """The vocabularies of source and target."""
        target = self.folder / TOKENIZER
        return (self.folder / f"source.{TOKENIZER}" if self.data.vocabulary == "separate" else target), target

    # The ids

    def _write_held(self, split: str, pairs: list[Pair], encoders: tuple[Encoder, Encoder]) -> None:
        """A split of which nothing may be left out, as ids and as text."""
        texts = _texts(pairs)
        encoded = [encoder(side) for encoder, side in zip(encoders, texts, strict=True)]
        refuse_long(self.sources[split], pairs, np.stack([side.lengths for side in encoded]), self.data)
        for name, sentences, side in zip(SIDES, encoded, texts, strict=True):
            with SequenceWriter(self.folder, split, name) as writer:
                writer.add(sentences)
            write_bytes(self.folder / f"{split}.{name}.txt", "".join(f"{text}\n" for text in side).encode())

    def _write_train(self, total: int) -> tuple[LengthSums, Counter[str]]:
        """The training side, from the last commit on; sums of its lengths, and what was left out by length."""
        state = read_json(self.folder / _STATE) or {"read": 0, "ends": [None, None], "sums": {}, "left_out": {}}
        sums, left_out, read = LengthSums(SIDES, state["sums"]), Counter[str](state["left_out"]), state["read"]
        pairs = islice(training_pairs(self.sources["train"], self.data, Counter()), read, None)
        self.tell(f"encoding {total:,} pairs")
        writers = [SequenceWriter(self.folder, "train", *given) for given in zip(SIDES, state["ends"], strict=True)]
        processes = cores() if total - read >= MANY else 1
        with writers[0], writers[1], Encoders(self._models, processes) as encode:
            for turn, encoded in enumerate(encode(_chunks(pairs)), 1):
                lengths = np.stack([side.lengths for side in encoded])
                kept = fits(lengths, self.data, left_out)
                for writer, side in zip(writers, encoded, strict=True):
                    writer.add(side.only(kept))
                sums.add(lengths[:, kept] + 1)
                read += len(kept)
                if turn % COMMIT_EVERY == 0:
                    self.tell(f"encoding: {read:,} of {total:,} pairs done")
                    ends = [writer.commit() for writer in writers]
                    state = {"read": read, "ends": ends, "sums": sums.totals, "left_out": dict(left_out)}
                    write_json(self.folder / _STATE, state)
        if not sums.records:
            limit = f"longer than data.max_length={self.data.max_length} tokens"
            if self.data.max_ratio is not None:
                limit += f", or more uneven than data.max_ratio={self.data.max_ratio:g}"
            raise DataError(f"{self.sources['train'].files()[0]}: every pair is {limit}")
        return sums, Counter({reason: count for reason, count in left_out.items() if count})

    def _publish(self, facts: dict[str, Any]) -> None:
        """The manifest, last: it makes the folder count."""
        files = [path for path in sorted(self.folder.iterdir()) if path.name not in (_READ, _STATE)]
        hashes = {path.name: sha256(path) for path in files}
        manifest = {
            "format": FORMAT,
            "training": self._training(hashes),
            "data": self.data.model_dump(exclude={"folder"}),
            "sources": self.about,
            **facts,
            "types": {"ids": IDS.str, "offsets": OFFSETS.str},
            "files": hashes,
            "sizes": {path.name: path.stat().st_size for path in files},
        }
        for path in files:
            sync_file(path)  # the manifest must not be on the disk before what it speaks of
        write_json(self.folder / MANIFEST, manifest)

    def _training(self, hashes: dict[str, str]) -> str:
        """What names all but the test side. The ids of the training side follow from its text and the vocabulary."""
        content = {split: self.about[split]["sha256"] for split in ("train", "dev")}
        vocabulary = [hashes[path.name] for path in self._models]
        named = json.dumps([FORMAT, content, vocabulary, _prepared_so(self.data)], sort_keys=True)
        return hashlib.sha256(named.encode()).hexdigest()[:12]


def not_usual(data: DataConfig) -> dict[str, Any]:
    """Settings of preparation that came later and are not at their default: so old corpora keep their names."""
    later = {name: default for name, default in INTRODUCED_DATA.items() if name not in (*_FIRST, *_BY_CONTENT)}
    return {name: getattr(data, name) for name, default in later.items() if getattr(data, name) != default}


def _prepared_so(data: DataConfig) -> list[Any]:
    """The settings of preparation."""
    return [data.vocab_size, data.max_length, not_usual(data)]


def _chunks(pairs: Iterator[Pair]) -> Iterator[tuple[list[str], list[str]]]:
    while some := list(islice(pairs, AT_ONCE)):
        yield _texts(some)


def _texts(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The sides of pairs."""
    return [source for _, source, _ in pairs], [target for _, _, target in pairs]
