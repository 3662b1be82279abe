"""Initial weights, and their dependence on the width: muP and CompleteP.

With `standard`, a wider model needs another learning rate. With muP (Yang et al., 2021), sizes of
activations and of their updates do not depend on the width, so the best learning rate does not,
either; with CompleteP (Dey et al., 2025), also not on the depth. At `base_width` and `base_depth`
both are the standard parametrization, apart from the scale of attention scores, which is 8 / d_k:
the same as 1 / sqrt(d_k) at d_k = 64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import EXPORTED, Facts, choice
from ablate.formatting import setting_text
from ablate.parts.embeddings import Embeddings
from ablate.parts.mixers import MixerFields
from ablate.parts.residual import Residuals
from ablate.parts.sizes import Depth, Size

BASE_HEAD = 64  # the d_k at which muP scales scores as the paper does


class Initialization(Embeddings, Residuals, MixerFields):
    """Fields of the initial weights and of the parametrization."""

    initialization: Annotated[Literal["xavier", "normal", "orthogonal"], EXPORTED] = "xavier"
    """initial weights of matrices: uniform, with a range that depends on their sizes (Glorot and
    Bengio, 2010); from one normal distribution, embeddings too, as in GPT-2; or orthogonal (Saxe
    et al., 2014). In `xavier` and `orthogonal`, embeddings are from N(0, 1/d_model)"""
    initialization_std: Annotated[
        float, Facts(part=choice("initialization", "normal"), is_exported=True)
    ] = Field(0.02, gt=0.0, le=10.0)
    """standard deviation of normal initial weights"""
    output_initialization: Annotated[Literal["same", "depth", "zero"], EXPORTED] = "same"
    """initial weights of the projections that add to the residual stream: as in other matrices,
    divided by sqrt(2 N) (`depth`; GPT-2), or zero"""
    parametrization: Literal["standard", "mup", "completep"] = "standard"
    """dependence of initial weights, learning rates and logits on the width: none, by muP (Yang et
    al., 2021), or by CompleteP, which also depends on the depth (Dey et al., 2025). With both, the
    best learning rate is the same at all sizes"""
    base_width: Annotated[Size, Facts(part=choice("parametrization", "mup", "completep"))] = 128
    """d_model at which muP is the standard parametrization"""
    base_depth: Annotated[Depth, Facts(part=choice("parametrization", "completep"))] = 2
    """number of layers at which CompleteP is muP"""


def faults(c: Initialization) -> Iterator[Fault]:
    """Yield the faults of the parametrization of a layer."""
    if c.parametrization != "standard" and not c.has_self_attention:
        yield Fault(
            f"parametrization={c.parametrization} has no rules for mixer={c.mixer}",
            ("parametrization", "mixer"),
        )
    if c.parametrization == "completep" and c.residual_scale != "none":
        yield Fault(
            "parametrization=completep already scales the outputs of sub-layers, so residual_scale "
            f"must be none; it is {c.residual_scale}",
            ("parametrization", "residual_scale"),
        )
    if c.output_initialization == "zero":
        yield from _zero_output_faults(c)


def _zero_output_faults(c: Initialization) -> Iterator[Fault]:
    """Yield a fault if the gradients of a layer are zero as well as its outputs, so that training
    cannot change the layer.
    """
    field = None
    if not c.residual:
        field = "residual"
    elif c.residual_scale == "rezero":
        field = "residual_scale"
    if field is not None:
        yield Fault(
            f"output_initialization=zero with {field}={setting_text(getattr(c, field))} makes the "
            "outputs and the gradients of sub-layers zero, so that they are never trained",
            ("output_initialization", field),
        )


@dataclass(frozen=True)
class Factors:
    """Factors relative to the standard parametrization.

    matrix_rate: factor of the learning rate of matrices of hidden layers.
    orthogonal_rate: factor of this learning rate where updates are orthogonal, as in Muon.
    embedding_rate: factor of the learning rate of token embeddings.
    matrix_init: factor of the initial weights of matrices of hidden layers.
    embedding_init: factor of the initial weights of token embeddings.
    output_init: factor of the initial weights of an untied output matrix.
    position_init: factor of the initial weights of learned positions and token types.
    logits: factor of the logits.
    residual: factor of the output of a sub-layer.
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
    """The factors of the parametrization of a model."""
    if c.parametrization == "standard":
        return Factors()
    width = c.d_model / c.base_width
    # With the width, the factor of embeddings grows and initial weights decrease. Initial weights
    # of `normal` have the same deviation at every width; all other initial weights decrease with
    # the square root of the width.
    scale_growth = 1.0 if c.embedding_scale == 1 else width**0.5
    init_decrease = 1.0 if c.initialization == "normal" else width**0.5
    depth = 1.0
    if c.parametrization == "completep":
        depth = max(c.depths) / c.base_depth
    return Factors(
        matrix_rate=1 / width,
        orthogonal_rate=width**-0.5,
        embedding_rate=1 / scale_growth,
        matrix_init=init_decrease / width**0.5,
        embedding_init=init_decrease / scale_growth,
        output_init=init_decrease,
        position_init=width**0.5,
        logits=1 / width if c.tied_embeddings == "none" else scale_growth / width,
        residual=1 / depth,
    )


def score_scale(c: Initialization) -> float:
    """The factor of attention scores."""
    if c.attention_scale == 1:
        return 1.0
    return c.d_k**-0.5 if c.parametrization == "standard" else float(BASE_HEAD**0.5 / c.d_k)
