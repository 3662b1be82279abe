"""Fields of a treebank for constituency parsing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.config.catalogue import TREEBANKS
from ablate.config.data import HUB, DataConfig
from ablate.errors import Fault, Invalid
from ablate.fields import CHOSEN_ON_DEV, TaskSettings, TextLength, VocabularySize

SENTENCE, TREE = "sentence", "tree"
# The symbol that replaces the part-of-speech tag of every word; with the tag: `XX/NN`
WORD_SYMBOL = "XX"
Leaves = Literal["XX", "tags", "words"]
WSJ = "wsj"
WSJ_SECTIONS = re.compile(r"(\d\d)(?:-(\d\d))?")  # of the WSJ, as splits: `22`, `02-21`


class ParsingData(DataConfig):
    """Data settings of a parsing study: treebank, symbols of words and vocabulary."""

    fields: ClassVar = (SENTENCE, TREE)
    catalogue: ClassVar = TREEBANKS
    is_on_hub: ClassVar = False
    symbol_field: ClassVar = TREE
    is_tokenized: ClassVar = True

    corpus: str
    """toy, wsj, or files"""
    vocab_size: VocabularySize = 16_000
    """size of the vocabulary: symbols of trees, and pieces of words"""
    train: str = Field(min_length=1)
    """training split: a file of trees in brackets (or .gz), or a folder"""
    test: str = Field(min_length=1)
    """test split, on which F1 is measured"""
    leaves: Leaves = "XX"
    """symbols of words in trees: XX (Vinyals et al., 2015), XX with the tag, such as XX/NN, or the
    words (Choe and Charniak, 2016)"""
    max_length: TextLength = 500
    """maximum number of tokens per text field; longer training trees are dropped"""

    @model_validator(mode="after")
    def _sections_and_no_hub(self) -> ParsingData:
        for name in ("train", "dev", "test"):
            split = getattr(self, name)
            sections = WSJ_SECTIONS.fullmatch(split) if self.corpus == WSJ else None
            if sections and sections[2] and sections[2] < sections[1]:
                raise Invalid(Fault(f'sections "{split}" are not in ascending order', (name,)))
        if self.corpus.startswith(HUB):
            raise Invalid(
                Fault(
                    "treebanks are read from files",
                    ("corpus",),
                    subject=f'corpus "{self.corpus}"',
                    remedy="set corpus to files",
                )
            )
        return self

    def symbols(self, text: str) -> Iterator[str]:
        """The brackets and the symbols of words."""
        return (part for part in text.split() if is_symbol(part))

    def encoded(self, texts: Sequence[str]) -> Sequence[str]:
        """The sentence, and its linearized tree with the symbols that the model predicts."""
        sentence, tree = texts
        return sentence, replace_leaves(tree, sentence, self.leaves)


class TreeSearchSettings(TaskSettings):
    """Beam search of trees."""

    constrained: Annotated[bool, CHOSEN_ON_DEV] = False
    """whether the search is only among well-formed trees with as many words as the sentence"""


def is_symbol(part: str) -> bool:
    """Whether a part of a linearized tree is a bracket or the symbol of a word."""
    return part[0] in "()" or is_word_symbol(part)


def is_word_symbol(part: str) -> bool:
    """Whether a part of a linearized tree is the symbol of a word."""
    return part == WORD_SYMBOL or part.startswith(f"{WORD_SYMBOL}/")


def replace_leaves(tree: str, sentence: str, leaves: Leaves = "XX") -> str:
    """Replace the tags in a linearized tree by the symbols of words that `leaves` selects."""
    words = iter(sentence.split())
    parts = []
    for part in tree.split():
        if part[0] not in "()":
            word = next(words)
            part = {"XX": WORD_SYMBOL, "tags": f"{WORD_SYMBOL}/{part}", "words": word}[leaves]
        parts.append(part)
    return " ".join(parts)
