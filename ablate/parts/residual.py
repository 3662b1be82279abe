"""The residual stream that sub-layers read and add to (sections 3.1 and 5.4): its fields, the rules
for them, and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ablate.errors import Fault
from ablate.fields import PER_LAYER, Facts, Part
from ablate.parts import norms
from ablate.parts.cost import BYTES, Cost, Tensors, Workload
from ablate.parts.feed_forward import FeedForward
from ablate.parts.norms import NormFields
from ablate.parts.sizes import ONE_STACK, SECOND_LAYER
from ablate.parts.variant import Variant


@dataclass(frozen=True)
class LayerSkip:
    """Rule by which the states of earlier layers are added to the stream again.

    sources: indices of the states that are added after a layer, as a function of (index of the
        layer, depth). State 0 is the embeddings, state i + 1 the output of layer i.
    initial: initial value of their trained weights.
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
# With a single layer, only `unet` has nothing to skip.
SKIPPED = Part(
    SECOND_LAYER.name,
    parents=(ONE_STACK,),
    condition=lambda c: c.layer_skips != "unet" or SECOND_LAYER.missing(c) is None,
    condition_fields=SECOND_LAYER.condition_fields,
    absent=SECOND_LAYER.absent,
)
ONE_STACK_FACTS = Facts(part=ONE_STACK)
STACK_LAYER_FACTS = Facts(part=ONE_STACK, per_layer=True)


class Residuals(NormFields, FeedForward):
    """Fields of the residual stream."""

    sublayers: Annotated[
        Literal["sequential", "parallel", "parallel_shared_norm"],
        STACK_LAYER_FACTS,
    ] = "sequential"
    """order of the sub-layers: the feed-forward network after attention (`sequential`), or both
    read the same stream, each with its norm (`parallel`; GPT-NeoX) or with one norm
    (`parallel_shared_norm`; GPT-J)"""
    residual: Annotated[bool, PER_LAYER] = True
    """residual connections around sub-layers (3.1)"""
    residual_scale: Annotated[
        Literal["none", "depth", "scalar", "rezero", "layerscale"],
        Facts(part=RESIDUAL, per_layer=True),
    ] = "none"
    """factor of a sub-layer's output: 1 / sqrt(2 N) (`depth`), a trained number that begins at 1
    (`scalar`) or at 0 (`rezero`; Bachlechner et al., 2021), or a trained vector that begins at 0.1
    (`layerscale`; Touvron et al., 2021)"""
    stream_scale: Annotated[bool, STACK_LAYER_FACTS] = False
    """multiply the residual stream before the layer by a trained number that begins at 1
    (nanochat)"""
    embedding_skip: Annotated[bool, STACK_LAYER_FACTS] = False
    """add the embeddings x0 again before the layer: x becomes a x + b x0, with trained numbers a
    and b that begin at 1 and 0 (modded-nanogpt, nanochat)"""
    layer_skips: Annotated[Literal["none", "unet", "dense", "middle"], Facts(part=SKIPPED)] = "none"
    """earlier states that are added to the stream with trained weights: layers of the first half in
    reverse order after layers of the second half (`unet`, with weights that begin at 1), all
    earlier layers after each layer (`dense`; DenseFormer; Pagliardini et al., 2024), or the middle
    layer after the last one (`middle`; nanochat's backout)"""
    hyper_connections: Annotated[Literal["none", "static", "dynamic"], ONE_STACK_FACTS] = "none"
    """several residual streams instead of one: each sub-layer reads, mixes and adds to them with
    trained weights (`static`), or with weights that also depend on the streams (`dynamic`; Zhu et
    al., 2024)"""
    expansion_rate: Annotated[int, Facts(part=STREAMS)] = Field(4, ge=1, le=64)
    """number of residual streams of hyper-connections"""

    @property
    def streams(self) -> int:
        """Number of residual streams of hyper-connections; 0 without them."""
        if self.hyper_connections == "none" or self.has_both_stacks:
            return 0
        return self.expansion_rate

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
        """Whether both sub-layers read the output of the same norm."""
        return self.is_parallel and self.sublayers == "parallel_shared_norm"


# Rules


