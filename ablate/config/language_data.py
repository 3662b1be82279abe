"""Fields of a text for language models: documents, their cuts into splits, the corpora known by
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.config.data import FILES, HUB, HUB_SPLITS, CorpusConfig, HubData
from ablate.errors import did_you_mean, listed

BYTES: Literal["bytes"] = "bytes"
BYTE_VOCABULARY = 260  # 256 bytes, and the marks <pad>, <unk>, <s> and </s>
SUBWORDS = 8192  # the default size of a SentencePiece vocabulary
SAME_AS_DEV = "dev"  # the test split that is the dev split
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True)
class NamedText:
    """A text known by name, and where it is published.

    train, dev, test: names of the splits, or shares of the training split such as `5%`.
    repository: `owner/name` on the Hub; None: the text is generated.
    revision: a commit, or a branch; given only where it is known for certain.
    files: how the names of a split's files begin, by split name.
    rows: as in `LanguageData`.
    """

    train: str = "train"
    dev: str = "validation"
    test: str = "test"
    repository: str | None = None
    revision: str = "main"
    files: Mapping[str, str] = field(default_factory=dict)
    rows: Literal["documents", "pieces"] = "documents"


def _wikitext(configuration: str) -> NamedText:
    """WikiText with rare words in place of `<unk>` (Merity et al., 2016); a row of its files is a
    line.
    """
    files = {split: f"{configuration}/{split}" for split in ("train", "validation", "test")}
    return NamedText(repository="Salesforce/wikitext", files=files, rows="pieces")


NAMED_TEXTS = {
    "toy": NamedText(dev="dev"),
    "wikitext-2": _wikitext("wikitext-2-raw-v1"),
    "wikitext-103": _wikitext("wikitext-103-raw-v1"),
    "text8": NamedText(
        repository="afmck/text8", files={name: name for name in ("train", "validation", "test")}
    ),
    # The first 90 million bytes are for training, as in the literature.
    "enwik8": NamedText(
        dev="5%",
        test="5%",
        repository="LTCB/enwik8",
        revision="refs/convert/parquet",
        files={"train": "enwik8-raw/train"},
    ),
    "fineweb-edu-sample": NamedText(
        dev="0.1%",
        test="0.1%",
        repository="HuggingFaceFW/fineweb-edu",
        files={"train": "sample/10BT"},
    ),
}
TEXTS = (*NAMED_TEXTS, FILES)


class LanguageData(CorpusConfig):
    """Data section of a language model: text, documents and vocabulary."""

    introduced: ClassVar[Mapping[str, Any]] = {
        "tokenizer": BYTES,
        "column": "text",
        "documents": "joined",
        "rows": "documents",
        "max_bytes": None,
        "tokenizer_lines": 250_000,
    }

    corpus: str = Field(description="toy, a corpus known by name, files, or hf:OWNER/NAME@REVISION")
    vocab_size: int = Field(
        BYTE_VOCABULARY,
        ge=8,
        le=1_000_000,
        description="size of the vocabulary: 260 with tokenizer=bytes, else 8192",
    )
    train: str = Field(
        min_length=1,
        description="training split: a file (.txt, .jsonl, .parquet, or these with .gz), or a "
        "folder",
    )
    dev: str = Field(
        min_length=1,
        description="development split: a file or a folder, or a share of the training text such "
        "as 5%",
    )
    test: str = Field(
        SAME_AS_DEV,
        min_length=1,
        description="test split, on which bits per byte are measured: a file, a share of the "
        "training text, or `dev`",
    )
    tokenizer: Literal["bytes", "bpe", "unigram"] = Field(
        BYTES,
        description="bytes; or bpe or unigram, kinds of SentencePiece vocabulary. Each keeps every "
        "byte of the text",
    )
    column: str = Field(
        "text", min_length=1, description="column of the text in JSON Lines and Parquet"
    )
    rows: Literal["documents", "pieces"] = Field(
        "documents",
        description="rows of JSON Lines or Parquet are documents, or pieces of the one document of "
        "the file; a .txt file is one document",
    )
    documents: Literal["joined", "separate"] = Field(
        "joined",
        description="contexts run over the ends of documents, or each document begins a context",
    )
    max_bytes: int | None = Field(
        None,
        ge=1,
        description="read at most this number of bytes from the beginning of the training text",
    )
    tokenizer_lines: int = Field(
        250_000,
        ge=1,
        le=100_000_000,
        description="maximum number of lines to learn the vocabulary on; of more, a sample is used",
    )

    @model_validator(mode="after")
    def _shares_and_vocabulary(self) -> LanguageData:
        if self.tokenizer == BYTES and self.vocab_size != BYTE_VOCABULARY:
            raise ValueError(
                f"vocab_size={self.vocab_size} has no effect with tokenizer=bytes, whose "
                f"vocabulary has "
                f"{BYTE_VOCABULARY} entries; remove it, or set tokenizer to bpe or unigram"
            )
        if share_of(self.train) is not None:
            raise ValueError(
                f'train "{self.train}" is a share; only dev and test can be cut from the training '
                f"text"
            )
        if self.held_out >= 1:
            raise ValueError(f"dev={self.dev} and test={self.test} leave no text for training")
        return self

    @property
    def columns(self) -> tuple[str | int, ...]:
        """The column of the text."""
        return (self.column,)

    @property
    def is_stream(self) -> bool:
        """The text is a stream of documents."""
        return True

    @property
    def held_out(self) -> float:
        """Share of the training text that dev and test are cut from."""
        return (share_of(self.dev) or 0.0) + (share_of(self.test) or 0.0)

    @property
    def test_changes_training_text(self) -> bool:
        """Whether test is a share of the training text, so that its size decides what is left for
        training.
        """
        return share_of(self.test) is not None

    @property
    def hub(self) -> HubData | None:
        """The data set of a named text, unless its files are in `folder`; or the one that `corpus`
        names.
        """
        named = NAMED_TEXTS.get(self.corpus)
        if named is None or named.repository is None or self.folder is not None:
            return super().hub
        return HubData(named.repository, named.revision, named.files, {})

    @property
    def generated(self) -> bool:
        """Whether this is the toy text."""
        return self.corpus in NAMED_TEXTS and NAMED_TEXTS[self.corpus].repository is None


def share_of(split: str) -> float | None:
    """The share of a split such as `5%`: 0.05. None for the name of a file.

    Raises:
        ValueError: the share is not between 0 and 100 %.
    """
    match = _SHARE.fullmatch(split)
    if match is None:
        return None
    share = float(match[1]) / 100
    if not 0 < share < 1:
        raise ValueError(f'"{split}" is not a share between 0% and 100%')
    return share


def resolve_language_data(settings: Mapping[str, Any]) -> LanguageData:
    """Resolve the data section of a language model: a named text sets the splits, and the tokenizer
    sets the vocabulary size.

    Raises:
        pydantic.ValidationError: a value is of the wrong type, out of range or missing.
        ValueError: the corpus is unknown, or settings cannot go together.
    """
    corpus = settings.get("corpus")
    known = listed((*TEXTS, "hf:OWNER/NAME"))
    if corpus is None:
        raise ValueError(f"data needs a corpus: {known}")
    defaults: dict[str, Any] = {}
    if settings.get("tokenizer", BYTES) != BYTES:
        defaults["vocab_size"] = SUBWORDS
    if isinstance(corpus, str) and corpus.startswith(HUB):
        return LanguageData(**{**defaults, **HUB_SPLITS, **settings})
    if corpus not in TEXTS:
        raise ValueError(
            f'corpus "{corpus}" is not known: {known}{did_you_mean(str(corpus), TEXTS)}'
        )
    named = NAMED_TEXTS.get(str(corpus))
    if named is not None:
        defaults |= {"train": named.train, "dev": named.dev, "test": named.test, "rows": named.rows}
    data = LanguageData(**{**defaults, **settings})
    if data.generated:
        for name in ("folder", "train", "dev", "test", "column", "rows"):
            if name in settings:
                raise ValueError(f'"{name}" has no effect on the toy corpus: it is generated')
    return data
