"""Build a corpus in a working folder, resuming an interrupted build.

First the vocabulary: the training split is read once, checked and counted, and the vocabulary is
    learned on a seeded
sample. Then the ids: the training split is read again, encoded in chunks and written chunk by
    chunk. Memory does not
grow with the corpus. An interrupted preparation keeps its vocabulary and everything up to the last
commit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config import DataConfig
from ablate.config.identity import INTRODUCED_DATA, NOT_IDENTITY_DATA
from ablate.data.corpus import FORMAT, OFFSETS, TOKENIZER, Corpus, LengthSums, SequenceWriter
from ablate.data.encoding import IDS, EncoderPool, TextEncoder, load_encoders
from ablate.data.filters import (
    CorpusWarnings,
    complete_records,
    count_overlap,
    refuse_long,
    training_records,
    within_limits,
)
from ablate.data.readers import Record
from ablate.data.sources import TextSource
from ablate.data.tokenizer import ReservoirSample, train_tokenizer
from ablate.errors import DataError, StoreError
from ablate.formatting import plural
from ablate.store.corpora import MANIFEST, fields_entry, fields_of, is_prepared
from ablate.store.files import remove_temporaries, sha256, sync_file, write_bytes
from ablate.store.machine import cores
from ablate.store.records import CorpusCounts, CorpusManifest, EncodingState, Origin, TrainingText

CHUNK = 10_000  # records
COMMIT_EVERY = 50  # chunks: 500,000 records
PARALLEL_FROM = 200_000  # records; encoding fewer takes less time than starting processes
_READ, _STATE = "read.json", "state.json"  # progress, in the working folder

# The hash of the text already identifies these settings, and the first version's corpus ids contain
# those of _FIRST.
_BY_CONTENT = {
    "corpus",
    "direction",
    "train",
    "dev",
    "test",
    "source_column",
    "target_column",
    "folder",
}
_FIRST = ("vocab_size", "max_length")


class CorpusBuilder:
    """Prepares one corpus in a folder, and continues an interrupted preparation."""

    def __init__(
        self,
        folder: Path,
        data: DataConfig,
        sources: dict[str, TextSource],
        origins: dict[str, Origin],
        log: Callable[[str], None],
    ) -> None:
        """Store the arguments; `build` does the work.

        Args:
            folder: the working folder; it need not exist.
            data: the study's data settings.
            sources: by split.
            origins: by split, with the hashes of its text.
            log: receives a line at the start of each phase.
        """
        self.folder, self.data, self.sources, self.origins, self.log = (
            folder,
            data,
            sources,
            origins,
            log,
        )
        separate = data.separate_vocabularies
        self._models = [
            folder / (f"{field}.{TOKENIZER}" if field in separate else TOKENIZER)
            for field in data.fields
        ]

    def build(self) -> None:
        """Complete the build; afterwards the folder holds a prepared corpus.

        Raises:
            DataError: the text cannot be used.
            StoreError: an encoding process was killed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        if not is_prepared(self.folder):
            self._prepare()
        for name in (_READ, _STATE):
            (self.folder / name).unlink(missing_ok=True)

    def _prepare(self) -> None:
        # Dev and test first: they are small, and a fault in them should not show after hours of
        # reading.
        held_out = {
            split: complete_records(self.sources[split], self.data, split)
            for split in ("dev", "test")
        }
        similar = self._similar()
        if similar is not None:
            self._reuse(similar, held_out["test"])
            return
        read = TrainingText.read(self.folder / _READ)
        if read is None:
            read = self._read(held_out)
            read.write(self.folder / _READ)
        encoders = load_encoders(self._models)
        for split, records in held_out.items():
            self._write_held_out(split, records, encoders)
        sums, left_out = self._write_train(read.pairs)
        counts = CorpusCounts(
            pairs={
                "train": sums.records,
                **{split: len(records) for split, records in held_out.items()},
            },
            left_out={**read.left_out, **left_out},
            repaired=read.repaired,
            noticed=read.noticed,
            longest=sums.longest,
            lengths=sums.sums(),
        )
        self._publish(counts)

    # Reuse of a corpus that differs only in its test split

    def _similar(self) -> Corpus | None:
        """A prepared corpus that differs in its test split only."""
        for manifest in sorted(self.folder.parent.glob(f"*/{MANIFEST}")):
            try:
                corpus = Corpus(manifest.parent)
                if self._differs_in_test_only(corpus.manifest):
                    # Every byte, because the new manifest vouches for the files that are linked.
                    corpus.verify(every=True)
                    return corpus
            except StoreError:
                continue  # damaged, or of another format
        return None

    def _differs_in_test_only(self, manifest: CorpusManifest) -> bool:
        # A manifest without sources is read, too, and is like no other.
        known = {split: origin.sha256 for split, origin in manifest.sources.items()}
        same_text = all(
            known.get(split) == self.origins[split].sha256 for split in ("train", "dev")
        )
        settings = _preparation(manifest.data, fields_of(manifest))
        return same_text and settings == _preparation(
            self.data.model_dump(mode="json"), self.data.fields
        )

    def _reuse(self, similar: Corpus, test: list[Record]) -> None:
        """Link or copy everything but the test split from a similar corpus."""
        self.log(f"reusing the training split, dev split and vocabulary of {similar.id}")
        for name in similar.manifest.files:
            # Links share the blocks: a corpus of gigabytes is prepared for another test set in
            # almost no space.
            if not name.startswith("test."):
                (self.folder / name).unlink(missing_ok=True)
                try:
                    os.link(similar.folder / name, self.folder / name)
                except OSError:  # the file system has no hard links
                    shutil.copyfile(similar.folder / name, self.folder / name)
        warnings = CorpusWarnings()
        self._check("test", test, warnings)
        self._write_held_out("test", test, load_encoders(self._models))
        before, repaired = similar.manifest, dict(self.sources["test"].repaired)
        others = {split: kinds for split, kinds in before.repaired.items() if split != "test"}
        counts = CorpusCounts(
            pairs={**before.pairs, "test": len(test)},
            left_out=before.left_out,
            repaired={**others, **({"test": repaired} if repaired else {})},
            noticed=[
                *warnings.lines(),
                *(line for line in before.noticed if not line.startswith("test ")),
            ],
            longest=before.longest,
            lengths=before.lengths,
        )
        self._publish(counts)

    # The vocabulary

    def _read(self, held_out: dict[str, list[Record]]) -> TrainingText:
        """Read the training split once and learn the vocabulary; returns counts and warnings for
        the manifest.
        """
        source, left_out, warnings = self.sources["train"], Counter[str](), CorpusWarnings()
        for split, records in held_out.items():
            self._check(split, records, warnings)
        sample = ReservoirSample[Record](self.data.tokenizer_pairs)
        self.log("reading the training split")
        for record in training_records(source, self.data, left_out):
            sample.add(record)
        if not sample.added:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in left_out.items())
            why = f"every record is left out ({reasons})" if reasons else "contains no records"
            raise DataError(f"{source.files()[0]}: {why}")
        records = sample.items()
        self._look_for_markup("train", records, warnings)
        self._learn(records, sample.added)
        repaired = {
            split: dict(source.repaired)
            for split, source in self.sources.items()
            if source.repaired
        }
        return TrainingText(
            pairs=sample.added, left_out=dict(left_out), repaired=repaired, noticed=warnings.lines()
        )

    def _check(self, split: str, records: list[Record], warnings: CorpusWarnings) -> None:
        """Add warnings about dev or test; each line begins with the split's name."""
        self._look_for_markup(split, records, warnings)
        if self.origins[split].sha256 == self.origins["train"].sha256:
            warnings.add(
                f"{split} is the same text as the training split: scores on it do not apply to "
                f"other text"
            )

    def _look_for_markup(self, split: str, records: list[Record], warnings: CorpusWarnings) -> None:
        """Add warnings about text that is not plain, unless it is expected."""
        if not self.data.is_tokenized:
            warnings.check(split, records, self.data.labels)

    def _learn(self, records: list[Record], total: int) -> None:
        """Train one vocabulary on each group of fields that share it."""
        data = self.data
        basis = (
            plural(len(records), "record")
            if len(records) == total
            else f"a sample of {len(records):,} of {plural(total, 'record')}"
        )
        self.log(f"learning a vocabulary of {data.vocab_size:,} on {basis}")
        for path in dict.fromkeys(self._models):
            fields = [field for field, model in enumerate(self._models) if model == path]
            symbols = self._symbols(records, fields)
            learned = [field for field in fields if data.fields[field] != data.symbol_field]
            texts = (texts[field] for _, texts in records for field in learned)
            trained = train_tokenizer(
                texts, data.vocab_size, data.tokenizer, data.byte_fallback, symbols=symbols
            )
            write_bytes(path, trained.model)

    def _symbols(self, records: list[Record], fields: Sequence[int]) -> list[str]:
        """The symbols that occur in the symbol field, if that is one of these fields; sorted."""
        found: set[str] = set()
        for field in fields:
            if self.data.fields[field] == self.data.symbol_field:
                found.update(
                    *(self.data.symbols(self.data.as_encoded(texts)[field]) for _, texts in records)
                )
        return sorted(found)

    def _as_encoded(self, records: Iterable[Record]) -> Iterable[Record]:
        """The records as they are encoded."""
        if self.data.symbol_field is None:
            return records
        return ((number, tuple(self.data.as_encoded(texts))) for number, texts in records)

    # The ids

    def _write_held_out(
        self, split: str, records: list[Record], encoders: Sequence[TextEncoder]
    ) -> None:
        """Write all records of dev or test, as ids and as text."""
        texts = _by_field(records)
        fields = _by_field(list(self._as_encoded(records)))
        encoded = [encoder(field) for encoder, field in zip(encoders, fields, strict=True)]
        refuse_long(
            self.sources[split], records, np.stack([each.lengths for each in encoded]), self.data
        )
        for name, ids, field in zip(self.data.fields, encoded, texts, strict=True):
            with SequenceWriter(self.folder, split, name) as writer:
                writer.add(ids)
            write_bytes(
                self.folder / f"{split}.{name}.txt", "".join(f"{text}\n" for text in field).encode()
            )

    def _write_train(self, total: int) -> tuple[LengthSums, Counter[str]]:
        """Write the training split, starting at the last commit.

        Returns:
            Sums of lengths, and the number of records left out for their length, by reason.
        """
        fields = self.data.fields
        state = EncodingState.read(self.folder / _STATE) or EncodingState(
            ends=(None,) * len(fields)
        )
        sums, left_out, read = (
            LengthSums(fields, state.sums),
            Counter[str](state.left_out),
            state.done,
        )
        # Read from the beginning, since neither gzip nor the filters allow a jump, but encoded from
        # the last commit on.
        records = islice(training_records(self.sources["train"], self.data, Counter()), read, None)
        self.log(f"encoding {plural(total, 'record')}")
        writers = [
            SequenceWriter(self.folder, "train", *each)
            for each in zip(fields, state.ends, strict=True)
        ]
        # What is left decides, since a resumed build may have few records to go.
        processes = cores() if total - read >= PARALLEL_FROM else 1
        with ExitStack() as stack:
            for writer in writers:
                stack.enter_context(writer)
            encode = stack.enter_context(EncoderPool(self._models, processes))
            for chunk, encoded in enumerate(encode(_chunks(self._as_encoded(records))), 1):
                lengths = np.stack([field.lengths for field in encoded])
                kept = within_limits(lengths, self.data, left_out)
                for writer, field in zip(writers, encoded, strict=True):
                    writer.add(field.only(kept))
                sums.add(lengths[:, kept] + 1)  # EOS
                read += len(kept)
                if chunk % COMMIT_EVERY == 0:
                    self.log(f"encoding: {read:,} of {total:,} records done")
                    ends = tuple(writer.commit() for writer in writers)
                    state = EncodingState(
                        done=read, ends=ends, sums=sums.totals, left_out=dict(left_out)
                    )
                    state.write(self.folder / _STATE)
        if not sums.records:
            raise DataError(f"{self.sources['train'].files()[0]}: every record is {self._limits()}")
        return sums, Counter({reason: count for reason, count in left_out.items() if count})

    def _limits(self) -> str:
        """The limits on length, for an error message."""
        limits, rules = (
            f"longer than data.max_length={self.data.max_length} tokens",
            self.data.pair_rules,
        )
        if rules is not None and rules.max_ratio is not None:
            limits += f", or more uneven than data.max_ratio={rules.max_ratio:g}"
        return limits

    def _publish(self, counts: CorpusCounts) -> None:
        """Write the manifest last, once all other files are on disk: a folder with a manifest is a
        complete corpus.
        """
        files = [path for path in sorted(self.folder.iterdir()) if path.name not in (_READ, _STATE)]
        hashes = {path.name: sha256(path) for path in files}
        manifest = CorpusManifest(
            format=FORMAT,
            training=self._training_id(hashes),
            data=_in_order(self.data.model_dump(mode="json", exclude={"folder"})),
            fields=tuple(fields_entry(self.data.fields).get("fields", ())) or None,
            sources=self.origins,
            **counts.model_dump(exclude={"overlap"}),
            overlap=count_overlap(self.folder, self.data.fields),
            types={"ids": IDS.str, "offsets": OFFSETS.str},
            files=hashes,
            sizes={path.name: path.stat().st_size for path in files},
        )
        # On the disk before the manifest, which makes the corpus valid.
        for path in files:
            sync_file(path)
        manifest.write(self.folder / MANIFEST)

    def _training_id(self, hashes: dict[str, str]) -> str:
        """Hash of all but the test split. The ids of the training split follow from its text and
        the vocabulary.
        """
        content = {split: self.origins[split].sha256 for split in ("train", "dev")}
        vocabulary = [hashes[path.name] for path in self._models]
        settings = _preparation(self.data.model_dump(mode="json"), self.data.fields)
        named = json.dumps([FORMAT, content, vocabulary, settings], sort_keys=True)
        return hashlib.sha256(named.encode()).hexdigest()[:12]