def faults(c: Residuals) -> Iterator[Fault]:
    """Yield the faults of the residual stream of a layer."""
    if c.embedding_skip and c.stream_scale and not c.has_both_stacks:
        yield Fault(
            "stream_scale=true has no effect beside embedding_skip=true, which already multiplies "
            "the stream by a trained number",
            ("stream_scale", "embedding_skip"),
        )
    if c.is_parallel:
        yield from _parallel_faults(c)
    if c.streams:
        yield from _stream_faults(c)


def _parallel_faults(c: Residuals) -> Iterator[Fault]:
    if c.feed_forward == "none":
        yield Fault(
            f"sublayers={c.sublayers} needs a network, which feed_forward=none leaves out",
            ("sublayers", "feed_forward"),
        )
    if not c.residual:
        yield Fault(
            f"sublayers={c.sublayers} adds to the residual stream, which residual=false replaces",
            ("sublayers", "residual"),
        )
    if c.norm_position == "post":
        yield Fault(
            f"sublayers={c.sublayers} adds the outputs of both sub-layers at once, and "
            "norm_position=post normalizes the sum after each sub-layer",
            ("sublayers", "norm_position"),
        )
    if c.shares_norm and c.norm_position not in ("pre", "none"):
        yield Fault(
            f"sublayers={c.sublayers} shares the norm before the sub-layers, so norm_position must "
            f"be pre; it is {c.norm_position}",
            ("sublayers", "norm_position"),
        )


def _stream_faults(c: Residuals) -> Iterator[Fault]:
    if c.is_parallel:
        unfit, field = f"sublayers={c.sublayers}", "sublayers"
    elif not c.residual:
        unfit, field = "residual=false", "residual"
    elif c.norm_position not in ("pre", "sandwich", "output", "none"):
        unfit, field = f"norm_position={c.norm_position}", "norm_position"
    else:
        return
    yield Fault(
        f"hyper_connections={c.hyper_connections} adds each sub-layer's output to several streams, "
        f"which no norm follows; {unfit} does not fit",
        ("hyper_connections", field),
    )


# Costs


def sublayer_count(c: Residuals) -> int:
    """Number of sub-layers of a layer, without cross-attention."""
    return 1 if c.feed_forward == "none" else 2


def cost(c: Residuals, work: Workload) -> Cost:
    """Cost of the stream around all sub-layers of a layer, with their norms."""
    count = sublayer_count(c)
    if work.causal and c.has_both_stacks:
        count += 1  # cross-attention
    others = int(c.stream_scale)
    if c.embedding_skip and not c.has_both_stacks:
        others += 2
    if c.shares_norm:
        others -= norms.parameters(c)
    # Once for each sub-layer, the streams are read, mixed and added to.
    mixed = sublayer_count(c) * c.streams * (c.streams + 1) * c.d_model * work.tokens
    return _sublayer_cost(c, work) * count + Cost(other_parameters=others, multiplications=mixed)


def _sublayer_cost(c: Residuals, work: Workload) -> Cost:
    """Cost around one sub-layer: its norms, the factor of its output, the weights of streams."""
    others = norms.sublayer_parameters(c)
    if c.residual:
        others += {"layerscale": c.d_model, "rezero": 1, "scalar": 1}.get(c.residual_scale, 0)
    n = c.streams
    others += n * (n + 2)
    if not c.has_dynamic_streams:
        return Cost(other_parameters=others)
    weights = c.d_model * (n + 2)
    # The weights are computed from each stream, before and after the sub-layer.
    return Cost(weights, others + 2, multiplications=2 * n * weights * work.tokens)


def activation_bytes(c: Residuals, tensors: Tensors) -> int:
    """Bytes per token that the backward pass needs around a sub-layer: the dropout mask, and the
    inputs of norms, of the scale and of the mixing of streams.
    """
    mask_bytes = 0
    if c.dropout > 0:
        mask_bytes = 1 if tensors.on_gpu else BYTES
    states = norms.NORM_POSITIONS[c.norm_position].norms + 3 * c.streams
    if c.residual_scale in ("rezero", "scalar", "layerscale"):
        states += 1
    return c.d_model * (mask_bytes + BYTES * states)
