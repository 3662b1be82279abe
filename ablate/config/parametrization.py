"""How initial weights, rates and multipliers follow width and depth: muP and CompleteP.

With `standard`, a wider model needs another learning rate. muP (Yang et al., 2021) keeps sizes of
activations and of their changes, and so the best rate, over widths; CompleteP (Dey et al., 2025)
over depths, too. At `base_width` and `base_depth` both are the standard parametrization, but for
the scale of attention scores, which is 8 / d_k: equal at d_k = 64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate.config.model import ModelConfig

BASE_HEAD = 64  # at which scores are scaled as in the paper


@dataclass(frozen=True)
class Factors:
    """Multiples of what the standard parametrization has.

    matrix_rate: learning rate of matrices of hidden layers.
    orthogonal_rate: the same, where updates are orthogonal, as in Muon.
    embedding_rate: learning rate of embeddings of tokens.
    matrix_init, embedding_init, output_init, position_init: initial weights of matrices of hidden
        layers, of embeddings of tokens, of an output matrix that is not tied to them, and of
        learned positions and token types.
    logits: the logits.
    residual: what a sub-layer adds to the stream.
    """

    matrix_rate: float = 1.0
    orthogonal_rate: float = 1.0
    embedding_rate: float = 1.0
    matrix_init: float = 1.0
    embedding_init: float = 1.0
    output_init: float = 1.0
    position_init: float = 1.0
    logits: float = 1.0
    residual: float = 1.0


def factors(c: ModelConfig) -> Factors:
    """The factors of a model."""
    if c.parametrization == "standard":
        return Factors()
    width = c.d_model / c.base_width
    looked_up = falls = width**0.5
    if c.embedding_scale == 1:
        looked_up = 1.0  # the scale of embeddings
    # Normal initial weights have one deviation at every width; Xavier's fall by its root.
    if c.initialization == "normal":
        falls = 1.0
    depth = 1.0
    if c.parametrization == "completep":
        depth = max(c.depths) / c.base_depth
    return Factors(
        matrix_rate=1 / width,
        orthogonal_rate=width**-0.5,
        embedding_rate=1 / looked_up,
        matrix_init=falls / width**0.5,
        embedding_init=falls / looked_up,
        output_init=falls,
        position_init=width**0.5,
        logits=1 / width if c.tied_embeddings == "none" else looked_up / width,
        residual=1 / depth,
    )


def score_scale(c: ModelConfig) -> float:
    """The factor of the products of queries and keys."""
    if c.attention_scale == 1:
        return 1.0
    return c.d_k**-0.5 if c.parametrization == "standard" else float(BASE_HEAD**0.5 / c.d_k)
