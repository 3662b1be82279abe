"""Build a corpus in a working folder, or continue an interrupted build.

First, dev and test are checked, and the vocabulary is learned on a seeded sample of the training
split. Then every split is encoded, and the ids are written in chunks, so that memory does not grow
with the corpus. An interrupted build keeps its vocabulary and continues from the last commit of the
training split.
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

from ablate.config.identity import INTRODUCED_DATA, LATER_DATA, named_settings
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
from ablate.data.sources import Source
from ablate.data.tokenizer import IDS, Encoded
from ablate.data.vocabulary import random_sample
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

# Files with the progress, in the working folder
_READ = "read.json"
_STATE = "state.json"
T = TypeVar("T")
_SUMMED = 1_000_000  # sequences whose lengths are summed at once
EVALUATION_SPLITS = ("test", MINIMAL_PAIRS)  # splits that only evaluations read


class Chunk(NamedTuple):
    """Encoded documents.

    n_read: number of documents, or of pieces of documents, that were read for it.
    ids: token ids of each field.
    """

    n_read: int
    ids: Sequence[Encoded]


class Preparation(ABC):
    """Prepares one corpus in a working folder. Subclasses prepare text as records or as a stream.

    end_marks: number of end marks of a sequence that are not among its ids.
    compared: splits that are compared with the text of the training split.
    commit_every: number of chunks between commits.
    warnings: warnings by split.
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
        """Prepare for a build.

        Args:
            data: settings of the corpus.
            sources: source of each split.
            log: receives a line for each phase.
        """
        self.data = data
        self.sources = sources
        self.log = log
        self.warnings: dict[str, list[str]] = {}

    # How the text is prepared

    def check(self) -> None:  # noqa: B027
        """Read dev and test, so that their faults are reported before the long training split.

        Raises:
            DataError: the text cannot be used.
        """

    def text_warnings(self, split: str) -> list[str]:
        """Warnings about the text of dev or test, which `check` has read."""
        return []

    @abstractmethod
    def learn(self) -> TrainingText:
        """Learn the vocabulary of each field, write it, and count the training records."""

    @abstractmethod
    def encoded(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Encode a split.

        Args:
            split: name of the split.
            total: number of training records, as `learn` counted them.
            start: number of documents of the training split that were encoded before.
            left_out: receives the number of dropped training records, by reason.
        """

    def sampled(self, items: Iterable[T], most: int, unit: str) -> tuple[list[T], int]:
        """Draw the items on which the vocabulary is learned, and log their number.

        Args:
            items: all items.
            most: largest number of items to draw.
            unit: name of an item, such as "record".

        Returns:
            The drawn items, and the number of all.
        """
        sample, count = random_sample(items, most)
        basis = plural(count, unit)
        if count > most:
            basis = f"a sample of {most:,} of {basis}"
        if count:
            self.log(f"learning a vocabulary of {self.data.vocab_size:,} on {basis}")
        return sample, count

    def texts(self, split: str) -> Mapping[str, str]:
        """The text of dev or test to store with the ids, by field."""
        return {}

    @abstractmethod
    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """The settings of a corpus that determine how its text is prepared.

        Args:
            data: `data` of the corpus, as in its manifest.
            fields: its text fields.
        """

    @property
    def corpus_settings(self) -> list[Any]:
        """The result of `settings` for this corpus."""
        return self.settings(self.data.model_dump(mode="json"), self.data.fields)

    @abstractmethod
    def content_id(self, hashes: Sequence[str]) -> str:
        """Id of the corpus: 12 hexadecimal digits, from the hashes of its text and its settings."""

    @abstractmethod
    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """Hash of all that determines the ids of train and dev, without the test split.

        Args:
            content: hashes of the text of train and dev.
            vocabulary: hashes of the vocabularies.
        """

    def is_current(self, corpus: Corpus) -> bool:
        """Whether this version of ablate would prepare the text of a corpus in the same way."""
        return True

    def has_same_vocabulary(self, corpus: Corpus) -> bool:
        """Whether this version of ablate would learn the vocabulary of a corpus."""
        return True

    def unknown_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warnings about the unknown tokens of a split.

        Args:
            split: name of the split.
            shares: share of unknown tokens by field.
        """
        return []

    def overlap(self) -> Overlap | None:
        """Number of test records that occur in training; None for text without records."""
        return None

    # The build

    def build(self, folder: Path, origins: Mapping[str, Origin]) -> None:
        """Build the corpus, or continue the build.

        Args:
            folder: the working folder; afterwards it holds the prepared corpus.
            origins: origin of the text of each split.

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
        similar = self._find_similar()
        self._write_manifest(self._encode_all() if similar is None else self._reuse(similar))

    def _encode_all(self) -> CorpusCounts:
        """Learn the vocabulary, and encode all splits."""
        training_text = TrainingText.read(self.folder / _READ)
        if training_text is None:
            training_text = self.learn()
            repairs = {"repaired": self._repaired(self.sources)}  # counted by `check` and `learn`
            training_text = training_text.model_copy(update=repairs)
            training_text.write(self.folder / _READ)
        self.warnings = {split: self._split_warnings(split) for split in ("dev", "test")}
        self.warnings["train"] = list(training_text.warnings)
        for split in self.sources:
            if split != "train":
                self._write(split)
        left_out = self._write("train", training_text.records)
        self._count_unknown(self.sources)
        sums = self._length_sums()
        return CorpusCounts(
            records=self._n_records(),
            left_out={**training_text.left_out, **left_out},
            repaired=training_text.repaired,
            warnings=self._nonempty_warnings(),
            longest=sums.pop("longest"),
            lengths=sums,
            overlap=self.overlap(),
        )

    def _repaired(self, sources: Mapping[str, Source]) -> dict[str, dict[str, int]]:
        """Number of repairs by split and name, as the last reading counted them."""
        return {name: dict(source.repaired) for name, source in sources.items() if source.repaired}

    def _nonempty_warnings(self) -> dict[str, list[str]]:
        """The warnings by split, without splits that have none."""
        return {split: lines for split, lines in self.warnings.items() if lines}

    def _split_warnings(self, split: str) -> list[str]:
        """Warnings about dev or test."""
        warnings = self.text_warnings(split)
        # By content, because two files with different names may have the same text.
        is_training_text = self.origins[split].sha256 == self.origins["train"].sha256
        if split in self.compared and is_training_text:
            warnings.append(
                f"{split} is the same text as the training split: scores on it do not apply to "
                "other text"
            )
        return warnings

    # Reuse of a corpus with another test split, or other minimal pairs

    def _find_similar(self) -> Corpus | None:
        """Find a prepared corpus that differs only in its test split and minimal pairs."""
        for manifest in sorted(self.folder.parent.glob(f"*/{MANIFEST}")):
            try:
                corpus = Corpus(manifest.parent)
                if self._has_same_training(corpus.manifest) and self.has_same_vocabulary(corpus):
                    # Verify every byte, because the new manifest will list the same files.
                    corpus.verify(every=True)
                    return corpus
            except StoreError:
                continue  # damaged, or of another format
        return None

    def _has_same_training(self, manifest: CorpusManifest) -> bool:
        """Whether a corpus has the same training and dev text and the same settings."""
        for split in ("train", "dev"):
            origin = manifest.sources.get(split)
            if origin is None or origin.sha256 != self.origins[split].sha256:
                return False
        try:
            settings = self.settings(manifest.data, fields_of(manifest))
        except KeyError:  # the corpus of another task
            return False
        return settings == self.corpus_settings

    def _reuse(self, similar: Corpus) -> CorpusCounts:
        """Link or copy all but the test split and minimal pairs from a similar corpus, and encode
        these two.
        """
        self.log(f"reusing the training split, dev split and vocabulary of {similar.id}")
        for name in similar.manifest.files:
            # Links, so that a corpus with another test set takes almost no space.
            if name.partition(".")[0] not in EVALUATION_SPLITS:
                (self.folder / name).unlink(missing_ok=True)
                try:
                    os.link(similar.folder / name, self.folder / name)
                except OSError:  # the file system has no hard links
                    shutil.copyfile(similar.folder / name, self.folder / name)
        counts = similar.manifest
        for split, lines in counts.warnings.items():
            if split not in EVALUATION_SPLITS:
                self.warnings[split] = lines
        self.warnings["test"] = self._split_warnings("test")
        new_splits = [split for split in self.sources if split in EVALUATION_SPLITS]
        for split in new_splits:
            self._write(split)
        self._count_unknown(new_splits)
        repaired = {split: kinds for split, kinds in counts.repaired.items() if split != "test"}
        repaired.update(self._repaired({"test": self.sources["test"]}))
        return counts.model_copy(
            update={
                "records": self._n_records(),
                "repaired": repaired,
                "warnings": self._nonempty_warnings(),
                "overlap": self.overlap(),
            }
        )

    # The ids

    def _write(self, split: str, total: int = 0) -> Counter[str]:
        """Write the ids of a split; of the training split, those after the last commit.

        Args:
            split: name of the split.
            total: number of training records, as `learn` counted them.

        Returns:
            The number of dropped records, by reason.
        """
        fields = self.data.fields
        state = EncodingState(ends=(None,) * len(fields))
        if split == "train":
            state = EncodingState.read(self.folder / _STATE) or state
        n_read = state.done
        left_out = Counter[str](state.left_out)
        with ExitStack() as stack:
            writers = []
            for field, end in zip(fields, state.ends, strict=True):
                writer = SequenceWriter(self.folder, split, field, end)
                writers.append(stack.enter_context(writer))
            chunks = self.encoded(split, total, n_read, left_out)
            for number, chunk in enumerate(chunks, 1):
                for writer, ids in zip(writers, chunk.ids, strict=True):
                    writer.add(ids)
                n_read += chunk.n_read
                if split == "train" and number % self.commit_every == 0:
                    ends = tuple(map(SequenceWriter.commit, writers))
                    state = EncodingState(done=n_read, ends=ends, left_out=dict(left_out))
                    state.write(self.folder / _STATE)
        if split != "train":
            for field, text in self.texts(split).items():
                write_bytes(self.folder / f"{split}.{field}.txt", text.encode())
        return Counter({reason: count for reason, count in left_out.items() if count})

    def _count_unknown(self, splits: Iterable[str]) -> None:
        """Log the shares of unknown tokens in each field, and warn of large shares."""
        all_shares = dict[str, float]()
        for split in splits:
            shares = {}
            for field in self.data.fields:
                shares[field] = open_sequences(self.folder, split, field).unknown_share
                all_shares[f"{split} {field}"] = shares[field]
            self.warnings.setdefault(split, []).extend(self.unknown_warnings(split, shares))
        self.log(f"unknown tokens: {shares_text(all_shares)}")

    def _n_records(self) -> dict[str, int]:
        """Number of records of each split on disk."""
        field = self.data.fields[0]
        return {split: len(open_sequences(self.folder, split, field)) for split in self.sources}

    def _length_sums(self) -> Counter[str]:
        """The result of `length_sums` for the training split."""
        fields = self.data.fields
        train = Split({field: open_sequences(self.folder, "train", field) for field in fields})
        slices = (slice(start, start + _SUMMED) for start in range(0, len(train), _SUMMED))
        # `lengths` counts one end mark for every sequence.
        chunks = (train.lengths(rows) - 1 + self.end_marks for rows in slices)
        return length_sums(fields, chunks)

    def _write_manifest(self, counts: CorpusCounts) -> None:
        """Write the manifest, which marks the corpus as complete, after all other files."""
        files = [path for path in sorted(self.folder.iterdir()) if path.name not in (_READ, _STATE)]
        hashes = dict[str, str]()
        sizes = dict[str, int]()
        for path in files:
            hashes[path.name] = sha256(path)
            sizes[path.name] = path.stat().st_size
        content = {split: self.origins[split].sha256 for split in ("train", "dev")}
        # Without settings of later versions at their default, and in a fixed order, so that the
        # same corpus has the same manifest byte for byte.
        values = named_settings(self.data.recorded, LATER_DATA)
        ordered = {name: values[name] for name in (*INTRODUCED_DATA, *values) if name in values}
        fields = fields_entry(self.data.fields)  # empty for the fields of the first version
        manifest = CorpusManifest(
            format=FORMAT,
            training_hash=self.training_id(content, [hashes[path.name] for path in self.models]),
            data=ordered,
            fields=tuple(fields["fields"]) if fields else None,
            sources=dict(self.origins),
            **counts.model_dump(include=set(CorpusCounts.model_fields)),
            types={"ids": IDS.str, "offsets": OFFSETS.str},
            files=hashes,
            sizes=sizes,
        )
        for path in files:  # they must be on the disk before the manifest
            sync_file(path)
        manifest.write(self.folder / MANIFEST)


def digest(content: Any, *, sort_keys: bool = False) -> str:
    """Hash of a value's JSON text, as an id of a corpus: 12 hexadecimal digits."""
    text = json.dumps(content, sort_keys=sort_keys)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
