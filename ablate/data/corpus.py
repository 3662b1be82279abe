"""A prepared corpus on disk: memory-mapped token ids, the tokenizers and the manifest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from ablate.config.language_data import FIELD
from ablate.config.lengths import product_of
from ablate.data.tokenizer import IDS, UNK, Encoded, Tokenizer, load_tokenizer
from ablate.errors import Damaged, StoreError
from ablate.store.corpora import MANIFEST, fields_of, names_other_files
from ablate.store.files import verify
from ablate.store.records import CorpusManifest

FORMAT = 2  # raised when the same text would be prepared or stored differently
OFFSETS = np.dtype("<i8")
TOKENIZER = "tokenizer.model"  # shared by all fields without a separate vocabulary
LARGE = 64 << 20  # bytes; hashing larger files would delay the start of a run
_SUBSET_KEY = 20170612
_COUNTED = 10_000_000  # tokens among which unknown tokens are counted at once


@dataclass(frozen=True)
class TokenSequences:
    """Token ids of one text field.

    ids: ids of all sequences, concatenated, without BOS and EOS.
    offsets: (n + 1,): offset of the begin of each of the n sequences, and of the end of the last.
    """

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> NDArray[np.uint32]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens of each sequence, with EOS."""
        # Offsets above 32 bits overflow, but their differences are right.
        lengths = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")
        lengths += 1
        return lengths

    @property
    def unknown_share(self) -> float:
        """The share of tokens that are not in the vocabulary."""
        unknown = 0
        # In chunks, because the mask of a large split may not fit into memory.
        for start in range(0, len(self.ids), _COUNTED):
            unknown += int(np.count_nonzero(self.ids[start : start + _COUNTED] == UNK))
        return unknown / max(1, len(self.ids))

    def first(self, count: int) -> TokenSequences:
        """The first sequences."""
        return TokenSequences(self.ids, self.offsets[: count + 1])

    def as_split(self) -> Split:
        """The sequences as a split of one field."""
        return Split({FIELD: self})


class Split:
    """The records of one split: a token sequence for each record and text field."""

    def __init__(self, sequences: Mapping[str, TokenSequences]) -> None:
        self._sequences = dict(sequences)

    def __getitem__(self, field: str) -> TokenSequences:
        return self._sequences[field]

    def __len__(self) -> int:
        return len(next(iter(self._sequences.values())))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields."""
        return tuple(self._sequences)

    def lengths(self, records: Sequence[int] | NDArray[np.int64] | slice) -> NDArray[np.int32]:
        """Lengths of records in tokens, with EOS, (fields, records)."""
        return np.stack([sequences.lengths[records] for sequences in self._sequences.values()])

    def first(self, records: int) -> Split:
        """The first records of the split."""
        beginnings = {}
        for field, sequences in self._sequences.items():
            beginnings[field] = sequences.first(records)
        return Split(beginnings)


def subset(records: int, fraction: float) -> NDArray[np.int64]:
    """Indices of a random subset of records, ascending.

    All seeds use the same subset, and a larger subset contains all smaller subsets, so that runs
    differ only in the amount of training data.
    """
    if fraction == 1:
        return np.arange(records)
    # Each record has a random number; the subset has the smallest numbers.
    numbers = np.random.Generator(np.random.Philox(key=_SUBSET_KEY)).random(records)
    return np.sort(np.argsort(numbers, kind="stable")[: max(1, round(fraction * records))])


def length_sums(fields: Sequence[str], parts: Iterable[NDArray[np.integer[Any]]]) -> Counter[str]:
    """Sums over records from which costs are computed; lengths are in tokens with EOS.

    Args:
        fields: the text fields.
        parts: lengths of some records, (fields, records) each.

    Returns:
        `pairs` (number of records); `FIELD_tokens` and `FIELD_squares` (sums of lengths and of
        their squares); `longer_tokens` (sum of the longest field of each record); the product of
        the first two fields, whose name is `product_of(fields)`; `longest` (a maximum, not a sum).
    """
    sums = Counter[str]()
    longest = 0
    for lengths in parts:
        wide = lengths.astype(np.int64)  # products overflow 32 bits
        sums["pairs"] += wide.shape[1]
        for field, field_lengths in zip(fields, wide, strict=True):
            sums[f"{field}_tokens"] += int(field_lengths.sum())
        sums["longer_tokens"] += int(wide.max(axis=0).sum())
        for index, field in enumerate(fields):
            sums[f"{field}_squares"] += int((wide[index] ** 2).sum())
            if index == 0 and len(fields) > 1:
                sums[product_of(fields)] += int((wide[0] * wide[1]).sum())
        longest = max(longest, int(wide.max(initial=0)))
    sums["longest"] = longest
    return sums


class Corpus:
    """A prepared corpus on disk. Every file is compared with its hash or size before it is used."""

    def __init__(self, folder: Path, test: Literal["test", "dev"] = "test") -> None:
        """Open a corpus that `prepare` has written.

        Args:
            folder: folder of the corpus.
            test: the split that `split("test")` and `text("test", ...)` return.

        Raises:
            Damaged: the manifest differs from what was written.
            StoreError: the corpus does not exist or has another format.
        """
        manifest = CorpusManifest.read(folder / MANIFEST)
        if manifest is None:
            raise StoreError(f"{folder}: is not a prepared corpus")
        if manifest.format != FORMAT:  # cannot be converted without the text
            raise StoreError(f"{folder}: has format {manifest.format}, not {FORMAT}; remove it")
        self.folder = folder
        self._test = test
        self.manifest = manifest
        self.fields = fields_of(manifest)
        self._tokenizers: dict[str, Tokenizer] = {}
        self._verified_names: set[str] = set()  # files that were compared with their hash

    @property
    def id(self) -> str:
        """Hash of the text of all splits and of the settings of preparation."""
        return self.folder.name

    @property
    def training_hash(self) -> str:
        """Hash of all that training and scores on dev depend on: everything but the test split."""
        return self.manifest.training_hash

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of all fields without a separate tokenizer."""
        return self._tokenizer(TOKENIZER)

    def tokenizer_of(self, field: str) -> Tokenizer:
        """The tokenizer of a text field, separate or shared."""
        assert field in self.fields, f"{self.folder} has no field {field}"
        separate = f"{field}.{TOKENIZER}"
        return self._tokenizer(separate if separate in self.manifest.files else TOKENIZER)

    def _tokenizer(self, name: str) -> Tokenizer:
        if name not in self._tokenizers:
            self._tokenizers[name] = load_tokenizer(self._verified(name).read_bytes())
        return self._tokenizers[name]

    def split(self, name: str) -> Split:
        """`train`, `dev` or `test`, memory-mapped.

        Raises:
            Damaged: a file is missing or differs from what was written.
        """
        name = self._test if name == "test" else name
        sequences = {}
        for field in self.fields:
            for suffix in ("ids", "offsets"):
                self._verified(f"{name}.{field}.{suffix}")
            sequences[field] = open_sequences(self.folder, name, field)
        return Split(sequences)

    def text(self, split: str, field: str) -> list[str]:
        """The text of one field of dev or test, before tokenization.

        Raises:
            Damaged: the file is missing or differs from what was written.
        """
        split = self._test if split == "test" else split
        lines = self._verified(f"{split}.{field}.txt").read_bytes().decode()
        return lines.split("\n")[:-1]  # splitlines() would split at U+2028 too

    def verify(self, every: bool = False) -> None:
        """Compare the files with the hashes taken when they were written.

        Args:
            every: whether to hash large files too; otherwise only their sizes are compared.

        Raises:
            Damaged: a file differs; the message names the first such file.
            StoreError: a file cannot be read.
        """
        if names_other_files(self.manifest):
            raise Damaged(f"{self.folder / MANIFEST}: lists a file outside its folder")
        for name in self.manifest.files:
            self._verify(name, every)

    def _verified(self, name: str) -> Path:
        """The path of a file, which is verified at its first use."""
        if name not in self._verified_names:
            self._verify(name)
            self._verified_names.add(name)
        return self.folder / name

    def _verify(self, name: str, every: bool = False) -> None:
        """Compare a file with its hash; a large file only with its size, unless `every` is set."""
        path = self.folder / name
        size = self.manifest.sizes.get(name)
        if name not in self.manifest.files:
            raise Damaged(f"{self.folder / MANIFEST}: does not list {name}")
        try:
            is_large = size is not None and path.stat().st_size == size > LARGE
        except OSError:
            is_large = False
        if not is_large or every:
            verify(path, self.manifest.files[name])


