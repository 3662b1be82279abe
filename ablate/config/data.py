"""Fields of the corpus. They belong to the study, never to a row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import Field, model_validator

from ablate.config.section import Section


@dataclass(frozen=True)
class Layout:
    """The names that a corpus' splits go by in the literature, and its directions."""

    train: str
    dev: str
    test: str
    directions: tuple[str, ...]


LAYOUTS = {
    "toy": Layout("train", "dev", "test", ("en-toy",)),
    "multi30k": Layout("train", "val", "test_2016_flickr", ("en-de", "de-en")),
    "wmt14": Layout("train", "newstest2013", "newstest2014", ("en-de", "de-en", "en-fr", "fr-en")),
}
CORPORA = (*LAYOUTS, "files")
_LANGUAGE = r"[A-Za-z0-9]{1,8}(?:_[A-Za-z0-9]{1,8})*"
_DIRECTION = re.compile(rf"{_LANGUAGE}-{_LANGUAGE}")


class DataConfig(Section):
    """Which sentences, and how they become tokens."""

    corpus: str = Field(description="toy, multi30k, wmt14, or files")
    direction: str = Field(description="source-target, as in en-de")
    vocab_size: int = Field(37_000, ge=8, le=1_000_000, description="pieces of the joint SentencePiece vocabulary")
    train: str = Field(min_length=1, description="training split: PREFIX (PREFIX.en, PREFIX.de, or .gz) or a .tsv")
    dev: str = Field(min_length=1, description="development split: perplexity is measured here")
    test: str = Field(min_length=1, description="test split: BLEU is measured here")
    max_length: int = Field(
        256, ge=1, le=60_000, description="tokens a side; longer training pairs are left out and counted"
    )
    folder: str | None = Field(None, description="where the splits lie; unset: beside the study file")

    @model_validator(mode="after")
    def _known(self) -> DataConfig:
        if not _DIRECTION.fullmatch(self.direction):
            raise ValueError(f'direction "{self.direction}" is not of the form source-target, as in en-de')
        return self

    @property
    def languages(self) -> tuple[str, str]:
        """(source, target)."""
        source, target = self.direction.split("-")
        return source, target
