"""Positional encodings (section 3.5; row E of Table 3): fields, rules, number of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import EXPORTED, PER_LAYER, Aliases, Facts, Part, PositiveShare, choice
from ablate.parts.sizes import MAX_SIZE, Size, Sizes
from ablate.parts.variant import Variant, VariantName, Variants

T5_BUCKETS = 32  # of distances, in positional_encoding=t5


@dataclass(frozen=True)
class Encoding(Variant):
    """Facts about a positional encoding, whose class is constructed with config, causal and init.

    acts_in_attention: whether it acts inside self-attention; otherwise it is added to the
        embeddings, or absent.
    adds_to_scores: whether it adds to attention scores or outputs, so that attention cannot be one
        fused operation.
    parameters: number of trained parameters in a stack, as a function of (c, number of layers,
        causal).
    score_factor: multiplications per attention score, relative to attention without positions.
    depends_on: names of the fields of a layer that it reads. Layers with different values have
        different encodings.
    may_alternate: whether a stack may have several encodings in alternation, among them this one.
    fault: the fault of a configuration that cannot have it, or None.
    """

    acts_in_attention: bool = False
    adds_to_scores: bool = False
    parameters: Callable[[Positions, int, bool], int] = lambda c, depth, causal: 0
    score_factor: int = 1
    depends_on: tuple[str, ...] = ("n_heads", "d_k", "d_v")
    may_alternate: bool = True
    fault: Callable[[Positions], Fault | None] = lambda c: None


def rotated_entries(c: Positions) -> int:
    """Number of entries of a head that `rope` rotates."""
    return int(c.d_k * c.rope_fraction)


def rotation_fault(c: Positions) -> Fault | None:
    """The fault of heads that `rope` cannot rotate, or None."""
    rotated = rotated_entries(c)
    if c.rope_fraction != 1.0 and (rotated < 2 or rotated % 2):
        return Fault(
            f"rope_fraction={c.rope_fraction} of d_k={c.d_k} is {rotated} entries, and rope "
            "rotates pairs of entries",
            ("rope_fraction", "d_k", "n_heads", "d_model"),
        )
    if c.d_k % 2:
        return Fault(
            f"d_k={c.d_k} is odd, and rope rotates pairs of a head's entries",
            ("d_k", "n_heads", "d_model", "positional_encoding"),
        )
    return None


def _odd_d_model(c: Positions) -> Fault | None:
    if c.d_model % 2:
        return Fault(
            f"d_model={c.d_model} is odd, and sinusoidal positions pair a sine with a cosine",
            ("d_model", "positional_encoding"),
        )
    return None


def _relative_parameters(c: Positions, depth: int, causal: bool) -> int:
    """A vector of d_k and one of d_v entries for each distance: from 0 to the clip in a causal
    stack, else from -clip to clip.
    """
    distances = c.relative_clip + 1 if causal else 2 * c.relative_clip + 1
    return depth * distances * (c.d_k + c.d_v)


POSITIONAL_ENCODINGS = Variants(
    custom=Encoding(),
    sinusoidal=Encoding(
        "ablate.model.positions:SinusoidalPositions",
        fault=_odd_d_model,
        depends_on=(),
        may_alternate=False,
    ),
    learned=Encoding(
        "ablate.model.positions:LearnedPositions",
        depends_on=(),
        may_alternate=False,
        parameters=lambda c, depth, causal: c.max_positions * c.d_model,
    ),
    none=Encoding("ablate.model.positions:PositionalEncoding", depends_on=()),
    rope=Encoding(
        "ablate.model.positions:RotaryPositions",
        acts_in_attention=True,
        depends_on=("d_k", "rope_base", "rope_fraction", "rope_scaling", "rope_factor"),
    ),
    relative=Encoding(
        "ablate.model.positions:RelativePositions",
        depends_on=("d_k", "d_v", "mixer"),
        may_alternate=False,
        acts_in_attention=True,
        adds_to_scores=True,
        parameters=_relative_parameters,
        score_factor=2,  # its vectors are multiplied as keys and values are
    ),
    t5=Encoding(
        "ablate.model.positions:T5Positions",
        acts_in_attention=True,
        adds_to_scores=True,
        depends_on=("n_heads",),
        parameters=lambda c, depth, causal: T5_BUCKETS * c.n_heads,
    ),
    alibi=Encoding(
        "ablate.model.positions:AlibiPositions",
        acts_in_attention=True,
        adds_to_scores=True,
        depends_on=("n_heads",),
    ),
)

ROPE = choice("positional_encoding", "rope")
SCALED_ROPE = Part("scaled rope", {"rope_scaling": ("linear", "yarn")}, (ROPE,))
ROPE_FACTS = Facts(part=ROPE, per_layer=True)


class Positions(Sizes):
    """Fields of the positional encoding of a layer."""

    positional_encoding: Annotated[str, VariantName(tuple(POSITIONAL_ENCODINGS)), PER_LAYER] = (
        "sinusoidal"
    )
    """positional encoding (3.5; row E of Table 3)"""
    relative_clip: Annotated[
        Size, Facts(part=choice("positional_encoding", "relative"), is_exported=True)
    ] = 16
    """distance at which `relative` positions are clipped (Shaw et al., 2018)"""
    rope_base: Annotated[float, ROPE_FACTS, Aliases("rope_theta")] = Field(
        10_000.0, gt=1.0, le=1e12
    )
    """base of the wavelengths of `rope`: a larger base distinguishes larger distances"""
    rope_fraction: Annotated[PositiveShare, ROPE_FACTS, Aliases("partial_rotary_factor")] = 1.0
    """share of a head's entries that `rope` rotates, from the first entry on, as in GPT-NeoX"""
    rope_scaling: Annotated[Literal["none", "linear", "yarn"], ROPE_FACTS] = "none"
    """how `rope` is stretched by `rope_factor` beyond the length that it was made for: at all
    wavelengths (`linear`; Chen et al., 2023), or at long wavelengths only (`yarn`; Peng et al.,
    2024)"""
    rope_factor: Annotated[
        float,
        Facts(part=SCALED_ROPE, per_layer=True),
    ] = Field(2.0, gt=1.0, le=1024.0)
    """max_positions divided by the length that `rope` without scaling was made for"""
    max_positions: Annotated[int, EXPORTED] = Field(1024, ge=8, le=MAX_SIZE)
    """maximum sequence length in tokens; unset with `learned` positions: length of the longest text
    of the corpus, so that a text reads each of them"""

    @property
    def encoding_key(self) -> tuple[Any, ...]:
        """Key of the positional encoding of a layer: layers with equal keys share an encoding."""
        names = POSITIONAL_ENCODINGS[self.positional_encoding].depends_on
        return (self.positional_encoding, *(getattr(self, name) for name in names))


def parameters(layers: Iterable[Positions], depth: int, causal: bool) -> int:
    """Number of trained numbers in the encodings of a stack.

    Args:
        layers: the first layer with each encoding.
        depth: number of layers of the stack.
        causal: whether the stack is causal.
    """
    return sum(
        POSITIONAL_ENCODINGS[layer.positional_encoding].parameters(layer, depth, causal)
        for layer in layers
    )


def faults(c: Positions) -> Iterator[Fault]:
    """Yield the fault of the positional encoding of a layer, if any."""
    fault = POSITIONAL_ENCODINGS[c.positional_encoding].fault(c)
    if fault:
        yield fault


def stack_faults(layers: Sequence[Positions]) -> Iterator[Fault]:
    """Yield a fault for each encoding that cannot be one of several in a stack; `layers` has the
    first layer with each encoding.
    """
    for layer in layers:
        name = layer.positional_encoding
        encoding = POSITIONAL_ENCODINGS[name]
        if len(layers) > 1 and not encoding.may_alternate:
            yield Fault(
                f"positional_encoding={name} must be the same in all layers of a stack, and so "
                "must the fields that it depends on",
                ("positional_encoding", *encoding.depends_on),
            )
