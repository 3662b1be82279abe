"""Build a corpus in a working folder, resuming an interrupted build.

First dev and test are checked and the vocabulary is learned on a seeded sample of the training
split. Then every split is read again and encoded, and the ids are written in chunks. Memory does
not grow with the corpus. An interrupted build keeps its vocabulary, and the training split up to
the last commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ablate.config.identity import INTRODUCED_DATA, LATER_DATA, without_defaults
from ablate.config.language_data import MINIMAL_PAIRS
from ablate.data.corpus import (
    FORMAT,
    OFFSETS,
    TOKENIZER,
    Corpus,
    SequenceWriter,
    Split,
    length_sums,
    open_sequences,
)
from ablate.data.encoding import IDS, Encoded
from ablate.data.sources import Source
from ablate.data.tokenizer import random_sample
from ablate.errors import StoreError
from ablate.formatting import plural, shares_text
from ablate.store.corpora import MANIFEST, fields_entry, fields_of, is_prepared
from ablate.store.files import remove_temporaries, sha256, sync_file, write_bytes
from ablate.store.records import (
    CorpusCounts,
    CorpusManifest,
    EncodingState,
    Origin,
    Overlap,
    TrainingText,
)

_READ, _STATE = "read.json", "state.json"  # progress, in the working folder
T = TypeVar("T")
_SUMMED = 1_000_000  # sequences whose lengths are summed at once


class Chunk(NamedTuple):
    """Encoded documents.

    read: documents, or pieces of documents, consumed.
    ids: of each field.
    """

    read: int
    ids: Sequence[Encoded]


class Preparation(ABC):
    """Prepares one corpus in a working folder, and continues an interrupted preparation.

    Subclasses say how the text is prepared: as records, or as a stream.

    end_marks: tokens that a sequence has beside its ids: the end mark of a record.
    compared: splits that are compared with the training split.
    commit_every: chunks.
    warnings: by split.
    folder: the working folder.
    origins: where the text of each split is from.
    """

    end_marks: ClassVar[int]
    compared: ClassVar[tuple[str, ...]]
    commit_every: ClassVar[int] = 50  # of 10,000 records, or of about a megabyte of a stream
    folder: Path
    origins: Mapping[str, Origin]

    def __init__(
        self, data: Any, sources: Mapping[str, Source], log: Callable[[str], None]
    ) -> None:
        """Store the data settings, the sources by split, and what receives a line a phase."""
        self.data = data
        self.sources = sources
        self.log = log
        self.warnings: dict[str, list[str]] = {}

    # How the text is prepared

    def check(self) -> None:  # noqa: B027
        """Read dev and test: a fault in them should not show after hours of reading.

        Raises:
            DataError: the text cannot be used.
        """

    def suspicious(self, split: str) -> list[str]:
        """Warnings about the text of dev or test."""
        return []

    @abstractmethod
    def learn(self) -> TrainingText:
        """Write the vocabulary of each field; returns counts of training records, and warnings."""

    @abstractmethod
    def encoded(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Encode a split.

        Args:
            split: its name.
            total: training records that `learn` counted.
            start: documents of the training split that were read before.
            left_out: counts training records that are left out, by reason.
        """

    def sampled(self, items: Iterable[T], most: int, unit: str) -> tuple[list[T], int]:
        """The items that the vocabulary is learned on, and the number of all; logs that number."""
        sample, count = random_sample(items, most)
        basis = plural(count, unit)
        if count > most:
            basis = f"a sample of {most:,} of {basis}"
        if count:
            self.log(f"learning a vocabulary of {self.data.vocab_size:,} on {basis}")
        return sample, count

    def texts(self, split: str) -> Mapping[str, str]:
        """The text of dev or test to store, by field."""
        return {}

    @abstractmethod
    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """The settings that determine how text is prepared, of this or of another corpus."""

    @property
    def own_settings(self) -> list[Any]:
        """Those of this corpus."""
        return self.settings(self.data.model_dump(mode="json"), self.data.fields)

    @abstractmethod
    def content_id(self, hashes: Sequence[str]) -> str:
        """The id of the corpus made from text with these hashes: 12 hexadecimal digits."""

    @abstractmethod
    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """Hash of all but the test split: of the hashes of train and dev, and of vocabularies."""

    def is_current(self, corpus: Corpus) -> bool:
        """Whether this version would prepare the text of a corpus in the same way."""
        return True

    def learns_as(self, corpus: Corpus) -> bool:
        """Whether this version learns the vocabulary of a corpus of the same training text."""
        return True

    def unknown_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warnings about the shares of unknown tokens of a split, by field."""
        return []

    def overlap(self) -> Overlap | None:
        """Test records that occur in the training split, if the text has records."""
        return None

    # The build

    def build(self, folder: Path, origins: Mapping[str, Origin]) -> None:
        """Complete the build; afterwards the folder holds a prepared corpus.

        Args:
            folder: the working folder; a build that it holds a part of goes on.
            origins: where the text of each split is from.

        Raises:
            DataError: the text cannot be used.
        """
        self.folder = folder
        self.origins = origins
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        if not is_prepared(self.folder):
            self._prepare()
        for name in (_READ, _STATE):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def models(self) -> list[Path]:
        """The file of each field's vocabulary."""
        files = []
        for field in self.data.fields:
            is_separate = field in self.data.separate_vocabularies
            name = f"{field}.{TOKENIZER}" if is_separate else TOKENIZER
            files.append(self.folder / name)
        return files

    def _prepare(self) -> None:
        self.check()
        similar = self._similar()
        if similar is not None:
            self._reuse(similar)
            return
        read = TrainingText.read(self.folder / _READ)
        if read is None:
            read = self.learn()
            read = read.model_copy(update={"repaired": self._repaired(self.sources)})
            read.write(self.folder / _READ)
        self.warnings = {split: self._checked(split) for split in ("dev", "test")}
        self.warnings["train"] = list(read.noticed)
        for split in self.sources:
            if split != "train":
                self._write(split)
        left_out = self._write("train", read.pairs)
        self._count_unknown(self.sources)
        sums = self._sums()
        counts = CorpusCounts(
            pairs={split: self._records(split) for split in self.sources},
            left_out={**read.left_out, **left_out},
            repaired=read.repaired,
            warnings=self._warned(),
            longest=sums.pop("longest"),
            lengths=sums,
        )
        self._publish(counts)

    def _repaired(self, splits: Mapping[str, Source]) -> dict[str, dict[str, int]]:
        """Repairs of the splits that have any, as the last reading counted them."""
        return {name: dict(source.repaired) for name, source in splits.items() if source.repaired}

    def _warned(self) -> dict[str, list[str]]:
        """The warnings of the splits that have any."""
        return {split: lines for split, lines in self.warnings.items() if lines}

    def _checked(self, split: str) -> list[str]:
        """Warnings about dev or test."""
        warnings = self.suspicious(split)
        # By content: two files of different names may hold the same text.
        is_training_text = self.origins[split].sha256 == self.origins["train"].sha256
        if split in self.compared and is_training_text:
            what = "scores on it do not apply to other text"
            warnings.append(f"{split} is the same text as the training split: {what}")
        return warnings

    # Reuse of a corpus that differs only in what evaluations read

    _of_evaluations: ClassVar = ("test", MINIMAL_PAIRS)

    def _similar(self) -> Corpus | None:
        """A prepared corpus that differs in its test split only."""
        for manifest in sorted(self.folder.parent.glob(f"*/{MANIFEST}")):
            try:
                corpus = Corpus(manifest.parent)
                if self._differs_in_test_only(corpus.manifest) and self.learns_as(corpus):
                    # Every byte, because the new manifest vouches for the files that are linked.
                    corpus.verify(every=True)
                    return corpus
            except StoreError:
                continue  # damaged, or of another format
        return None

    def _differs_in_test_only(self, manifest: CorpusManifest) -> bool:
        # A manifest without sources is read, too, and is like no other.
        for split in ("train", "dev"):
            known = manifest.sources.get(split)
            if known is None or known.sha256 != self.origins[split].sha256:
                return False
        try:
            settings = self.settings(manifest.data, fields_of(manifest))
        except KeyError:  # of another form
            return False
        return settings == self.own_settings

    def _reuse(self, similar: Corpus) -> None:
        """Link or copy everything but the test split and pairs from a similar corpus."""
        self.log(f"reusing the training split, dev split and vocabulary of {similar.id}")
        for name in similar.manifest.files:
            # Links share the blocks: a corpus is prepared for another test set in almost no space.
            if name.partition(".")[0] not in self._of_evaluations:
                (self.folder / name).unlink(missing_ok=True)
                try:
                    os.link(similar.folder / name, self.folder / name)
                except OSError:  # the file system has no hard links
                    shutil.copyfile(similar.folder / name, self.folder / name)
        before = similar.manifest
        for split, lines in before.warnings.items():
            if split not in self._of_evaluations:
                self.warnings[split] = lines
        self.warnings["test"] = self._checked("test")
        written = [split for split in self.sources if split in self._of_evaluations]
        for split in written:
            self._write(split)
        self._count_unknown(written)
        repaired = {**before.repaired}
        repaired.pop("test", None)
        repaired.update(self._repaired({"test": self.sources["test"]}))
        pairs = {split: before.pairs[split] for split in ("train", "dev")}
        for split in written:
            pairs[split] = self._records(split)
        counts = CorpusCounts(
            pairs=pairs,
            left_out=before.left_out,
            repaired=repaired,
            warnings=self._warned(),
            noticed=before.noticed,
            longest=before.longest,
            lengths=before.lengths,
        )
        self._publish(counts)

    # The ids

    def _write(self, split: str, total: int = 0) -> Counter[str]:
        """Write a split; that of training from the last commit on.

        Returns:
            The number of records left out for their length, by reason.
        """
        fields = self.data.fields
        state = EncodingState(ends=(None,) * len(fields))
        if split == "train":
            state = EncodingState.read(self.folder / _STATE) or state
        read = state.done
        left_out = Counter[str](state.left_out)
        with ExitStack() as stack:
            writers = []
            for field, end in zip(fields, state.ends, strict=True):
                writer = SequenceWriter(self.folder, split, field, end)
                writers.append(stack.enter_context(writer))
            chunks = self.encoded(split, total, read, left_out)
            for number, chunk in enumerate(chunks, 1):
                for writer, ids in zip(writers, chunk.ids, strict=True):
                    writer.add(ids)
                read += chunk.read
                if split == "train" and number % self.commit_every == 0:
                    ends = tuple(map(SequenceWriter.commit, writers))
                    state = EncodingState(done=read, ends=ends, left_out=dict(left_out))
                    state.write(self.folder / _STATE)
        if split != "train":
            for field, text in self.texts(split).items():
                write_bytes(self.folder / f"{split}.{field}.txt", text.encode())
        return +left_out  # without reasons that no record has

    def _count_unknown(self, splits: Iterable[str]) -> None:
        """Log the share of unknown tokens of each field of some splits, and warn of large ones."""
        every = dict[str, float]()
        for split in splits:
            shares = {}
            for field in self.data.fields:
                shares[field] = open_sequences(self.folder, split, field).unknown_share
                every[f"{split} {field}"] = shares[field]
            self.warnings.setdefault(split, []).extend(self.unknown_warnings(split, shares))
        self.log(f"unknown tokens: {shares_text(every)}")

    def _records(self, split: str) -> int:
        """Number of records of a split on disk."""
        return len(open_sequences(self.folder, split, self.data.fields[0]))

    def _sums(self) -> Counter[str]:
        """Sums of the lengths of the training split's sequences on disk."""
        fields = self.data.fields
        whole = Split({field: open_sequences(self.folder, "train", field) for field in fields})
        slices = (slice(start, start + _SUMMED) for start in range(0, len(whole), _SUMMED))
        # `lengths` counts an end mark for every sequence.
        parts = (whole.lengths(part) - 1 + self.end_marks for part in slices)
        return length_sums(fields, parts)

    def _publish(self, counts: CorpusCounts) -> None:
        """Write the manifest after all other files: with it the corpus is complete."""
        files = [path for path in sorted(self.folder.iterdir()) if path.name not in (_READ, _STATE)]
        hashes = dict[str, str]()
        sizes = dict[str, int]()
        for path in files:
            hashes[path.name] = sha256(path)
            sizes[path.name] = path.stat().st_size
        content = {split: self.origins[split].sha256 for split in ("train", "dev")}
        values = without_defaults(self.data.recorded, LATER_DATA)
        # In one order: the same corpus has the same manifest byte for byte.
        ordered = {name: values[name] for name in (*INTRODUCED_DATA, *values) if name in values}
        manifest = CorpusManifest(
            format=FORMAT,
            training=self.training_id(content, [hashes[path.name] for path in self.models]),
            data=ordered,
            fields=tuple(fields_entry(self.data.fields).get("fields", ())) or None,
            sources=dict(self.origins),
            **counts.model_dump(exclude={"overlap"}),
            overlap=self.overlap(),
            types={"ids": IDS.str, "offsets": OFFSETS.str},
            files=hashes,
            sizes=sizes,
        )
        # On the disk before the manifest, which makes the corpus valid.
        for path in files:
            sync_file(path)
        manifest.write(self.folder / MANIFEST)


def digest(content: Any, *, sort_keys: bool = False) -> str:
    """The hash of JSON that ids of corpora are: 12 hexadecimal digits."""
    text = json.dumps(content, sort_keys=sort_keys)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
