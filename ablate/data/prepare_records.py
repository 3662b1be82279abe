"""Preparation of records: filters, vocabularies, and encoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ablate.config import DataConfig
from ablate.config.data import BLEU_TOKENIZER
from ablate.config.identity import INTRODUCED_DATA, NOT_IDENTITY_DATA, named_settings
from ablate.data import filters
from ablate.data.corpus import FORMAT, Corpus
from ablate.data.preparation import Chunk, Preparation, digest
from ablate.data.sources import Document, Source
from ablate.data.tokenizer import FIRST_TOKEN, Encoded, Tokenizer, encode
from ablate.data.vocabulary import has_reserved, train_tokenizer
from ablate.errors import DataError, data_field
from ablate.formatting import percent, plural
from ablate.store.corpora import fields_entry
from ablate.store.files import write_bytes
from ablate.store.records import TrainingText

CHUNK = 10_000  # records
UNKNOWN = 0.01  # a larger share of unknown tokens in a field causes a warning

# Settings that ids leave out, because they only say which text is used: its hash is in the ids
_TEXT_SETTINGS = (
    "corpus", "direction", "train", "dev", "test", "source_column", "target_column", "folder",
)  # fmt: skip
_FIRST_SETTINGS = ("vocab_size", "max_length")  # settings in the ids of the first version


class RecordPreparation(Preparation):
    """Prepares records of texts. Each field of a record is a sequence."""

    data: DataConfig
    end_marks: ClassVar[int] = 1

    def __init__(
        self, data: DataConfig, sources: Mapping[str, Source], log: Callable[[str], None]
    ) -> None:
        super().__init__(data, sources, log)
        self._held_out: dict[str, list[Document]] = {}

    def check(self) -> None:
        """Read dev and test, which must be complete."""
        for split in ("dev", "test"):
            source = self.sources[split]
            with data_field(split):
                self._held_out[split] = filters.complete_records(source, self.data, split)

    def text_warnings(self, split: str) -> list[str]:
        """Warn of text in dev or test that is not plain, or that has another Unicode form, another
        case or another order of languages than dev.
        """
        return self._text_warnings(split, self._held_out[split])

    def _text_warnings(self, split: str, records: list[Document]) -> list[str]:
        warnings = []
        if not self.data.is_tokenized:
            warnings += filters.markup_warnings(split, records, self.data.labels)
        warnings += filters.copy_warnings(split, records)
        compared = (records, self._held_out.get("dev", []))
        warnings += filters.form_warnings((split, "dev"), compared, self.data.labels)
        warnings += filters.case_warnings((split, "dev"), compared, self.data.labels)
        exchange = filters.exchange_warnings((split, "dev"), compared, self.data.labels)
        if exchange:
            self.exchanged.add(split)
        return warnings + exchange

    def learn(self) -> TrainingText:
        """Train one vocabulary on each group of fields that share it."""
        data = self.data
        left_out = Counter[str]()
        # Before the reading below, because a source counts the repairs of its last reading.
        escaped = self.has_reserved
        self.log("reading the training split")
        training_records = filters.training_records(self.sources["train"], data, left_out)
        records, count = self.draw_sample(training_records, data.tokenizer_pairs, "record")
        if not count:
            problem = "contains no records"
            if left_out:
                reasons = ", ".join(f"{reason}: {n:,}" for reason, n in left_out.items())
                problem = f"every record is left out ({reasons})"
            raise DataError(f"{self.sources['train'].location}: {problem}")
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
                escaped=escaped,
            )
            write_bytes(path, tokenizer.model)
        warnings = self._text_warnings("train", records) + filters.repeat_warnings(records)
        return TrainingText(
            records=count,
            left_out=dict(left_out),
            repaired={},
            warnings=warnings,
            is_exchanged="train" in self.exchanged,
        )

    def _learned_texts(self, records: list[Document], fields: Sequence[int]) -> Iterator[str]:
        """Yield the texts of these fields, except the field of symbols."""
        for record in records:
            for field in fields:
                if self.data.fields[field] != self.data.symbol_field:
                    yield record.texts[field]

    def _symbols(self, records: list[Document], fields: Sequence[int]) -> list[str]:
        """The symbols in the field of symbols, sorted, if it is one of these fields."""
        symbols: set[str] = set()
        for field in fields:
            if self.data.fields[field] == self.data.symbol_field:
                for record in records:
                    symbols.update(self.data.symbols(self.data.encoded(record.texts)[field]))
        return sorted(symbols)

    def encode_split(
        self, split: str, total: int, start: int, left_out: Counter[str]
    ) -> Iterator[Chunk]:
        """Encode dev or test in a single chunk, and the training split in several chunks, without
        records that are too long.
        """
        if split != "train":
            yield self._encode_held_out(split)
            return
        # Read from the beginning, because gzip and the filters cannot seek.
        records = filters.training_records(self.sources["train"], self.data, Counter())
        chunks = self._chunks(islice(records, start, None))
        self.log(f"encoding {plural(total, 'record')}")
        tokenizers = self._tokenizers()
        n_read = start
        n_kept = start - sum(left_out.values())
        for number, texts in enumerate(chunks, 1):
            fields = list(map(encode, tokenizers, texts))
            keep = filters.within_limits(_lengths(fields), self.data, left_out)
            n_kept += int(keep.sum())
            n_read += len(keep)
            yield Chunk(len(keep), [field.select(keep) for field in fields])
            if number % self.commit_every == 0:
                self.log(f"encoding: {n_read:,} of {total:,} records done")
        if not n_kept:
            raise DataError(f"{self.sources['train'].location}: every record is {self._limits()}")

    def _encode_held_out(self, split: str) -> Chunk:
        """Encode dev or test.

        Raises:
            DataError: a record is too long, or encoding changes its text.
        """
        records = self._held_out[split]
        texts = next(self._chunks(records, len(records)))
        tokenizers = self._tokenizers()
        fields = list(map(encode, tokenizers, texts))
        filters.refuse_long(records, _lengths(fields), self.data)
        for field, tokenizer in enumerate(tokenizers):
            filters.refuse_lost(records, field, texts[field], fields[field], tokenizer)
        return Chunk(len(records), fields)

    def encoding_warnings(self, split: str, shares: Mapping[str, float]) -> list[str]:
        """Warn of shares above UNKNOWN, and of any unknown word in dev or test."""
        warnings = []
        has_words = self.data.tokenizer == "word"
        for label, share in zip(self.data.labels, shares.values(), strict=True):
            prefix = f"{split} ({label}): {percent(share, 1)} of the"
            if has_words and share > (UNKNOWN if split == "train" else 0):
                warnings.append(f"{prefix} words are not in the vocabulary")
            elif share > UNKNOWN:
                warnings.append(
                    f"{prefix} tokens are unknown: their characters are not in the text of the "
                    "vocabulary; data.byte_fallback encodes them as bytes"
                )
        if has_words and split == "train":
            warnings += self._unused_entries_warnings()
        return warnings

    def _unused_entries_warnings(self) -> list[str]:
        """Warn of entries that fill a vocabulary of words because the text has too few."""
        V = self.data.vocab_size
        warnings = []
        for tokenizer in dict(zip(self.models, self._tokenizers(), strict=True)).values():
            unused = tokenizer.texts()[FIRST_TOKEN:].count("")
            if unused:
                warnings.append(
                    f"{unused:,} of data.vocab_size={V:,} entries are no words of the training "
                    "split: no text uses their embeddings, which count as parameters nevertheless; "
                    f"decrease data.vocab_size to {V - unused:,}"
                )
        return warnings

    def _tokenizers(self) -> list[Tokenizer]:
        """The tokenizer of each field."""
        return [Tokenizer(path.read_bytes()) for path in self.models]

    def _chunks(
        self, records: Iterable[Document], size: int | None = None
    ) -> Iterator[list[list[str]]]:
        """Yield chunks of `size` records: the texts of each field, in the form that is encoded."""
        remaining = iter(records)
        while chunk := list(islice(remaining, size or CHUNK)):
            texts: Iterable[Sequence[str]] = (record.texts for record in chunk)
            if self.data.symbol_field is not None:
                texts = map(self.data.encoded, texts)
            yield list(map(list, zip(*texts, strict=True)))

    def _limits(self) -> str:
        """The limits of lengths, for an error message."""
        name = "max_length" if self.data.max_train_length is None else "max_train_length"
        limits = f"longer than data.{name}={self.data.longest_trained} tokens"
        max_ratio = self.data.pair_rules.max_ratio
        if max_ratio is not None:
            limits += f", or more uneven than data.max_ratio={max_ratio:g}"
        return limits

    def stored_texts(self, split: str) -> Mapping[str, str]:
        """The texts of each field, a line for each record."""
        texts = {}
        for index, field in enumerate(self.data.fields):
            texts[field] = "".join(f"{record.texts[index]}\n" for record in self._held_out[split])
        return texts

    def settings(self, data: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
        """The settings of the first version, and later settings that are not at their default."""
        settings = {name: value for name, value in data.items() if name != BLEU_TOKENIZER}
        return [data["vocab_size"], data.get("max_length"), later_settings(settings, fields)]

    def training_id(self, content: Mapping[str, Any], vocabulary: Sequence[str]) -> str:
        """Hash of text, vocabularies and settings, which determine the ids of training."""
        return digest([FORMAT, content, vocabulary, self.corpus_settings], sort_keys=True)

    @cached_property
    def has_reserved(self) -> bool:
        """Whether the training split has characters that need an escaped vocabulary."""
        texts = chain.from_iterable(record.texts for record in self.sources["train"].documents())
        return any(map(has_reserved, texts))

    def is_current(self, corpus: Corpus) -> bool:
        """Whether a corpus has an escaped vocabulary, or its dev and test need none.

        Vocabularies of earlier versions of ablate were never escaped.
        """
        if corpus.tokenizer.is_escaped:
            return True
        for split in ("dev", "test"):
            for field in self.data.fields:
                if any(map(has_reserved, corpus.text(split, field))):
                    return False
        return True

    def has_same_vocabulary(self, corpus: Corpus) -> bool:
        """Whether the vocabulary of the corpus is escaped if and only if this one is."""
        return corpus.tokenizer.is_escaped == self.has_reserved

    def content_id(self, hashes: Sequence[str]) -> str:
        """Id of the corpus: 12 hexadecimal digits, from the hashes of its text and its settings."""
        settings: list[Any] = [FORMAT, self.data.vocab_size, self.data.max_length, list(hashes)]
        # With the tokenizer of the scores, which follows from the language of the target.
        later = later_settings(self.data.recorded, self.data.fields)
        if self.has_reserved:
            later["escaped"] = True
        if later:  # otherwise, the first version gave this text the same id
            settings.append(later)
        return digest(settings)


def _lengths(fields: Sequence[Encoded]) -> NDArray[np.int64]:
    """Lengths in tokens, (fields, records)."""
    return np.stack([field.lengths for field in fields])


def later_settings(data: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Settings of preparation that the first version did not have, without values at their default.

    Args:
        data: values of the data settings. Settings that only other tasks have are always included.
        fields: the text fields.
    """
    excluded = {*_FIRST_SETTINGS, *_TEXT_SETTINGS, *NOT_IDENTITY_DATA}
    # In a fixed order, because the hash depends on it.
    ordered = {name: data[name] for name in (*INTRODUCED_DATA, *data) if name in data}
    later = {name: value for name, value in ordered.items() if name not in excluded}
    return {**named_settings(later), **fields_entry(fields)}
