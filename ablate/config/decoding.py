"""Fields of decoding (section 6.1 of the paper). Not part of a run's id: rows that differ in them
share runs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.config.data import MAX_CONTEXT
from ablate.config.fields import OF_SEARCH, OF_TASKS, Facts, Section

LengthPenalty = Literal["gnmt", "length"]


class DecodingConfig(Section):
    """Settings of prediction and scoring. Defaults are those of the paper's Table 3."""

    beam: Annotated[int, OF_SEARCH] = Field(
        4, ge=1, le=1024, description="beam size; 1 is greedy search"
    )
    alpha: Annotated[float, OF_SEARCH] = Field(
        0.6,
        ge=0.0,
        le=10.0,
        description="exponent of the length penalty, by which the log-probability of a translation "
        "Y is divided",
    )
    length_penalty: Annotated[LengthPenalty, OF_SEARCH] = Field(
        "gnmt",
        description="form of the length penalty: ((5+|Y|)/6)^alpha (Wu et al., 2016), or |Y|^alpha "
        "as in fairseq and transformers; the end mark counts",
    )
    max_extra_length: Annotated[int, OF_SEARCH] = Field(
        50,
        ge=0,
        le=10_000,
        description="maximum number of tokens by which a translation exceeds its source",
    )
    early_stopping: Annotated[bool, OF_SEARCH] = Field(
        True,
        description="stop a search when the number of finished hypotheses reaches the beam size; "
        "false: only when no unfinished one can become better",
    )
    constrained: Annotated[bool, OF_SEARCH] = Field(
        False,
        description="parsing: search only among well-formed trees with as many words as the "
        "sentence",
    )
    average_checkpoints: Annotated[int, Facts(chosen_on_dev=True)] = Field(
        1, ge=1, le=1000, description="number of last checkpoints whose weights are averaged"
    )
    eval_context: Annotated[int | None, OF_TASKS] = Field(
        None,
        ge=2,
        le=MAX_CONTEXT,
        description="language models, masked or not: number of tokens from which a token of the "
        "test split is predicted; unset: context",
    )
    eval_stride: Annotated[int | None, OF_TASKS] = Field(
        None,
        ge=1,
        le=MAX_CONTEXT,
        description="language models: tokens scored in each context of the evaluation; unset: "
        "eval_context",
    )
    temperature: Annotated[float, OF_TASKS] = Field(
        1.0,
        ge=0.0,
        le=100.0,
        description="language models: divides the logits of generated text; 0 is greedy",
    )
    top_k: Annotated[int | None, OF_TASKS] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="language models: generated tokens are among the k most likely",
    )
    generated_tokens: Annotated[int, OF_TASKS] = Field(
        200,
        ge=1,
        le=100_000,
        description="language models: length of each sample of generated text",
    )
    eval_mask_rate: Annotated[float, OF_TASKS] = Field(
        0.15,
        gt=0.0,
        lt=1.0,
        description="masked language models: share of the tokens that are masked and scored",
    )
    eval_whole_word: Annotated[bool, OF_TASKS] = Field(
        False,
        description="masked language models: choose words for the evaluation, with all of their "
        "tokens",
    )
    eval_mask_seed: Annotated[int, OF_TASKS] = Field(
        1,
        ge=0,
        le=1_000_000,
        description="masked language models: seed of the masks of the evaluation",
    )
    eval_length: Annotated[int | None, OF_TASKS] = Field(
        None,
        ge=1,
        le=10_000,
        description="synthetic tasks: length of every test item; unset: those of training",
    )
    eval_pairs: Annotated[int | None, OF_TASKS] = Field(
        None,
        ge=1,
        le=10_000,
        description="synthetic task recall: number of pairs of every test item; unset: those of "
        "training",
    )
