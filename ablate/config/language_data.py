"""Fields of language models, causal and masked: the text, splits, contexts and masks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ablate.config.catalogue import TEXTS
from ablate.config.data import CorpusConfig, TextFields
from ablate.errors import Fault, Invalid, not_allowed
from ablate.fields import (
    SET,
    Aliases,
    Amount,
    Count,
    Facts,
    Part,
    ProperShare,
    TaskSettings,
    TextLength,
    VocabularySize,
)
from ablate.parts.sizes import DECODER_ONLY

FIELD = "text"  # name of the only text field of a stream of text
BYTES: Literal["bytes"] = "bytes"
BYTE_VOCABULARY = 260  # 256 bytes, and the marks <pad>, <unk>, <s> and </s>
SUBWORDS = 8192  # the default size of a SentencePiece vocabulary
MINIMAL_PAIRS = "minimal_pairs"  # name of the setting, and of the split of its sentences
END_MARK = 3  # id of the token between two documents, in every vocabulary
SAME_AS_DEV = "dev"  # value of `test`: the dev split is the test split
MAX_CONTEXT = 60_000  # tokens
_SPLIT = re.compile(r"(?:(?:0|[1-9]\d?|100)(?:/|$)){3}")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class LanguageData(CorpusConfig):
    """Data section of a language model: text, documents and vocabulary."""

    introduced: ClassVar[Mapping[str, Any]] = {
        "tokenizer": BYTES,
        "column": "text",
        "documents": "joined",
        "rows": "documents",
        "max_bytes": None,
        "tokenizer_lines": 250_000,
        "minimal_pairs": None,
    }
    catalogue: ClassVar = TEXTS
    is_stream: ClassVar = True
    located_by: ClassVar = (*CorpusConfig.located_by, "column", "rows")

    corpus: str
    """toy, a corpus known by name, files, or hf:OWNER/NAME@REVISION"""
    vocab_size: VocabularySize = BYTE_VOCABULARY
    """size of the vocabulary: 260 with tokenizer=bytes, else 8192"""
    train: str = Field(min_length=1)
    """training split: a file (.txt, .jsonl, .parquet, or these with .gz), or a folder"""
    dev: str = Field(min_length=1)
    """development split: a file or a folder, or a share of the training text such as 5%"""
    test: str = Field(SAME_AS_DEV, min_length=1)
    """test split, on which bits per byte are measured: a file, a share of the training text, or
    `dev`"""
    tokenizer: Literal["bytes", "bpe", "unigram"] = BYTES
    """bytes, or a kind of SentencePiece vocabulary (`bpe`, `unigram`). All of them keep every byte
    of the text"""
    character_coverage: float = Field(1.0, gt=0, le=1)
    """share of the characters in the text that pieces are made of, the most frequent characters
    first; all other characters become bytes"""
    column: str = Field("text", min_length=1)
    """column of the text in JSON Lines and Parquet"""
    rows: Literal["documents", "pieces"] = "documents"
    """rows of JSON Lines or Parquet are documents, or pieces of a single document; a
    .txt file is one document"""
    documents: Literal["joined", "separate"] = "joined"
    """whether contexts continue over the ends of documents (`joined`), or each document begins a
    context (`separate`)"""
    max_bytes: int | None = Field(None, ge=1)
    """number of bytes at the beginning of the training text that are used; unset: all"""
    tokenizer_lines: Amount = 250_000
    """maximum number of lines to learn the vocabulary on; of more lines, a sample"""
    minimal_pairs: str | None = Field(None, min_length=1)
    """file of pairs for the metric `minimal_pairs`: columns `sentence_good` and `sentence_bad` in
    JSON Lines, Parquet or TSV, as BLiMP has them"""

    @property
    def evaluated(self) -> str:
        """The test split, and the minimal pairs if the study has them."""
        if self.minimal_pairs is None:
            return self.test
        return f"{self.test}, pairs {self.minimal_pairs}"

    @model_validator(mode="after")
    def _shares_and_vocabulary(self) -> LanguageData:
        if self.tokenizer == BYTES and self.vocab_size != BYTE_VOCABULARY:
            raise Invalid(
                Fault(
                    f"vocab_size={self.vocab_size} has no effect with tokenizer=bytes, whose "
                    f"vocabulary has {BYTE_VOCABULARY} entries",
                    ("vocab_size", "tokenizer"),
                    remedy="remove it, or set tokenizer to bpe or unigram",
                )
            )
        if self.tokenizer == BYTES and self.character_coverage < 1:
            raise Invalid(
                Fault(
                    f"character_coverage={self.character_coverage:g} has no effect with "
                    "tokenizer=bytes, whose vocabulary is not learned",
                    ("character_coverage", "tokenizer"),
                )
            )
        if share_of(self.train) is not None:
            what = f'train "{self.train}" is a share'
            remedy = "only dev and test can be cut from the training text"
            raise Invalid(Fault(what, ("train",), remedy=remedy))
        if self.held_out >= 1:
            why = f"dev={self.dev} and test={self.test} leave no text for training"
            raise Invalid(Fault(why, ("dev", "test")))
        return self

    @classmethod
    def defaults_for(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults of the corpus; the tokenizer sets the size of the vocabulary."""
        defaults = super().defaults_for(settings)
        if settings.get("tokenizer", BYTES) != BYTES:
            defaults["vocab_size"] = SUBWORDS
        return defaults

    @property
    def text_fields(self) -> TextFields:
        """The text, in the column that `column` names."""
        return TextFields(self.fields, self.labels, (self.column,), ("column",))

    @property
    def held_out(self) -> float:
        """Share of the training text that is held out for dev and test."""
        return (share_of(self.dev) or 0.0) + (share_of(self.test) or 0.0)

    @property
    def tests_on_dev(self) -> bool:
        """Whether the test split is the dev split. Two equal shares are two parts of the text."""
        return self.test in (SAME_AS_DEV, self.dev) and not self.test_changes_training_text

    @property
    def test_changes_training_text(self) -> bool:
        """Whether test is a share of the training text, which is then shorter."""
        return share_of(self.test) is not None


