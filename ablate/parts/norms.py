"""Normalization and its places around sub-layers (section 3.1): fields and number of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ablate.fields import PER_LAYER, Facts, Part
from ablate.parts.sizes import SECOND_LAYER, Sizes
from ablate.parts.variant import Variant, VariantName, Variants


@dataclass(frozen=True)
class NormVariant(Variant):
    """Facts about a normalization, whose class is constructed with d_model.

    vectors: number of trained vectors of d_model entries, such as a gain and a bias.
    numbers: number of other trained numbers.
    fields: names of fields of the model that its class takes as keyword arguments.
    """

    vectors: int = 0
    numbers: int = 0
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class NormPosition(Variant):
    """Facts about the places of norms around a sub-layer.

    norms: number of norms around each sub-layer.
    ends_with_norm: whether a stack of such layers ends with one more norm.
    """

    norms: int = 1
    ends_with_norm: bool = True


NORMS = Variants(
    custom=NormVariant(),
    layernorm=NormVariant("ablate.model.norms:LayerNorm", vectors=2),
    layernorm_no_bias=NormVariant("ablate.model.norms:layer_norm_without_bias", vectors=1),
    rmsnorm=NormVariant("ablate.model.norms:RMSNorm", vectors=1),
    unit=NormVariant("ablate.model.norms:unit_norm"),
    dyt=NormVariant("ablate.model.norms:DynamicTanh", vectors=2, numbers=1),
)
NORM_POSITIONS = Variants(
    custom=NormPosition(),
    post=NormPosition("ablate.model.residual:PostNorm", ends_with_norm=False),
    pre=NormPosition("ablate.model.residual:PreNorm"),
    sandwich=NormPosition("ablate.model.residual:SandwichNorm", norms=2),
    output=NormPosition("ablate.model.residual:OutputNorm"),
    # The norm is then the identity.
    none=NormPosition("ablate.model.residual:PostNorm", norms=0, ends_with_norm=False),
)


NORM = Part("a norm", {"norm_position": ("post", "pre", "sandwich", "output")})
NORM_BEFORE = Part(
    "the norm before a sub-layer", {"norm_position": ("pre", "sandwich")}, (SECOND_LAYER,)
)


class NormFields(Sizes):
    """Fields of the norms of a layer."""

    norm: Annotated[
        str,
        VariantName(tuple(NORMS)),
        Facts(part=NORM, per_layer=True),
    ] = "layernorm"
    """normalization (Ba et al., 2016; Zhang and Sennrich, 2019); `unit` is RMSNorm without a gain,
    and `dyt` a scaled tanh (Zhu et al., 2025)"""
    norm_position: Annotated[str, VariantName(tuple(NORM_POSITIONS)), PER_LAYER] = "post"
    """place of the normalization: after the residual sum (`post`; 3.1), before the sub-layer
    (`pre`), before and after it (`sandwich`; Gemma 2), on its output (`output`; OLMo 2), or none"""
    norm_scale: Annotated[
        Literal["none", "depth"],
        Facts(part=NORM_BEFORE, per_layer=True),
    ] = "none"
    """factor of the output of the norm before a sub-layer: 1, or 1 / sqrt(i) in layer i (`depth`;
    LayerNorm Scaling; Sun et al., 2025)"""


def parameters(c: NormFields) -> int:
    """Number of trained numbers of one norm."""
    if c.norm_position == "none":
        return 0
    norm = NORMS[c.norm]
    return norm.vectors * c.d_model + norm.numbers


def sublayer_parameters(c: NormFields) -> int:
    """Number of trained numbers of the norms around a sub-layer."""
    return NORM_POSITIONS[c.norm_position].norms * parameters(c)


def final_parameters(c: NormFields) -> int:
    """Number of trained numbers of the norm at the end of a stack, whose last layer is `c`."""
    return parameters(c) if NORM_POSITIONS[c.norm_position].ends_with_norm else 0
