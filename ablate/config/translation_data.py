"""Fields of a translation corpus: directions, columns and filters of sentence pairs; the corpora
known by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.config.data import FILES, HUB, HUB_SPLITS, DataConfig, HubData, PairRules
from ablate.errors import did_you_mean, listed

SOURCE, TARGET = "source", "target"
_LANGUAGE = r"[A-Za-z0-9]{1,8}(?:_[A-Za-z0-9]{1,8})*"
_DIRECTION = re.compile(rf"{_LANGUAGE}-{_LANGUAGE}")


@dataclass(frozen=True)
class NamedCorpus:
    """A parallel corpus known by name: its splits and directions, and where it is published.

    train, dev, test: names of the splits in the literature.
    directions: the first is the default. Each maps to its configuration on the Hub, empty if the
        data set has only one.
    vocab_size: the default.
    repository: `owner/name` on the Hub; None: the corpus is generated.
    revision: a commit, or a branch; given only where it is known for certain, as are hashes.
    files: prefix of the split's file names, by split name; `{config}` is replaced by the
        direction's configuration.
    sha256: of files, where they are known.
    """

    train: str
    dev: str
    test: str
    directions: Mapping[str, str]
    vocab_size: int = 37_000
    repository: str | None = None
    revision: str = "main"
    files: Mapping[str, str] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)


NAMED_CORPORA = {
    "toy": NamedCorpus("train", "dev", "test", {"en-toy": ""}, vocab_size=350),
    "multi30k": NamedCorpus(
        "train",
        "val",
        "test_2016_flickr",
        directions={"en-de": "", "de-en": ""},
        repository="bentrevett/multi30k",
        files={"train": "train", "val": "val", "test_2016_flickr": "test"},
        sha256={
            "train.jsonl": "de8a1bb324fcf14c44b17b2baee60304c9aba9e5f5889da8a955ffffebc71abb",
            "val.jsonl": "f23e04140ebb001299365cd1d041da54c6cdd970b6eba64b7124242580f05e52",
            "test.jsonl": "0b997c04e05614fdca57c7997bb42822db69b4177d6dc96d80a5a6af8a758588",
        },
    ),
    "iwslt2017": NamedCorpus(
        "train",
        "dev2010",
        "tst2010-2015",
        directions={pair: f"iwslt2017-{pair}" for pair in ("en-de", "de-en", "en-fr", "fr-en")},
        repository="IWSLT/iwslt2017",
        revision="refs/convert/parquet",
        files={
            "train": "{config}/train",
            "dev2010": "{config}/validation",
            "tst2010-2015": "{config}/test",
        },
    ),
    "wmt14": NamedCorpus(
        "train",
        "newstest2013",
        "newstest2014",
        # The same files serve both directions.
        directions={"en-de": "de-en", "de-en": "de-en", "en-fr": "fr-en", "fr-en": "fr-en"},
        repository="wmt/wmt14",
        revision="b199e406369ec1b7634206d3ded5ba45de2fe696",
        files={
            "train": "{config}/train",
            "newstest2013": "{config}/validation",
            "newstest2014": "{config}/test",
        },
    ),
}
CORPORA = (*NAMED_CORPORA, FILES)


class TranslationData(DataConfig):
    """Data section of a translation study: sentence pairs, filters and vocabulary."""

    fields: ClassVar[tuple[str, ...]] = (SOURCE, TARGET)

    corpus: str = Field(
        description="toy, multi30k, iwslt2017, wmt14, files, or hf:OWNER/NAME@REVISION"
    )
    direction: str = Field(description="languages as source-target, for example en-de")
    train: str = Field(
        min_length=1,
        description="training split: PREFIX (PREFIX.en and PREFIX.de, or .gz), a file with "
        "columns, or a folder",
    )
    test: str = Field(
        min_length=1, description="test split, on which BLEU is measured; also sacrebleu:NAME"
    )
    max_ratio: float | None = Field(
        None,
        ge=1,
        le=1000,
        description="maximum ratio of the longer to the shorter side in tokens; other training "
        "pairs are dropped",
    )
    drop_identical: bool = Field(False, description="drop training pairs with identical sides")
    vocabulary: Literal["joint", "separate"] = Field(
        "joint", description="one vocabulary for both languages, or one for each"
    )
    source_column: int | str | None = Field(
        None, description="column of the source, by name or by number from 1"
    )
    target_column: int | str | None = Field(
        None, description="column of the target, by name or by number from 1"
    )

    @model_validator(mode="after")
    def _direction_and_columns(self) -> TranslationData:
        if not _DIRECTION.fullmatch(self.direction):
            raise ValueError(
                f'direction "{self.direction}" is not of the form SOURCE-TARGET, for example en-de'
            )
        if (self.source_column is None) != (self.target_column is None):
            raise ValueError("source_column and target_column go together: name both, or neither")
        if type(self.source_column) is not type(self.target_column):
            raise ValueError(
                "source_column and target_column are both names, or both numbers from 1"
            )
        if self.source_column is not None and self.source_column == self.target_column:
            raise ValueError("source_column and target_column are the same column")
        if any(
            type(column) is int and column < 1
            for column in (self.source_column, self.target_column)
        ):
            raise ValueError("columns are counted from 1")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The languages of source and target."""
        return tuple(self.direction.split("-"))

    @property
    def columns(self) -> tuple[str | int, ...] | None:
        """The columns of source and target; None: named by the languages."""
        if self.source_column is None or self.target_column is None:
            return None
        return self.source_column, self.target_column

    @property
    def separate_vocabularies(self) -> tuple[str, ...]:
        """The source, if each language has a vocabulary."""
        return (SOURCE,) if self.vocabulary == "separate" else ()

    @property
    def pair_rules(self) -> PairRules:
        """Filters by the ratio of lengths, and of pairs that are not translated."""
        return PairRules(SOURCE, TARGET, self.max_ratio, self.drop_identical)

    @property
    def hub(self) -> HubData | None:
        """The data set of a named corpus, unless its files are in `folder`; or the one that
        `corpus` names.
        """
        named = NAMED_CORPORA.get(self.corpus)
        if named is None or named.repository is None or self.folder is not None:
            return super().hub
        config = named.directions.get(self.direction, "")
        files = {split: beginning.format(config=config) for split, beginning in named.files.items()}
        return HubData(named.repository, named.revision, files, named.sha256)

    @property
    def generated(self) -> bool:
        """Whether this is the toy corpus."""
        return self.corpus in NAMED_CORPORA and NAMED_CORPORA[self.corpus].repository is None


