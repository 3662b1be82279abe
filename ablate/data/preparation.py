"""How a text is prepared: the interface of preparations of records, streams and items."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from ablate.data.corpus import TOKENIZER, Corpus
from ablate.data.filters import count_overlap
from ablate.data.sources import Source
from ablate.data.tokenizer import Encoded
from ablate.data.vocabulary import random_sample
from ablate.formatting import plural
from ablate.store.records import Overlap, TrainingText

T = TypeVar("T")


class Chunk(NamedTuple):
    """Encoded documents.

    n_read: number of documents, or of pieces of documents, that were read for it.
    ids: token ids of each field.
    """

    n_read: int
    ids: Sequence[Encoded]


class Preparation(ABC):
    """How the text of one corpus is prepared; `build.Build` calls the methods in their order.

    end_marks: number of end marks of a sequence that are not among its ids.
    commit_every: number of chunks between commits.
    folder: folder of the vocabularies, which the caller sets.
    exchanged: splits whose two sides are exchanged, of the splits whose warnings were made.
    """

    end_marks: ClassVar[int]
    commit_every: ClassVar[int] = 50  # of 10,000 records, or of about a megabyte of a stream
    folder: Path

    def __init__(
        self, data: Any, sources: Mapping[str, Source], log: Callable[[str], None]
    ) -> None:
        self.data = data
        self.sources = sources
        self.log = log
        self.exchanged: set[str] = set()

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
    def encode_split(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Encode a split. The training split, of `total` records, continues after the first `start`
        documents, and the number of its dropped records is added to `left_out`, by reason.
        """

    def draw_sample(self, items: Iterable[T], most: int, unit: str) -> tuple[list[T], int]:
        """Draw at most `most` items, on which the vocabulary is learned, and log their number.
        `unit` is the name of an item, such as "record".

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

    def stored_texts(self, split: str) -> Mapping[str, str]:
        """The text of dev or test to store with the ids, by field."""
        return {}

    @abstractmethod
    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """The settings of a corpus that determine how its text is prepared, from `data` of its
        manifest.
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
        """Hash of all that determines the ids of train and dev, without the test split: hashes of
        their text by split, hashes of the vocabularies, and settings.
        """

    def is_current(self, corpus: Corpus) -> bool:
        """Whether this version of ablate would prepare the text of a corpus in the same way."""
        return True

    def has_same_vocabulary(self, corpus: Corpus) -> bool:
        """Whether this version of ablate would learn the vocabulary of a corpus."""
        return True

    def encoding_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warnings about the encoded text of a split, from its share of unknown tokens by field."""
        return []

    def overlap(self, split: str) -> Overlap | None:
        """Number of records of dev or test that occur in training; None if `encoding_warnings`
        says it.
        """
        return count_overlap(self.folder, self.data.fields, split)

    @property
    def models(self) -> list[Path]:
        """The file of each field's vocabulary."""
        files = []
        for field in self.data.fields:
            is_separate = field in self.data.separate_vocabularies
            name = f"{field}.{TOKENIZER}" if is_separate else TOKENIZER
            files.append(self.folder / name)
        return files


def digest(content: Any, *, sort_keys: bool = False) -> str:
    """Hash of a value's JSON text, as an id of a corpus: 12 hexadecimal digits."""
    text = json.dumps(content, sort_keys=sort_keys)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
