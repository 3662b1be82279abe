"""Fields of a translation corpus: directions, columns and filters of sentence pairs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from ablate.config.catalogue import PARALLEL_CORPORA, HubData
from ablate.config.data import BLEU_TOKENIZER, CorpusConfig, DataConfig, PairRules, TextFields
from ablate.config.languages import WORDS, BleuTokenizer, preferred_tokenizer, usable_tokenizer
from ablate.errors import Fault, Invalid, listed

SOURCE, TARGET = "source", "target"
# With a script or a country: pt-BR, zh-Hans; capitals tell them from the language after a hyphen.
_TAG = r"[a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-(?:[A-Z]{2}|\d{3}))?"
_LANGUAGE = rf"(?:{_TAG}|[A-Za-z0-9]{{1,8}}(?:_[A-Za-z0-9]{{1,8}})*)"
_DIRECTION = re.compile(rf"({_LANGUAGE})-({_LANGUAGE})")


def languages_of(direction: str) -> tuple[str, ...]:
    """The languages of source and target; empty if `direction` has not the form SOURCE-TARGET."""
    match = _DIRECTION.fullmatch(direction)
    return match.groups() if match else ()


class TranslationData(DataConfig):
    """Data settings of a translation study: sentence pairs, filters and vocabulary."""

    fields: ClassVar = (SOURCE, TARGET)
    catalogue: ClassVar = PARALLEL_CORPORA
    located_by: ClassVar = (*CorpusConfig.located_by, "source_column", "target_column")

    corpus: str
    """toy, multi30k, iwslt2017, wmt14, files, or hf:OWNER/NAME@REVISION"""
    direction: str = Field(json_schema_extra={"pattern": f"^{_DIRECTION.pattern}$"})
    """languages as source-target, for example en-de or en-pt-BR"""
    train: str = Field(min_length=1)
    """training split: PREFIX (PREFIX.en and PREFIX.de, or .gz), a file with columns, or a folder"""
    test: str = Field(min_length=1)
    """test split, on which BLEU is measured; also sacrebleu:NAME"""
    max_ratio: float | None = Field(None, ge=1, le=1000)
    """maximum ratio of the longer to the shorter side in tokens; other training pairs are
    dropped"""
    drop_identical: bool = False
    """drop training pairs with identical sides"""
    vocabulary: Literal["joint", "separate"] = "joint"
    """vocabularies: one for both languages (`joint`), or one for each (`separate`)"""
    source_column: int | str | None = None
    """column of the source, by name or by number from 1"""
    target_column: int | str | None = None
    """column of the target, by name or by number from 1"""
    bleu_tokenizer: BleuTokenizer | None = None
    """sacreBLEU's tokenizer for BLEU; unset: the tokenizer for the target language"""

    @model_validator(mode="after")
    def _direction_and_columns(self) -> TranslationData:
        if not _DIRECTION.fullmatch(self.direction):
            form = "SOURCE-TARGET, for example en-de or en-pt-BR"
            what = f'direction "{self.direction}" is not of the form {form}'
            raise Invalid(Fault(what, ("direction",)))
        named = self.catalogue.get(self.corpus)
        if named is not None and self.direction not in named.directions:
            raise Invalid(
                Fault(
                    f'corpus "{self.corpus}" has no direction "{self.direction}": '
                    f"{listed(named.directions)}",
                    ("corpus", "direction"),
                )
            )
        source, target = languages_of(self.direction)
        if source == target and self.source_column is None:
            problem = f'direction "{self.direction}" reads the same text as source and target'
            remedy = "name two columns with source_column and target_column"
            raise Invalid(Fault(problem, ("direction",), remedy=remedy))
        if fault := self._columns_fault():
            raise Invalid(Fault(fault, ("source_column", "target_column")))
        return self

    def _columns_fault(self) -> str:
        """The problem of the two columns; empty if there is none."""
        source = self.source_column
        target = self.target_column
        if (source is None) != (target is None):
            return "source_column and target_column go together: name both, or neither"
        if type(source) is not type(target):
            return "source_column and target_column are both names, or both numbers from 1"
        if source is not None and source == target:
            return "source_column and target_column are the same column"
        if any(type(column) is int and column < 1 for column in (source, target)):
            return "columns are counted from 1"
        return ""

    @property
    def target_language(self) -> str:
        """The label of the target."""
        return self.labels[1]

    @property
    def evaluated(self) -> str:
        """The test split, and the tokenizer of its scores if it is not sacreBLEU's default."""
        tokenizer = self.bleu_tokenizer or preferred_tokenizer(self.target_language)
        return self.test if tokenizer == WORDS else f"{self.test}, tok {tokenizer}"

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings with the tokenizer of scores, so that all machines use the same."""
        tokenizer: str | None = self.bleu_tokenizer or usable_tokenizer(self.target_language)
        if self.bleu_tokenizer is None and preferred_tokenizer(self.target_language) == WORDS:
            tokenizer = None
        return {**super().recorded, BLEU_TOKENIZER: tokenizer}

    @property
    def labels(self) -> tuple[str, ...]:
        """The languages of source and target."""
        return languages_of(self.direction)

    @property
    def text_fields(self) -> TextFields:
        """Source and target; without columns in the study, the languages name their columns."""
        columns = None
        if self.source_column is not None and self.target_column is not None:
            columns = (self.source_column, self.target_column)
        return TextFields(self.fields, self.labels, columns)

    @property
    def separate_vocabularies(self) -> tuple[str, ...]:
        """The source, if each language has a separate vocabulary."""
        return (SOURCE,) if self.vocabulary == "separate" else ()

    @property
    def pair_rules(self) -> PairRules:
        """Filters by the ratio of lengths, and of pairs with identical sides."""
        return PairRules(self.max_ratio, self.drop_identical)

    @property
    def hub(self) -> HubData | None:
        """The data set on the Hub; for a named corpus, with the files of the direction."""
        hub, named = super().hub, self.catalogue.get(self.corpus)
        if hub is None or hub.files is None or named is None:
            return hub
        config = named.directions[self.direction]
        files = {split: prefix.format(config=config) for split, prefix in hub.files.items()}
        return replace(hub, files=files)
