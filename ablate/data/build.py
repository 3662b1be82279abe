"""Build a corpus in a working folder, or continue an interrupted build.

First, dev and test are checked, and the vocabulary is learned on a seeded sample of the training
split. Then every split is encoded, and the ids are written in chunks, so that memory does not grow
with the corpus. An interrupted build keeps its vocabulary and continues from the last commit of the
training split.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from ablate.config.identity import INTRODUCED_DATA, LATER_DATA, named_settings
from ablate.config.language_data import MINIMAL_PAIRS
from ablate.data.corpus import FORMAT, OFFSETS, Corpus, Split, TokenSequences
from ablate.data.length_sums import length_sums
from ablate.data.preparation import Preparation
from ablate.data.sequence_writer import SequenceWriter
from ablate.data.sources import Source
from ablate.data.tokenizer import IDS
from ablate.errors import StoreError, data_field
from ablate.formatting import shares_text
from ablate.store.corpora import MANIFEST, fields_entry, fields_of, is_prepared, with_labels
from ablate.store.files import remove_temporaries, sha256, sync_file, write_bytes
from ablate.store.records import CorpusCounts, CorpusManifest, EncodingState, Origin, TrainingText

# Files with the progress, in the working folder
_READ = "read.json"
_STATE = "state.json"
_SUMMED = 1_000_000  # sequences whose lengths are summed at once
EVALUATION_SPLITS = ("test", MINIMAL_PAIRS)  # splits that only evaluations read


class Build:
    """The build of one corpus in a working folder.

    warnings: warnings by split.
    exchanged: splits whose two sides are exchanged.
    """

    def __init__(
        self, preparation: Preparation, folder: Path, origins: Mapping[str, Origin]
    ) -> None:
        preparation.folder = folder
        self.preparation = preparation
        self.data = preparation.data
        self.sources = preparation.sources
        self.log = preparation.log
        self.folder = folder
        self.origins = origins
        self.warnings: dict[str, list[str]] = {}
        self.exchanged: set[str] = set()

    def run(self) -> None:
        """Build the corpus, or continue its build; afterwards the folder holds it.

        Raises:
            DataError: the text cannot be used.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.folder)
        if not is_prepared(self.folder):
            self.preparation.check()
            similar = self._find_similar()
            self._write_manifest(self._encode_all() if similar is None else self._reuse(similar))
        for name in (_READ, _STATE):
            (self.folder / name).unlink(missing_ok=True)

    def _encode_all(self) -> CorpusCounts:
        """Learn the vocabulary, and encode all splits."""
        training_text = TrainingText.read(self.folder / _READ)
        if training_text is None:
            with data_field("train"):
                training_text = self.preparation.learn()
            repairs = {"repaired": self._repaired(self.sources)}  # counted by `check` and `learn`
            training_text = training_text.model_copy(update=repairs)
            training_text.write(self.folder / _READ)
        self.warnings = {split: self._split_warnings(split) for split in ("dev", "test")}
        self.warnings["train"] = list(training_text.warnings)
        if training_text.is_exchanged:
            self.exchanged.add("train")
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
            exchanged=sorted(self.exchanged),
            longest=sums.pop("longest"),
            lengths=sums,
            overlap=self.preparation.overlap("test"),
            dev_overlap=self.preparation.overlap("dev"),
        )

    def _repaired(self, sources: Mapping[str, Source]) -> dict[str, dict[str, int]]:
        """Number of repairs by split and name, as the last reading counted them."""
        return {name: dict(source.repaired) for name, source in sources.items() if source.repaired}

    def _nonempty_warnings(self) -> dict[str, list[str]]:
        """The warnings by split, without splits that have none."""
        return {split: lines for split, lines in self.warnings.items() if lines}

    def _split_warnings(self, split: str) -> list[str]:
        """Warnings about dev or test."""
        warnings = self.preparation.text_warnings(split)
        self.exchanged |= self.preparation.exchanged & {split}
        # By content, because two files with different names may have the same text. The default of
        # language models is to test on dev.
        text = self.origins[split].sha256
        is_dev_text = bool(text) and text == self.origins["dev"].sha256
        is_default = self.data.test == type(self.data).model_fields["test"].default
        if split == "test" and is_dev_text and not is_default:
            warnings.append(
                "test is the same text as dev: if `tune` or `patience` chooses by dev, scores are "
                "better than on new text"
            )
        return warnings

    # Reuse of a corpus with another test split, or other minimal pairs

    def _find_similar(self) -> Corpus | None:
        """Find a prepared corpus that differs only in its test split and minimal pairs."""
        for manifest in sorted(self.folder.parent.glob(f"*/{MANIFEST}")):
            try:
                corpus = Corpus(manifest.parent)
                if not self._has_same_training(corpus.manifest):
                    continue
                if not self.preparation.has_same_vocabulary(corpus):
                    continue
                # Verify every byte, because the new manifest will list the same files.
                corpus.verify(hash_large=True)
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
            settings = self.preparation.settings(manifest.data, fields_of(manifest))
        except KeyError:  # the corpus of another task
            return False
        return settings == self.preparation.corpus_settings

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
                self.warnings[split] = with_labels(lines, counts, self.data.labels)
        self.exchanged = set(counts.exchanged) - {*EVALUATION_SPLITS}
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
                "exchanged": sorted(self.exchanged),
                "overlap": self.preparation.overlap("test"),
            }
        )

    # The ids

    def _write(self, split: str, total: int = 0) -> Counter[str]:
        """Write the ids of a split. The training split, of `total` records, continues after its
        last commit.

        Returns:
            The number of dropped records, by reason.
        """
        fields = self.data.fields
        state = EncodingState(ends=(None,) * len(fields))
        if split == "train":
            state = EncodingState.read(self.folder / _STATE) or state
        n_read = state.done
        left_out = Counter[str](state.left_out)
        with data_field(split), ExitStack() as stack:
            writers = []
            for field, end in zip(fields, state.ends, strict=True):
                writer = SequenceWriter(self.folder, split, field, end)
                writers.append(stack.enter_context(writer))
            chunks = self.preparation.encode_split(split, total, n_read, left_out)
            for number, chunk in enumerate(chunks, 1):
                for writer, ids in zip(writers, chunk.ids, strict=True):
                    writer.add(ids)
                n_read += chunk.n_read
                if split == "train" and number % self.preparation.commit_every == 0:
                    ends = tuple(map(SequenceWriter.commit, writers))
                    state = EncodingState(done=n_read, ends=ends, left_out=dict(left_out))
                    state.write(self.folder / _STATE)
        if split != "train":
            for field, text in self.preparation.stored_texts(split).items():
                write_bytes(self.folder / f"{split}.{field}.txt", text.encode())
        return Counter({reason: count for reason, count in left_out.items() if count})

    def _count_unknown(self, splits: Iterable[str]) -> None:
        """Log the shares of unknown tokens in each field, and warn of large shares."""
        all_shares = dict[str, float]()
        for split in splits:
            shares = {}
            for field in self.data.fields:
                shares[field] = TokenSequences.open(self.folder, split, field).unknown_share()
                all_shares[f"{split} {field}"] = shares[field]
            warnings = self.preparation.encoding_warnings(split, shares)
            self.warnings.setdefault(split, []).extend(warnings)
        if any(all_shares.values()):
            self.log(f"unknown tokens: {shares_text(all_shares)}")

    def _n_records(self) -> dict[str, int]:
        """Number of records of each split on disk."""
        counts = {}
        for split in self.sources:
            counts[split] = len(TokenSequences.open(self.folder, split, self.data.fields[0]))
        return counts

    def _length_sums(self) -> Counter[str]:
        """The result of `length_sums` for the training split."""
        fields = self.data.fields
        train = Split({field: TokenSequences.open(self.folder, "train", field) for field in fields})
        slices = (slice(start, start + _SUMMED) for start in range(0, len(train), _SUMMED))
        # `lengths` counts one end mark for every sequence.
        chunks = (train.lengths(rows) - 1 + self.preparation.end_marks for rows in slices)
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
        vocabulary = [hashes[path.name] for path in self.preparation.models]
        # Without settings of later versions at their default, and in a fixed order, so that the
        # same corpus has the same manifest byte for byte.
        values = named_settings(self.data.recorded, LATER_DATA)
        ordered = {name: values[name] for name in (*INTRODUCED_DATA, *values) if name in values}
        fields = fields_entry(self.data.fields)  # empty for the fields of the first version
        manifest = CorpusManifest(
            format=FORMAT,
            training_hash=self.preparation.training_id(content, vocabulary),
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
