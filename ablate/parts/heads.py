"""The head that predicts tokens from the states of the last layer (section 3.4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.fields import EXPORTED, Aliases, Facts, only
from ablate.parts import norms
from ablate.parts.norms import Norms
from ablate.parts.sizes import ENCODER_ONLY, Cap


class OutputHead(Norms):
    """The head of a model, and the terms of its loss."""

    output_transform: Annotated[
        Literal[False, True, "without_bias"],
        only(True, False, "without_bias"),
        Facts(part=ENCODER_ONLY),
    ] = False
    """linear layer, activation and norm before the output matrix of `encoder-only`, as in BERT;
    `without_bias`: of the linear layer, as in ModernBERT"""
    output_bias: bool = False
    """bias of the logits, as in BERT, GPT-J and Phi"""
    logit_cap: Annotated[Cap | None, Aliases("final_logit_softcapping")] = None
    """soft cap of the logits, which become cap * tanh(logit / cap), as in Gemma 2; unset: none"""
    z_loss: Annotated[float, EXPORTED] = Field(0.0, ge=0.0, le=1.0)
    """weight in the training loss of the squared logarithm of the softmax's sum, which keeps logits
    small (PaLM; Chowdhery et al., 2022)"""


def transform_weights(c: OutputHead) -> int:
    """Weights of the matrix before the output matrix."""
    return bool(c.output_transform) * c.d_model**2


def parameters(c: OutputHead, vocab_size: int) -> int:
    """Trained numbers of the head without its output matrix, by the configuration of the last
    layer.
    """
    total = vocab_size * c.output_bias
    if c.output_transform:
        biases = c.d_model * (c.output_transform is True)
        total += transform_weights(c) + biases + norms.parameters(c)
    return total


def products(c: OutputHead, vocab_size: int, matrices: int) -> int:
    """Multiplications for each predicted token, with so many output matrices."""
    return matrices * vocab_size * c.d_model + transform_weights(c)