def later_settings(data: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Settings of preparation added after the first version and not at their default, so that old
    ids stay the same.

    Args:
        data: values of the data settings. A setting that only other tasks have is always included.
        fields: the text fields.
    """
    later = {
        name: default
        for name, default in INTRODUCED_DATA.items()
        if name not in (*_FIRST, *_BY_CONTENT)
    }
    changed = {
        name: data[name] for name, default in later.items() if data.get(name, default) != default
    }
    others = {
        name: data[name]
        for name in data
        if name not in INTRODUCED_DATA and name not in NOT_IDENTITY_DATA
    }
    return {**changed, **others, **fields_entry(fields)}


def _preparation(data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
    """The settings that determine how text is prepared."""
    # A text of a language model has no max_length; its other settings differ from those of every
    # other task.
    return [data["vocab_size"], data.get("max_length"), later_settings(data, fields)]


def _in_order(data: dict[str, Any]) -> dict[str, Any]:
    """Settings in the order of INTRODUCED_DATA, then others: the same corpus has the same manifest
    byte for byte.
    """
    return {name: data[name] for name in (*INTRODUCED_DATA, *data) if name in data}


def _chunks(records: Iterable[Record]) -> Iterator[list[list[str]]]:
    while chunk := list(islice(records, CHUNK)):
        yield _by_field(chunk)


def _by_field(records: Sequence[Record]) -> list[list[str]]:
    """The texts of each field."""
    return [list(field) for field in zip(*(texts for _, texts in records), strict=True)]