def resolve_data(settings: Mapping[str, Any]) -> TranslationData:
    """Resolve the study's data section: a named corpus sets its splits, direction and vocabulary
    size.

    Raises:
        pydantic.ValidationError: a value is of the wrong type, out of range or missing.
        ValueError: the corpus is unknown, or has no such direction.
    """
    corpus = settings.get("corpus")
    known = listed((*CORPORA, "hf:OWNER/NAME"))
    if corpus is None:
        raise ValueError(f"data needs a corpus: {known}")
    if isinstance(corpus, str) and corpus.startswith(HUB):
        return TranslationData(**{**HUB_SPLITS, **settings})
    if corpus not in CORPORA:
        raise ValueError(
            f'corpus "{corpus}" is not known: {known}{did_you_mean(str(corpus), CORPORA)}'
        )
    named = NAMED_CORPORA.get(str(corpus))
    if named is None:
        return TranslationData(**settings)
    defaults: dict[str, Any] = {
        "train": named.train,
        "dev": named.dev,
        "test": named.test,
        "direction": next(iter(named.directions)),
        "vocab_size": named.vocab_size,
    }
    data = TranslationData(**{**defaults, **settings})
    if data.direction not in named.directions:
        raise ValueError(
            f'corpus "{corpus}" has no direction "{data.direction}": {listed(named.directions)}'
        )
    if data.generated:
        for name in ("folder", "train", "dev", "test", "source_column", "target_column"):
            if name in settings:
                raise ValueError(f'"{name}" has no effect on the toy corpus: it is generated')
    return data
