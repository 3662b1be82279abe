"""Initial weights, and how they and the rates follow the width: muP and CompleteP.

With `standard`, a wider model needs another learning rate. muP (Yang et al., 2021) keeps sizes of
activations and of their changes, and so the best rate, over widths; CompleteP (Dey et al., 2025)
over depths, too. At `base_width` and `base_depth` both are the standard parametrization, but for
the scale of attention scores, which is 8 / d_k: equal at d_k = 64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import EXPORTED, Facts, chosen
from ablate.parts.embeddings import Embeddings
from ablate.parts.mixers import Mixers
from ablate.parts.residual import Residuals
from ablate.parts.sizes import Depth, Size

BASE_HEAD = 64  # at which scores are scaled as in the paper


class Initialization(Embeddings, Residuals, Mixers):
    """The initial weights of a model."""

    initialization: Annotated[Literal["xavier", "normal", "orthogonal"], EXPORTED] = "xavier"
    """initial weights of matrices: uniform by their sizes (Glorot and Bengio, 2010) with embeddings
    from N(0, 1/d_model), all from one normal distribution, as in GPT-2, or orthogonal (Saxe et
    al., 2014), with embeddings as in `xavier`"""
    initialization_std: Annotated[
        float, Facts(part=chosen("initialization", "normal"), is_exported=True)
    ] = Field(0.02, gt=0.0, le=10.0)
    """deviation of normal initial weights"""
    output_initialization: Annotated[Literal["same", "depth", "zero"], EXPORTED] = "same"
    """initial weights of the projections that add to the residual stream: as all others, divided by
    sqrt(2 N) (GPT-2), or zero"""
    parametrization: Literal["standard", "mup", "completep"] = "standard"
    """how initial weights, rates and logits follow the width: not at all, by muP (Yang et al.,
    2021), or with the depth by CompleteP (Dey et al., 2025), so that the best rate stays"""
    base_width: Annotated[Size, Facts(part=chosen("parametrization", "mup", "completep"))] = 128
    """width at which muP is the standard parametrization"""
    base_depth: Annotated[Depth, Facts(part=chosen("parametrization", "completep"))] = 2
    """depth at which CompleteP is muP"""


def faults(c: Initialization) -> Iterator[Fault]:
    """Yield why a layer cannot have its parametrization."""
    if c.parametrization != "standard" and not c.has_self_attention:
        yield Fault(
            f"parametrization={c.parametrization} has no rules for mixer={c.mixer}",
            ("parametrization", "mixer"),
        )
    if c.parametrization == "completep" and c.residual_scale != "none":
        yield Fault(
            f"parametrization=completep scales the branches by depth; residual_scale="
            f"{c.residual_scale} does so, too",
            ("parametrization", "residual_scale"),
        )


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


def factors(c: Initialization) -> Factors:
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


def score_scale(c: Initialization) -> float:
    """The factor of the products of queries and keys."""
    if c.attention_scale == 1:
        return 1.0
    return c.d_k**-0.5 if c.parametrization == "standard" else float(BASE_HEAD**0.5 / c.d_k)
