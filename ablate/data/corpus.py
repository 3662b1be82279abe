"""A prepared corpus on disk: memory-mapped token ids, the tokenizers and the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ablate.config.language_data import FIELD
from ablate.data.tokenizer import IDS, UNK, Tokenizer, load_tokenizer
from ablate.errors import Damaged, StoreError
from ablate.store.corpora import MANIFEST, fields_of, names_other_files
from ablate.store.files import verify
from ablate.store.records import CorpusManifest

FORMAT = 2  # increase it when the same text would be prepared or stored differently
OFFSETS = np.dtype("<i8")
TOKENIZER = "tokenizer.model"  # shared by all fields without a separate vocabulary
LARGE = 64 << 20  # bytes; hashing larger files would delay the start of a run
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

    @classmethod
    def open(cls, folder: Path, split: str, field: str) -> TokenSequences:
        """Map one field of a split into memory: FOLDER/SPLIT.FIELD.ids and .offsets."""
        path = folder / f"{split}.{field}.ids"
        ids = np.empty(0, IDS)
        if path.stat().st_size:  # an empty file cannot be mapped
            ids = np.memmap(path, dtype=IDS, mode="r")
        return cls(ids, np.memmap(path.with_suffix(".offsets"), dtype=OFFSETS, mode="r"))

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Number of tokens of each sequence, with EOS, which `ids` does not contain."""
        # Offsets above 32 bits overflow, but their differences are right.
        lengths = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")
        lengths += 1
        return lengths

    def unknown_share(self) -> float:
        """Share of tokens that are not in the vocabulary. Reads all tokens."""
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

    def lengths(self, indices: Sequence[int] | NDArray[np.int64] | slice) -> NDArray[np.int32]:
        """Number of tokens of records, with EOS. Shape (fields, records)."""
        return np.stack([sequences.lengths[indices] for sequences in self._sequences.values()])

    def first(self, count: int) -> Split:
        """The first records of the split."""
        return Split(
            {field: sequences.first(count) for field, sequences in self._sequences.items()}
        )


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
        self._checked_names: set[str] = set()  # files that were compared with their hash

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
            self._tokenizers[name] = load_tokenizer(self._path(name).read_bytes())
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
                self._path(f"{name}.{field}.{suffix}")
            sequences[field] = TokenSequences.open(self.folder, name, field)
        return Split(sequences)

    def text(self, split: str, field: str) -> list[str]:
        """The text of one field of dev or test, before tokenization.

        Raises:
            Damaged: the file is missing or differs from what was written.
        """
        split = self._test if split == "test" else split
        lines = self._path(f"{split}.{field}.txt").read_bytes().decode()
        return lines.split("\n")[:-1]  # splitlines() would split at U+2028 too

    def verify(self, hash_large: bool = False) -> None:
        """Compare all files with the hashes taken when they were written.

        Args:
            hash_large: whether to hash large files too; otherwise only their sizes are compared.

        Raises:
            Damaged: a file differs; the message names the first such file.
            StoreError: a file cannot be read.
        """
        if names_other_files(self.manifest):
            raise Damaged(f"{self.folder / MANIFEST}: lists a file outside its folder")
        for name in self.manifest.files:
            self._check(name, hash_large)

    def _path(self, name: str) -> Path:
        """The path of a file, which is compared with its hash at its first use."""
        if name not in self._checked_names:
            self._check(name)
            self._checked_names.add(name)
        return self.folder / name

    def _check(self, name: str, hash_large: bool = False) -> None:
        """Compare a file with its hash, or a large file only with its size."""
        path = self.folder / name
        size = self.manifest.sizes.get(name)
        if name not in self.manifest.files:
            raise Damaged(f"{self.folder / MANIFEST}: does not list {name}")
        if size is not None and size > LARGE and not hash_large:
            # A missing file, or a file of another size, is hashed: that reports the damage.
            with suppress(OSError):
                if path.stat().st_size == size:
                    return
        verify(path, self.manifest.files[name])
