"""Embeddings of tokens (section 3.4) and additions to them: fields, rules, number of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import EXPORTED, Aliases, Facts, Part, only
from ablate.parts import norms
from ablate.parts.norms import NORM, NormFields
from ablate.parts.sizes import ENCODER_ONLY, ONE_STACK

EMBEDDING_NORM = Part("a norm in a model of one stack", NORM.needs, (ONE_STACK,))
ONE_STACK_FACTS = Facts(part=ONE_STACK)


class Embeddings(NormFields):
    """The embeddings of a model."""

    embedding_scale: Annotated[Literal["sqrt(d_model)", 1], only("sqrt(d_model)", 1), EXPORTED] = (
        "sqrt(d_model)"
    )
    """factor of looked-up embeddings (3.4); GPT-2 and Llama have none, which is 1"""
    tied_embeddings: Annotated[
        Literal["all", "decoder", "none"],
        EXPORTED,
        Aliases("tie_weights", "weight_tying", "weight_sharing"),
    ] = "all"
    """which matrices share weights: source, target and output embedding (3.4), target and output
    embedding only, or none"""
    embedding_norm: Annotated[
        Literal[False, True, "first"],
        only(True, False, "first"),
        Facts(part=EMBEDDING_NORM),
    ] = False
    """normalization of the sum of embeddings and positions in a model of one stack (Devlin et al.,
    2019; nanochat); `first`: instead of the norm before the first sub-layer, as in ModernBERT"""
    smear: Annotated[bool, ONE_STACK_FACTS] = False
    """add the embedding of the previous token to each embedding, times a gate and a trained number
    that begins at 0 (modded-nanogpt, nanochat)"""
    bigram_embeddings: Annotated[int | None, ONE_STACK_FACTS] = Field(None, ge=2, le=100_000_000)
    """number of rows of a second table of embeddings; a hash of each token and the previous one
    selects a row (modded-nanogpt, nanochat); unset: no such table"""
    token_types: Annotated[int, Facts(part=ENCODER_ONLY, is_exported=True)] = Field(0, ge=0, le=16)
    """number of token types of `encoder-only`; the vector of the first one is added to every
    embedding, as in BERT for a single text"""

    @property
    def replaces_first_norm(self) -> bool:
        """Whether the norm of embeddings replaces the norm before the first sub-layer."""
        return self.embedding_norm == "first"


def faults(c: Embeddings) -> Iterator[Fault]:
    """Yield the faults of the embeddings of a model."""
    if c.tied_embeddings == "decoder" and not c.has_both_stacks:
        missing = "a decoder" if c.has_encoder else "an encoder"
        yield Fault(
            f"tied_embeddings=decoder does not work without {missing}: there is one embedding",
            ("tied_embeddings", "architecture"),
            remedy="use all or none",
        )


def first_layer_faults(c: Embeddings) -> Iterator[Fault]:
    """Yield a fault if the first sub-layer, whose layer is `c`, has no norm to replace."""
    if c.replaces_first_norm and c.norm_position not in ("pre", "sandwich"):
        yield Fault(
            "embedding_norm=first replaces the norm before the first sub-layer, so it needs "
            f"norm_position=pre or sandwich there; it is {c.norm_position}",
            ("embedding_norm", "norm_position"),
        )


def parameters(c: Embeddings, vocab_size: int) -> int:
    """Number of trained numbers in embeddings and output matrix; `c` is the first layer."""
    rows = _matrices(c) * vocab_size + c.token_types + (c.bigram_embeddings or 0)
    total = rows * c.d_model
    if c.smear:
        total += c.d_model + 1
    if c.embedding_norm is True:
        total += norms.parameters(c)
    return total


def _matrices(c: Embeddings) -> int:
    """Number of different V x d_model matrices: source, target and output, after tying."""
    if c.tied_embeddings == "none":
        return 2 + c.has_both_stacks
    return 2 if c.tied_embeddings == "decoder" else 1
