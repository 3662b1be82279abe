"""Fields of a treebank for constituency parsing; the treebanks known by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.config.data import FILES, HUB, DataConfig
from ablate.errors import did_you_mean, listed

SENTENCE, TREE = "sentence", "tree"
WORD = "XX"  # the symbol of every word, in the place of its part-of-speech tag; with its tag: `XX/NN`
WSJ = "wsj"
SECTIONS = re.compile(r"(\d\d)(?:-(\d\d))?")  # of the WSJ, as splits: `22`, `02-21`


@dataclass(frozen=True)
class NamedTreebank:
    """A treebank known by name.

    train, dev, test: names of the splits.
    vocab_size: the default.
    origin: where it is from, for lists of corpora.
    """

    train: str
    dev: str
    test: str
    vocab_size: int
    origin: str


NAMED_TREEBANKS = {
    "toy": NamedTreebank("train", "dev", "test", vocab_size=150, origin="generated"),
    # The splits and the vocabulary of section 6.3.
    WSJ: NamedTreebank("02-21", "22", "23", vocab_size=16_000, origin="licensed: LDC99T42; data.folder"),
}
TREEBANKS = (*NAMED_TREEBANKS, FILES)


class ParsingData(DataConfig):
    """Which trees, and how sentences and linearised trees become tokens."""

    fields: ClassVar[tuple[str, ...]] = (SENTENCE, TREE)

    corpus: str = Field(description="toy, wsj, or files")
    vocab_size: int = Field(
        16_000, ge=8, le=1_000_000, description="size of the vocabulary: symbols of trees, and pieces of words"
    )
    train: str = Field(min_length=1, description="training split: a file of trees in brackets (or .gz), or a folder")
    test: str = Field(min_length=1, description="test split, on which F1 is measured")
    tags: Literal["replaced", "predicted"] = Field(
        "replaced",
        description="part-of-speech tags: XX for each of them (Vinyals et al., 2015), or symbols such as XX/NN",
    )
    max_length: int = Field(
        500, ge=1, le=60_000, description="maximum number of tokens per text field; longer training trees are dropped"
    )

    @model_validator(mode="after")
    def _sections_and_no_hub(self) -> ParsingData:
        for split in (self.train, self.dev, self.test):
            sections = SECTIONS.fullmatch(split) if self.corpus == WSJ else None
            if sections and sections[2] and sections[2] < sections[1]:
                raise ValueError(f'sections "{split}" are not in ascending order')
        if self.corpus.startswith(HUB):
            raise ValueError(f'corpus "{self.corpus}": treebanks are read from files; set corpus to files')
        return self

    @property
    def generated(self) -> bool:
        """Whether this is the toy treebank."""
        return self.corpus == "toy"

    @property
    def symbol_field(self) -> str:
        """Symbols of trees are entries of the vocabulary."""
        return TREE

    def symbols(self, text: str) -> str:
        """A linearised tree with the symbols that the model predicts."""
        return with_word_symbols(text, self.tags == "predicted")

    @property
    def is_tokenized(self) -> bool:
        """Sentences of a treebank have spaces between all tokens."""
        return True


def resolve_parsing_data(settings: Mapping[str, Any]) -> ParsingData:
    """Resolve the data section of parsing: a named treebank sets its splits and its vocabulary size.

    Raises:
        pydantic.ValidationError: a value is of the wrong type, out of range or missing.
        ValueError: the corpus is unknown, or settings cannot go together.
    """
    corpus = settings.get("corpus")
    if corpus is None:
        raise ValueError(f"data needs a corpus: {listed(TREEBANKS)}")
    if corpus not in TREEBANKS and not str(corpus).startswith(HUB):
        known = listed(TREEBANKS)
        raise ValueError(f'corpus "{corpus}" is not known: {known}{did_you_mean(str(corpus), TREEBANKS)}')
    named = NAMED_TREEBANKS.get(str(corpus))
    defaults: dict[str, Any] = {}
    if named is not None:
        defaults = {"train": named.train, "dev": named.dev, "test": named.test, "vocab_size": named.vocab_size}
    data = ParsingData(**{**defaults, **settings})
    if data.generated:
        for name in ("folder", "train", "dev", "test"):
            if name in settings:
                raise ValueError(f'"{name}" has no effect on the toy corpus: it is generated')
    return data


def with_word_symbols(text: str, with_tags: bool = False) -> str:
    """A linearised tree with XX for each tag, or XX/TAG."""
    parts = text.split()
    if with_tags:
        return " ".join(part if part[0] in "()" else f"{WORD}/{part}" for part in parts)
    return " ".join(part if part[0] in "()" else WORD for part in parts)