def open_sequences(folder: Path, split: str, field: str) -> TokenSequences:
    """Map one field of a split into memory: FOLDER/SPLIT.FIELD.ids and .offsets."""
    path = folder / f"{split}.{field}.ids"
    ids = np.empty(0, IDS)
    if path.stat().st_size:  # an empty file cannot be mapped
        ids = np.memmap(path, dtype=IDS, mode="r")
    return TokenSequences(ids, np.memmap(path.with_suffix(".offsets"), dtype=OFFSETS, mode="r"))


class SequenceWriter:
    """Writes one field of a split chunk by chunk: FOLDER/SPLIT.FIELD.ids and .offsets."""

    def __init__(
        self, folder: Path, split: str, field: str, end: Sequence[int] | None = None
    ) -> None:
        """Start new files, or continue from `end`, the sizes that `commit` returned."""
        self._paths = [folder / f"{split}.{field}.{suffix}" for suffix in ("ids", "offsets")]
        self._files: list[BinaryIO] = []
        self._end = end

    def __enter__(self) -> SequenceWriter:
        if self._end is None:
            for path in self._paths:
                path.unlink(missing_ok=True)  # may be a hard link to the file of another corpus
                self._files.append(path.open("wb"))
            # Offsets begin with 0, so that n + 1 of them delimit n sequences.
            self._files[1].write(np.zeros(1, OFFSETS).tobytes())
            return self
        for path, size in zip(self._paths, self._end, strict=True):
            file = path.open("r+b")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)
        return self

    def __exit__(self, *exception: object) -> None:
        for file in self._files:
            file.close()

    def add(self, sentences: Encoded) -> None:
        """Append sequences. The next call may continue the last one."""
        ids, offsets = self._files
        written = ids.tell() // IDS.itemsize
        ids.write(sentences.ids.astype(IDS).tobytes())
        offsets.write((written + np.cumsum(sentences.lengths)).astype(OFFSETS).tobytes())

    def commit(self) -> tuple[int, int]:
        """Flush to the disk, and return the sizes of both files in bytes."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        ids, offsets = self._files
        return ids.tell(), offsets.tell()