def share_of(split: str) -> float | None:
    """The share in a split such as `5%`: 0.05. None for the name of a file.

    Raises:
        Invalid: the share is not between 0 and 100 %.
    """
    match = _SHARE.fullmatch(split)
    if match is None:
        return None
    share = float(match[1]) / 100
    if not 0 < share < 1:
        raise Invalid(f'"{split}" is not a share between 0% and 100%')
    return share


# Settings of a row


class ContextSettings(TaskSettings):
    """How the training text is cut."""

    context: Annotated[int | None, Aliases("block_size", "n_ctx", "seq_len", "max_seq_len")] = (
        Field(None, ge=2, le=MAX_CONTEXT)
    )
    """number of tokens in a context of training, and by default of the evaluation"""
    stride: TextLength | None = None
    """tokens between the beginnings of two training contexts; unset: context"""


FUTURE = Part("a head of future tokens", {"future_tokens": (SET,)})


class CausalSettings(TaskSettings):
    """Masks between documents, and the prediction of later tokens, of causal language models."""

    document_masks: Annotated[bool, Facts(part=DECODER_ONLY)] = False
    """whether a token sees only its document, which begins with the mark before it; positions are
    then counted from the beginning of the document (Llama 3)"""
    future_tokens: Annotated[int, Facts(part=DECODER_ONLY, is_exported=True)] = Field(
        0, ge=0, le=16
    )
    """number of tokens after the next token that training also predicts, each by a head: one more
    layer with the input of the last layer (Gloeckle et al., 2024)"""
    future_loss: Annotated[float, Facts(part=FUTURE, is_exported=True)] = Field(
        1.0, gt=0.0, le=100.0
    )
    """weight in the training loss of each token after the next"""


class MaskSettings(TaskSettings):
    """The masks of training."""

    mask_rate: ProperShare = 0.15
    """share of the tokens that are masked and predicted in training"""
    mask_split: str = "80/10/10"
    """percentages of predicted tokens that the model reads as the mask, as a random token, and
    unchanged"""
    whole_word: bool = False
    """whether training masks whole words, with all of their tokens"""

    @field_validator("mask_split")
    @classmethod
    def _percentages(cls, value: str) -> str:
        if not _SPLIT.fullmatch(value) or sum(map(int, value.split("/"))) != 100:
            allowed = "three percentages that add up to 100, such as 80/10/10"
            raise Invalid(not_allowed(f'"{value}"', allowed))
        return value


# Settings of an evaluation, which are not part of a run's id


class EvaluationContextSettings(TaskSettings):
    """How the text of an evaluation is cut."""

    eval_context: int | None = Field(None, ge=2, le=MAX_CONTEXT)
    """number of tokens in a context of the evaluation; unset: context"""


class GenerationSettings(TaskSettings):
    """The evaluation of a model that predicts the next token, and text that it generates."""

    eval_stride: TextLength | None = None
    """tokens scored in each context of the evaluation; unset: eval_context"""
    temperature: float = Field(1.0, ge=0.0, le=100.0)
    """divisor of the logits for generated text; 0 is greedy"""
    top_k: Count | None = None
    """k: generated tokens are drawn among the k most likely tokens; unset: among all"""
    generated_tokens: Annotated[int, Aliases("max_new_tokens")] = Field(200, ge=1, le=100_000)
    """length in tokens of each sample of generated text"""


class ProbeSettings(TaskSettings):
    """Further measurements of an evaluation."""

    probes: bool = False
    """whether all probes are measured; it follows from `metrics`, so a study never writes it"""


class EvaluationMaskSettings(TaskSettings):
    """The masks of an evaluation."""

    eval_mask_rate: ProperShare = 0.15
    """share of the tokens that are masked and scored"""
    eval_whole_word: bool = False
    """whether the evaluation masks whole words, with all of their tokens"""
    eval_mask_seed: int = Field(1, ge=0, le=1_000_000)
    """seed of the masks of the evaluation"""
