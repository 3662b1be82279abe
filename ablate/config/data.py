"""Data settings that all tasks share. They belong to the study, never to a row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ablate.config.catalogue import HubData, NamedCorpus
from ablate.errors import Fault, Invalid, listed, unknown_name
from ablate.fields import Amount, Section, TextLength, VocabularySize
from ablate.formatting import without_secrets

FILES = "files"  # name of a corpus in files of the user
BLEU_TOKENIZER = "bleu_tokenizer"  # setting of translation on which only scores depend
HUB = "hf:"
HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_HUB_NAME = re.compile(r"hf:[\w.-]+/[\w.-]+(?:@[\w./-]+)?")


@dataclass(frozen=True)
class TextFields:
    """The text fields of a corpus, and their columns in files.

    names: name of each field, such as ("source", "target").
    labels: label of each field, such as ("en", "de"): ending of its text file and default name of
        its column.
    columns: column of each field, by name or by number from 1, if the study sets it; None: the
        labels are the names of the columns.
    columns_set_by: the settings that name the columns; None: `<name>_column` for each field.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    columns: tuple[str | int, ...] | None = None
    columns_set_by: tuple[str, ...] | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that name the columns, for messages."""
        return tuple(
            f"data.{name}"
            for name in self.columns_set_by or [f"{name}_column" for name in self.names]
        )


class PairRules(NamedTuple):
    """Filters of training records that compare the first two text fields.

    max_ratio: largest ratio of the longer to the shorter field in tokens; records with a larger
        ratio are dropped. None for no limit.
    drop_identical: whether to drop records whose first two fields are the same text.
    """

    max_ratio: float | None = None
    drop_identical: bool = False


class CorpusConfig(Section):
    """Data settings that every task has: the text and its vocabulary.

    Attributes:
        fields: names of the text fields.
        introduced: values at which the task's data settings are left out of ids; see `identity.py`.
        catalogue: corpora known by name; if it is empty, any name means files.
        is_on_hub: whether data sets of the Hub can be read.
        is_stream: whether the text is a stream of documents (`data/prepare_stream.py`) instead of
            records of texts.
        located_by: settings about the location of the text, which a generated corpus does not have.
    """

    fields: ClassVar[tuple[str, ...]] = ("text",)
    introduced: ClassVar[Mapping[str, Any]] = {}
    catalogue: ClassVar[Mapping[str, NamedCorpus]] = {}
    is_on_hub: ClassVar[bool] = True
    is_stream: ClassVar[bool] = False
    located_by: ClassVar[tuple[str, ...]] = ("folder", "train", "dev", "test")

    corpus: str
    """files, or hf:OWNER/NAME@REVISION"""
    vocab_size: VocabularySize = 37_000
    """size of the SentencePiece vocabulary"""
    train: str = Field(min_length=1)
    """training split: PREFIX, a file with columns, or a folder"""
    dev: str = Field(min_length=1)
    """development split, on which perplexity is measured"""
    test: str = Field(min_length=1)
    """test split, on which the final scores are measured"""
    folder: str | None = None
    """folder of the splits; unset: named corpora are downloaded, files are read from the study's
    folder"""

    @property
    def evaluated(self) -> str:
        """The evaluated text, which is part of the id of a decoding: the test split."""
        return self.test

    @property
    def tests_on_dev(self) -> bool:
        """Whether the test split is the dev split."""
        return self.test == self.dev and not self.generated

    @property
    def tests_on_training_text(self) -> bool:
        """Whether the test split has the name of the training split."""
        return self.test == self.train and not self.generated

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings as a prepared corpus records them."""
        return self.model_dump(mode="json", exclude={"folder"})

    @model_validator(mode="after")
    def _no_secrets(self) -> CorpusConfig:
        for name in ("train", "dev", "test"):
            address = getattr(self, name)
            if without_secrets(address) != address:
                raise Invalid(
                    Fault(
                        "the address has a password or a key, which would be copied to all records "
                        "and published files",
                        (name,),
                        subject=name,
                        remedy="give it to fsspec in its configuration or the environment",
                    )
                )
        return self

    @model_validator(mode="after")
    def _hub_name(self) -> CorpusConfig:
        if self.corpus.startswith(HUB) and not _HUB_NAME.fullmatch(self.corpus):
            form = "hf:OWNER/NAME or hf:OWNER/NAME@REVISION"
            raise Invalid(Fault(f'corpus "{self.corpus}" is not of the form {form}', ("corpus",)))
        if self.corpus.startswith(HUB) and self.folder is not None:
            why = f'"folder" has no effect on {self.corpus}: it is downloaded'
            raise Invalid(Fault(why, ("folder", "corpus")))
        return self

    @classmethod
    def resolve(cls, settings: Mapping[str, Any]) -> Self:
        """The data settings of a study, with the defaults that its corpus has.

        Raises:
            pydantic.ValidationError: a value is of the wrong type, out of range or missing.
            Invalid: the corpus is unknown, or settings cannot go together.
        """
        data = cls(**{**cls.defaults_for(settings), **settings})
        if data.generated:
            for name in cls.located_by:
                if name in settings:
                    why = f'"{name}" has no effect on the toy corpus: it is generated'
                    raise Invalid(Fault(why, (name, "corpus")))
        return data

    @classmethod
    def defaults_for(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that follow from the settings of a study, such as the splits of its corpus.

        Raises:
            Invalid: the corpus is missing or unknown.
        """
        corpus = settings.get("corpus")
        if isinstance(corpus, str) and corpus.startswith(HUB):
            return dict(HUB_SPLITS) if cls.is_on_hub else {}
        if cls.catalogue:
            cls.check_corpus(corpus)
        if corpus in cls.catalogue:
            return cls.catalogue[str(corpus)].settings
        return {}

    @classmethod
    def check_corpus(cls, corpus: object) -> None:
        """Check the name of a corpus.

        Raises:
            Invalid: the name is missing or unknown.
        """
        names = cls.corpora()
        known = (*names, *["hf:OWNER/NAME"] * cls.is_on_hub)
        if corpus is None:
            raise Invalid(Fault(f"data needs a corpus: {listed(known)}", ("corpus",)))
        if corpus not in names:
            unknown = unknown_name("corpus", str(corpus), known)
            raise Invalid(replace(unknown, fields=("corpus",)))

    @classmethod
    def corpora(cls) -> tuple[str, ...]:
        """The allowed values of `corpus`, without data sets of the Hub."""
        return (*cls.catalogue, FILES)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label of each field: the ending of its text file and the default name of its column."""
        return self.fields

    @property
    def text_fields(self) -> TextFields:
        """The text fields and their columns in files."""
        return TextFields(self.fields, self.labels)

    @property
    def test_changes_training_text(self) -> bool:
        """Whether the training text, and so a run's id, depends on the setting `test`."""
        return False

    @property
    def separate_vocabularies(self) -> tuple[str, ...]:
        """Text fields with a separate vocabulary; all other fields share a vocabulary."""
        return ()

    @property
    def hub(self) -> HubData | None:
        """The data set on the Hub with the splits; None for files and generated corpora."""
        named = self.catalogue.get(self.corpus)
        if named is not None:  # its files may be in a folder instead
            return named.hub if self.folder is None else None
        if not self.corpus.startswith(HUB):
            return None
        repository, _, revision = self.corpus.removeprefix(HUB).partition("@")
        return HubData(repository, revision or "main")

    @property
    def generated(self) -> bool:
        """Whether the corpus is generated by this program."""
        named = self.catalogue.get(self.corpus)
        return named is not None and named.is_generated

    @property
    def draws_items(self) -> bool:
        """Whether every training item is newly generated, so that there are no epochs."""
        return False

    @property
    def repeats_items(self) -> bool:
        """Whether training reads the same generated items again and again."""
        return False


class DataConfig(CorpusConfig):
    """Settings of records of texts, and of their tokens. A task's data settings extend this
    section.

    Attributes:
        symbol_field: text field with symbols, which are entries of the vocabulary; pieces of the
            vocabulary are learned on the other fields.
        is_tokenized: whether texts may have spaces between all tokens. Other tasks warn about such
            texts, because scores need plain text.
    """

    symbol_field: ClassVar[str | None] = None
    is_tokenized: ClassVar[bool] = False

    max_length: TextLength = 256
    """maximum number of tokens per text field; longer training records are dropped"""
    max_train_length: TextLength | None = None
    """maximum number of tokens per text field of training records, if lower than max_length, which
    is then only for dev and test; unset: max_length"""
    drop_duplicates: bool = False
    """drop repeated training records"""
    tokenizer: Literal["bpe", "unigram", "word"] = "bpe"
    """kind of SentencePiece vocabulary; word: the most frequent words between spaces, and all other
    words are unknown"""
    byte_fallback: bool = False
    """encode unknown characters as bytes"""
    character_coverage: float = Field(1.0, gt=0, le=1)
    """share of the characters in the text that pieces are made of, the most frequent characters
    first; all other characters become bytes. Below 1 only with byte_fallback"""
    tokenizer_pairs: Amount = 250_000
    """maximum number of training records to learn the vocabulary on; of more records, a sample"""

    @model_validator(mode="after")
    def _bytes_of_characters(self) -> DataConfig:
        if self.byte_fallback and self.tokenizer == "word":
            why = "byte_fallback encodes characters, and tokenizer=word has only whole words"
            raise Invalid(Fault(why, ("byte_fallback", "tokenizer")))
        if self.character_coverage < 1 and not self.byte_fallback:
            raise Invalid(
                Fault(
                    f"character_coverage={self.character_coverage:g} leaves out characters",
                    ("character_coverage", "byte_fallback"),
                    remedy="set byte_fallback, which encodes them as bytes",
                )
            )
        return self

    @model_validator(mode="after")
    def _limits(self) -> DataConfig:
        limit = self.max_train_length
        if limit is not None and limit >= self.max_length:
            raise Invalid(
                Fault(
                    f"max_train_length={limit} has no effect: it must be below "
                    f"max_length={self.max_length}",
                    ("max_train_length", "max_length"),
                )
            )
        return self

    @property
    def longest_trained(self) -> int:
        """Largest number of tokens per text field that a training record may have."""
        return self.max_train_length or self.max_length

    @property
    def pair_rules(self) -> PairRules:
        """The filters that compare the first two fields."""
        return PairRules()

    def symbols(self, text: str) -> Iterable[str]:
        """The symbols in an encoded text of the symbol field."""
        return ()

    def encoded(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts of a record as they are encoded. Called only if there is a symbol field."""
        return texts
