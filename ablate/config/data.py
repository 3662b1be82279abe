"""Fields of the corpus. They belong to the study, never to a row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from ablate.config.fields import Section


@dataclass(frozen=True)
class Layout:
    """The names that a corpus' splits go by in the literature, and its directions."""

    train: str
    dev: str
    test: str
    directions: tuple[str, ...]
    vocab_size: int = 37_000


LAYOUTS = {
    "toy": Layout("train", "dev", "test", ("en-toy",), 350),
    "multi30k": Layout("train", "val", "test_2016_flickr", ("en-de", "de-en")),
    "iwslt2017": Layout("train", "dev2010", "tst2010-2015", ("en-de", "de-en", "en-fr", "fr-en")),
    "wmt14": Layout("train", "newstest2013", "newstest2014", ("en-de", "de-en", "en-fr", "fr-en")),
}
CORPORA = (*LAYOUTS, "files")
HUB = "hf:"
_HUB = re.compile(r"hf:[\w.-]+/[\w.-]+(?:@[\w./-]+)?")
HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_LANGUAGE = r"[A-Za-z0-9]{1,8}(?:_[A-Za-z0-9]{1,8})*"
_DIRECTION = re.compile(rf"{_LANGUAGE}-{_LANGUAGE}")


class DataConfig(Section):
    """Which sentences, and how they become tokens."""

    corpus: str = Field(description="toy, multi30k, iwslt2017, wmt14, files, or hf:OWNER/NAME@REVISION")
    direction: str = Field(description="languages as source-target, for example en-de")
    vocab_size: int = Field(37_000, ge=8, le=1_000_000, description="size of the SentencePiece vocabulary")
    train: str = Field(
        min_length=1,
        description="training split: PREFIX (PREFIX.en and PREFIX.de, or .gz), a file with columns, or a folder",
    )
    dev: str = Field(min_length=1, description="development split, on which perplexity is measured")
    test: str = Field(min_length=1, description="test split, on which BLEU is measured; also sacrebleu:NAME")
    max_length: int = Field(
        256, ge=1, le=60_000, description="maximum number of tokens per side; longer training pairs are dropped"
    )
    max_ratio: float | None = Field(
        None,
        ge=1,
        le=1000,
        description="maximum ratio of the longer to the shorter side in tokens; other training pairs are dropped",
    )
    drop_identical: bool = Field(False, description="drop training pairs with identical sides")
    drop_duplicates: bool = Field(False, description="drop repeated training pairs")
    tokenizer: Literal["bpe", "unigram"] = Field("bpe", description="kind of SentencePiece vocabulary")
    vocabulary: Literal["joint", "separate"] = Field(
        "joint", description="one vocabulary for both languages, or one for each"
    )
    byte_fallback: bool = Field(False, description="encode unknown characters as bytes")
    tokenizer_pairs: int = Field(
        250_000,
        ge=1,
        le=100_000_000,
        description="maximum number of training pairs to learn the vocabulary on; of more, a sample is used",
    )
    source_column: int | str | None = Field(None, description="column of the source, by name or by number from 1")
    target_column: int | str | None = Field(None, description="column of the target, by name or by number from 1")
    folder: str | None = Field(
        None,
        description="folder of the splits; unset: named corpora are downloaded, files are read from the study's folder",
    )

    @model_validator(mode="after")
    def _known(self) -> DataConfig:
        if not _DIRECTION.fullmatch(self.direction):
            raise ValueError(
                f'direction "{self.direction}" is not of the form languages as source-target, for example en-de'
            )
        if self.corpus.startswith(HUB) and not _HUB.fullmatch(self.corpus):
            raise ValueError(f'corpus "{self.corpus}" is not of the form hf:OWNER/NAME or hf:OWNER/NAME@REVISION')
        if self.corpus.startswith(HUB) and self.folder is not None:
            raise ValueError(f'"folder" has no effect on {self.corpus}: it is downloaded')
        if (self.source_column is None) != (self.target_column is None):
            raise ValueError("source_column and target_column go together: name both, or neither")
        if type(self.source_column) is not type(self.target_column):
            raise ValueError("source_column and target_column are both names, or both numbers from 1")
        if self.source_column is not None and self.source_column == self.target_column:
            raise ValueError("source_column and target_column are the same column")
        if any(type(column) is int and column < 1 for column in (self.source_column, self.target_column)):
            raise ValueError("columns are counted from 1")
        return self

    @property
    def languages(self) -> tuple[str, str]:
        """(source, target)."""
        source, target = self.direction.split("-")
        return source, target


class RowDataConfig(Section):
    """What of the data a row may change: the rest belongs to the study."""

    vocab_size: int | None = Field(None, ge=8, le=1_000_000, description="unset: data.vocab_size")
    train_fraction: float = Field(
        1.0, gt=0, le=1, description="share of the training pairs; a smaller share is a subset of a larger one"
    )
