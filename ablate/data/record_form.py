"""Preparation of records: filters, vocabularies, and encoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ablate.config import DataConfig
from ablate.config.data import BLEU_TOKENIZER
from ablate.config.identity import INTRODUCED_DATA, NOT_IDENTITY_DATA, named_settings
from ablate.data import filters
from ablate.data.builder import Chunk, Preparation, digest
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.encoding import Encoded, encode
from ablate.data.sources import Document, Source
from ablate.data.tokenizer import RESERVED, Tokenizer
from ablate.data.vocabulary import has_reserved, train_tokenizer
from ablate.errors import DataError
from ablate.formatting import plural
from ablate.store.corpora import fields_entry
from ablate.store.files import write_bytes
from ablate.store.records import Overlap, TrainingText

CHUNK = 10_000  # records
UNKNOWN = 0.01  # share of a side's tokens above which a warning is due

# The hash of the text covers these settings; the first version's ids contain those of _FIRST.
_BY_CONTENT = (
    "corpus", "direction", "train", "dev", "test", "source_column", "target_column", "folder",
)  # fmt: skip
_FIRST = ("vocab_size", "max_length")


class Records(Preparation):
    """Records of texts: each field of a record is a sequence."""

    data: DataConfig
    end_marks: ClassVar[int] = 1
    compared: ClassVar[tuple[str, ...]] = ("dev", "test")

    def __init__(
        self, data: DataConfig, sources: Mapping[str, Source], log: Callable[[str], None]
    ) -> None:
        super().__init__(data, sources, log)
        self._held_out: dict[str, list[Document]] = {}

    def check(self) -> None:
        """Read dev and test, which must be complete."""
        for split in ("dev", "test"):
            self._held_out[split] = filters.complete_records(self.sources[split], self.data, split)

    def suspicious(self, split: str) -> list[str]:
        """Warnings about text of dev or test that is not plain, or of another form than dev's."""
        return [*self._markup(split, self._held_out[split]), *self._other_form(split)]

    def _other_form(self, split: str, sample: list[Document] | None = None) -> list[str]:
        """Warnings about a form of Unicode that is not that of dev, which every corpus reads."""
        records = (sample or self._held_out[split], self._held_out.get("dev", []))
        return filters.form_warnings((split, "dev"), records, self.data.labels)

    def _markup(self, split: str, records: list[Document]) -> list[str]:
        """Warnings about text that is not plain, unless it is expected."""
        if self.data.is_tokenized:
            return []
        return filters.markup_warnings(split, records, self.data.labels)

    def learn(self) -> TrainingText:
        """Train one vocabulary on each group of fields that share it."""
        data = self.data
        left_out = Counter[str]()
        self.log("reading the training split")
        read = filters.training_records(self.sources["train"], data, left_out)
        records, count = self.sampled(read, data.tokenizer_pairs, "record")
        if not count:
            why = "contains no records"
            if left_out:
                reasons = ", ".join(f"{reason}: {n:,}" for reason, n in left_out.items())
                why = f"every record is left out ({reasons})"
            raise DataError(f"{self.sources['train'].location}: {why}")
        for path in dict.fromkeys(self.models):
            fields = [field for field, model in enumerate(self.models) if model == path]
            texts = self._learned_texts(records, fields)
            symbols = self._symbols(records, fields)
            tokenizer = train_tokenizer(
                texts,
                data.vocab_size,
                data.tokenizer,
                data.byte_fallback,
                symbols=symbols,
                coverage=data.character_coverage,
                escaped=self.has_reserved,
            )
            write_bytes(path, tokenizer.model)
        noticed = [*self._markup("train", records), *self._other_form("train", records)]
        return TrainingText(pairs=count, left_out=dict(left_out), repaired={}, noticed=noticed)

    def _learned_texts(self, records: list[Document], fields: Sequence[int]) -> Iterator[str]:
        """The texts of these fields, but for symbols."""
        for record in records:
            for field in fields:
                if self.data.fields[field] != self.data.symbol_field:
                    yield record.texts[field]

    def _symbols(self, records: list[Document], fields: Sequence[int]) -> list[str]:
        """The symbols that occur in the symbol field, if that is one of these fields; sorted."""
        symbols: set[str] = set()
        for field in fields:
            if self.data.fields[field] == self.data.symbol_field:
                for record in records:
                    symbols.update(self.data.symbols(self.data.encoded(record.texts)[field]))
        return sorted(symbols)

    def encoded(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Dev or test at once; the training records that are short enough in chunks."""
        if split != "train":
            yield self._encoded_at_once(split)
            return
        # Read from the beginning, since neither gzip nor the filters allow a jump, but encoded from
        # the last commit on.
        records = filters.training_records(self.sources["train"], self.data, Counter())
        chunks = self._chunks(islice(records, start, None))
        self.log(f"encoding {plural(total, 'record')}")
        tokenizers = self._tokenizers()
        read = start
        kept_records = start - sum(left_out.values())
        for number, texts in enumerate(chunks, 1):
            fields = list(map(encode, tokenizers, texts))
            kept = filters.within_limits(_lengths(fields), self.data, left_out)
            kept_records += int(kept.sum())
            read += len(kept)
            yield Chunk(len(kept), [field.select(kept) for field in fields])
            if number % self.commit_every == 0:
                self.log(f"encoding: {read:,} of {total:,} records done")
        if not kept_records:
            raise DataError(f"{self.sources['train'].location}: every record is {self._limits()}")

    def _encoded_at_once(self, split: str) -> Chunk:
        records = self._held_out[split]
        texts = next(self._chunks(records, len(records)))
        tokenizers = self._tokenizers()
        fields = list(map(encode, tokenizers, texts))
        filters.refuse_long(records, _lengths(fields), self.data)
        for field, tokenizer in enumerate(tokenizers):
            filters.refuse_lost(records, field, texts[field], fields[field], tokenizer)
        return Chunk(len(records), fields)

    def unknown_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warnings about unknown words of dev or test, and about any share above UNKNOWN."""
        warnings = []
        of_words = self.data.tokenizer == "word"
        for label, share in zip(self.data.labels, shares.values(), strict=True):
            what = f"{split} ({label}): {share:.1%} of the"
            if of_words and share > (UNKNOWN if split == "train" else 0):
                warnings.append(f"{what} words are not in the vocabulary")
            elif share > UNKNOWN:
                why = "tokens are unknown: their characters are not in the text of the vocabulary"
                warnings.append(f"{what} {why}; data.byte_fallback encodes them as bytes")
        return warnings

    def _tokenizers(self) -> list[Tokenizer]:
        """The vocabulary of each field."""
        return [Tokenizer(path.read_bytes()) for path in self.models]

    def _chunks(
        self, records: Iterable[Document], size: int | None = None
    ) -> Iterator[list[list[str]]]:
        """The texts of each field of so many records, as they are encoded."""
        remaining = iter(records)
        while chunk := list(islice(remaining, size or CHUNK)):
            texts: Iterable[Sequence[str]] = (record.texts for record in chunk)
            if self.data.symbol_field is not None:
                texts = map(self.data.encoded, texts)
            yield list(map(list, zip(*texts, strict=True)))

    def _limits(self) -> str:
        """The limits on length, for an error message."""
        name = "max_length" if self.data.max_train_length is None else "max_train_length"
        limits = f"longer than data.{name}={self.data.longest_trained} tokens"
        max_ratio = self.data.pair_rules.max_ratio
        if max_ratio is not None:
            limits += f", or more uneven than data.max_ratio={max_ratio:g}"
        return limits

    def texts(self, split: str) -> Mapping[str, str]:
        """A line for each record."""
        texts = {}
        for index, field in enumerate(self.data.fields):
            texts[field] = "".join(f"{record.texts[index]}\n" for record in self._held_out[split])
        return texts

    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """The settings of the first version, and those added later that a study has set."""
        of_text = {name: value for name, value in data.items() if name != BLEU_TOKENIZER}
        return [data["vocab_size"], data.get("max_length"), later_settings(of_text, fields)]

    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """The ids of the training split follow from its text and the vocabulary."""
        return digest([FORMAT, content, vocabulary, self.corpus_settings], sort_keys=True)

    @cached_property
    def has_reserved(self) -> bool:
        """Whether the training split has text that only an escaped vocabulary can learn."""
        return self.sources["train"].holds(RESERVED)

    def is_current(self, corpus: Corpus) -> bool:
        """Whether a corpus has an escaped vocabulary, which earlier versions lacked, or no sign in
        dev and test that it needs one.
        """
        files = ((split, field) for split in ("dev", "test") for field in self.data.fields)
        needs_one = any(has_reserved(text) for file in files for text in corpus.text(*file))
        return not needs_one or corpus.tokenizer.is_escaped

    def learns_as(self, corpus: Corpus) -> bool:
        """Whether both vocabularies are escaped, or none."""
        return corpus.tokenizer.is_escaped == self.has_reserved

    def content_id(self, hashes: Sequence[str]) -> str:
        """The id of the corpus made from text with these hashes: 12 hexadecimal digits."""
        settings: list[Any] = [FORMAT, self.data.vocab_size, self.data.max_length, list(hashes)]
        # Left out if empty: without later settings, a corpus has the id of the first version.
        later = later_settings(self.data.model_dump(), self.data.fields)
        if self.has_reserved:  # else the corpus has the id and the bytes of earlier versions
            later["escaped"] = True
        if later:
            settings.append(later)
        return digest(settings)

    def overlap(self) -> Overlap:
        """Test records that occur in the training split."""
        return filters.count_overlap(self.folder, self.data.fields)


def _lengths(fields: Sequence[Encoded]) -> NDArray[np.int64]:
    """Tokens, (fields, records)."""
    return np.stack([field.lengths for field in fields])


def later_settings(data: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Settings of preparation that the first version lacked, without those at their default.

    Args:
        data: values of the data settings. A setting that only other tasks have is always included.
        fields: the text fields.
    """
    excluded = {*_FIRST, *_BY_CONTENT, *NOT_IDENTITY_DATA}
    # In one order, which the hash depends on.
    ordered = {name: data[name] for name in (*INTRODUCED_DATA, *data) if name in data}
    later = {name: value for name, value in ordered.items() if name not in excluded}
    return {**named_settings(later), **fields_entry(fields)}
