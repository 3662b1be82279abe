"""The residual stream: how sub-layers read it and add to it (sections 3.1 and 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import PER_LAYER, Facts, Part
from ablate.parts import norms
from ablate.parts.cost import BYTES, Cost, Place, Tensors
from ablate.parts.feed_forward import FeedForward
from ablate.parts.norms import Norms
from ablate.parts.sizes import ONE_STACK, SECOND_LAYER
from ablate.parts.variant import Variant


@dataclass(frozen=True)
class LayerSkip:
    """How the states of earlier layers are added to the stream again.

    sources: the states that are added after a layer, by (its number, the depth); 0 is that of the
        embeddings, and i + 1 that after layer i.
    initial: what their trained weights begin at.
    """

    sources: Callable[[int, int], Sequence[int]]
    initial: float = 0.0

    def count(self, depth: int) -> int:
        """Number of trained weights in a stack of this depth."""
        return sum(len(self.sources(i, depth)) for i in range(depth))


LAYER_SKIPS = {
    "none": LayerSkip(lambda i, depth: ()),
    # The second half of the layers reads the first half in reverse.
    "unet": LayerSkip(
        lambda i, depth: (depth - 1 - i,) if depth / 2 - 1 <= i < depth - 1 else (), initial=1.0
    ),
    "dense": LayerSkip(lambda i, depth: range(i + 2)),
    "middle": LayerSkip(lambda i, depth: (depth // 2,) if i == depth - 1 else ()),
}


HYPER_CONNECTIONS = {
    "static": Variant("ablate.model.residual:HyperConnections"),
    "dynamic": Variant("ablate.model.residual:DynamicHyperConnections"),
}


RESIDUAL = Part("the residual connection", {"residual": (True,)})
STREAMS = Part(
    "a model of several streams", {"hyper_connections": ("static", "dynamic")}, (ONE_STACK,)
)
# With a single layer, `unet` alone has nothing to skip.
SKIPPED = Part(
    SECOND_LAYER.name,
    within=(ONE_STACK,),
    where=lambda c: c.layer_skips != "unet" or SECOND_LAYER.missing(c) is None,
    by=SECOND_LAYER.by,
    absent=SECOND_LAYER.absent,
)
ONE_STACK_FACTS = Facts(part=ONE_STACK)
STACK_LAYER_FACTS = Facts(part=ONE_STACK, per_layer=True)


class Residuals(Norms, FeedForward):
    """The residual stream of a model."""

    sublayers: Annotated[
        Literal["sequential", "parallel", "parallel_shared_norm"],
        STACK_LAYER_FACTS,
    ] = "sequential"
    """whether the feed-forward network reads what attention has added, or both read the same
    stream, each with its norm (GPT-NeoX) or with a shared one (GPT-J)"""
    residual: Annotated[bool, PER_LAYER] = True
    """residual connections around sub-layers (3.1)"""
    residual_scale: Annotated[
        Literal["none", "depth", "scalar", "rezero", "layerscale"],
        Facts(part=RESIDUAL, per_layer=True),
    ] = "none"
    """factor of what a sub-layer adds: 1 / sqrt(2 N) by `depth`, a trained number that begins at 1
    (`scalar`) or at 0 (ReZero; Bachlechner et al., 2021), or a trained vector that begins at 0.1
    (LayerScale; Touvron et al., 2021)"""
    stream_scale: Annotated[bool, STACK_LAYER_FACTS] = False
    """a trained number that begins at 1, which multiplies the residual stream before the layer
    (nanochat)"""
    embedding_skip: Annotated[bool, STACK_LAYER_FACTS] = False
    """the embeddings, added again before the layer: x becomes a x + b x0, with two trained numbers
    that begin at 1 and 0 (modded-nanogpt, nanochat)"""
    layer_skips: Annotated[Literal["none", "unet", "dense", "middle"], Facts(part=SKIPPED)] = "none"
    """states of earlier layers, added to the stream by trained weights: in the second half of the
    layers those of the first half in reverse (`unet`, from 1), after each layer all before it
    (`dense`; DenseFormer; Pagliardini et al., 2024), or after the last layer the middle one
    (nanochat's backout)"""
    hyper_connections: Annotated[Literal["none", "static", "dynamic"], ONE_STACK_FACTS] = "none"
    """several residual streams in the place of one, which each sub-layer reads, mixes and adds to
    by trained weights (`static`), or by weights that also depend on the streams (`dynamic`; Zhu
    et al., 2024)"""
    expansion_rate: Annotated[int, Facts(part=STREAMS)] = Field(4, ge=1, le=64)
    """number of residual streams of hyper-connections"""

    @property
    def streams(self) -> int:
        """Number of residual streams of hyper-connections; 0 without them."""
        has_many = self.hyper_connections != "none" and not self.has_both_stacks
        return has_many * self.expansion_rate

    @property
    def has_dynamic_streams(self) -> bool:
        """Whether the weights of hyper-connections depend on the streams."""
        return self.streams > 0 and self.hyper_connections == "dynamic"

    @property
    def is_parallel(self) -> bool:
        """Whether both sub-layers read the same stream."""
        return self.sublayers != "sequential" and not self.has_both_stacks

    @property
    def shares_norm(self) -> bool:
        """Whether both sub-layers read the output of one norm."""
        return self.is_parallel and self.sublayers == "parallel_shared_norm"


# Rules


def faults(c: Residuals) -> Iterator[Fault]:
    """Yield why a layer cannot have its residual stream."""
    if c.embedding_skip and c.stream_scale and not c.has_both_stacks:
        yield Fault(
            "stream_scale=true is part of embedding_skip=true: it has a number for the stream",
            ("stream_scale", "embedding_skip"),
        )
    if c.is_parallel:
        yield from _faults_of_parallel(c)
    if c.streams:
        yield from _faults_of_streams(c)


def _faults_of_parallel(c: Residuals) -> Iterator[Fault]:
    if c.feed_forward == "none":
        yield Fault(
            f"sublayers={c.sublayers} needs a network, which feed_forward=none leaves out",
            ("sublayers", "feed_forward"),
        )
    if not c.residual:
        yield Fault(
            f"sublayers={c.sublayers} adds to one stream, which residual=false does not keep",
            ("sublayers", "residual"),
        )
    if c.norm_position == "post":
        yield Fault(
            f"sublayers={c.sublayers} has no place for norm_position=post, which norms the sum of "
            "one sub-layer",
            ("sublayers", "norm_position"),
        )
    if c.shares_norm and c.norm_position not in ("pre", "none"):
        yield Fault(
            f"sublayers={c.sublayers} shares the norm before the sub-layers, so norm_position must "
            f"be pre; it is {c.norm_position}",
            ("sublayers", "norm_position"),
        )


def _faults_of_streams(c: Residuals) -> Iterator[Fault]:
    if c.is_parallel:
        unfit, field = f"sublayers={c.sublayers}", "sublayers"
    elif not c.residual:
        unfit, field = "residual=false", "residual"
    elif c.norm_position not in ("pre", "sandwich", "output", "none"):
        unfit, field = f"norm_position={c.norm_position}", "norm_position"
    else:
        return
    yield Fault(
        f"hyper_connections={c.hyper_connections} adds to several streams, one sub-layer after "
        f"another, and norms none of them; {unfit} does not fit",
        ("hyper_connections", field),
    )


# Costs


def sublayers(c: Residuals) -> int:
    """Sub-layers of a layer, without attention over the source."""
    return 1 + (c.feed_forward != "none")


def cost(c: Residuals, place: Place) -> Cost:
    """The cost of the stream around all sub-layers of a layer, with their norms."""
    over_source = place.causal and c.has_both_stacks
    around = _cost_around(c, place) * (sublayers(c) + over_source)
    others = c.stream_scale + 2 * (c.embedding_skip and not c.has_both_stacks)
    others -= c.shares_norm * norms.parameters(c)
    # The streams are read, mixed and added to once for each sub-layer.
    streams = c.streams
    mixed = sublayers(c) * streams * (streams + 1) * c.d_model * place.tokens
    return around + Cost(others=others, products=mixed)


def _cost_around(c: Residuals, place: Place) -> Cost:
    """Around one sub-layer: its norms, the factor of what it adds, and the weights of streams."""
    others = norms.parameters_around(c)
    if c.residual:
        others += {"layerscale": c.d_model, "rezero": 1, "scalar": 1}.get(c.residual_scale, 0)
    streams = c.streams
    if not streams:
        return Cost(others=others)
    others += streams * (streams + 2) + 2 * c.has_dynamic_streams
    weights = c.has_dynamic_streams * c.d_model * (streams + 2)
    # Dynamic weights are made of each stream, before and after the sub-layer.
    return Cost(matrices=weights, others=others, products=2 * streams * weights * place.tokens)


def activation_bytes(c: Residuals, tensors: Tensors) -> int:
    """Bytes for a token around a sub-layer: the dropout mask, norms, the scale and streams."""
    mask = (c.dropout > 0) * (1 if tensors.on_gpu else BYTES) * c.d_model
    states = norms.NORM_POSITIONS[c.norm_position].norms + 3 * c.streams
    states += c.residual_scale in ("rezero", "scalar", "layerscale")
    return mask + BYTES * c.d_model * states
