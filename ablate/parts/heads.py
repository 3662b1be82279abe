"""The output head, which predicts tokens from the states of the last layer (section 3.4): fields
and cost.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.fields import EXPORTED, Aliases, Facts, only
from ablate.parts import norms
from ablate.parts.norms import NormFields
from ablate.parts.sizes import ENCODER_ONLY, Cap


class OutputHead(NormFields):
    """Fields of the output head, and of terms of the loss."""

    output_transform: Annotated[
        Literal[False, True, "without_bias"],
        only(True, False, "without_bias"),
        Facts(part=ENCODER_ONLY),
    ] = False
    """linear layer, activation and norm before the output matrix of `encoder-only`, as in BERT;
    `without_bias`: with no bias in the linear layer, as in ModernBERT"""
    output_bias: bool = False
    """bias of the logits, as in BERT, GPT-J and Phi"""
    logit_cap: Annotated[Cap | None, Aliases("final_logit_softcapping")] = None
    """soft cap of the logits, which become cap * tanh(logit / cap), as in Gemma 2; unset: none"""
    z_loss: Annotated[float, EXPORTED] = Field(0.0, ge=0.0, le=1.0)
    """weight in the training loss of the squared logarithm of the softmax denominator, which keeps
    logits small (PaLM; Chowdhery et al., 2022)"""


def transform_weights(c: OutputHead) -> int:
    """Number of weights of the output transform."""
    return c.d_model**2 if c.output_transform else 0


def parameters(c: OutputHead, vocab_size: int) -> int:
    """Number of trained numbers of the head without its output matrix; `c` is the last layer."""
    total = vocab_size if c.output_bias else 0
    if c.output_transform:
        total += transform_weights(c) + norms.parameters(c)
    if c.output_transform is True:
        total += c.d_model  # bias of the linear layer
    return total


def multiplications(c: OutputHead, vocab_size: int, matrices: int) -> int:
    """Multiplications for each predicted token, with this number of output matrices."""
    return matrices * vocab_size * c.d_model + transform_weights(c)
