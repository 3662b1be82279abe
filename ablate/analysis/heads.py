"""The attention layers of a model, by kind and depth."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ablate.errors import UsageError, listed
from ablate.model import Transformer
from ablate.model.attention import MultiHeadAttention
from ablate.model.encoder_decoder import EncoderDecoder

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TITLES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention, decoder over source",
}


@dataclass(frozen=True)
class AttentionLayer:
    """One attention sub-layer of a model; layers count from 1."""

    kind: Kind
    layer: int
    module: MultiHeadAttention

    def __str__(self) -> str:
        return f"{self.kind} layer {self.layer}"


def attention_layers(
    model: Transformer, kinds: Collection[Kind] = (), layers: Collection[int] = ()
) -> list[AttentionLayer]:
    """Return the attention layers of these kinds and depths, ordered by kind and depth; by default all of them.

    Raises:
        UsageError: the model has no attention, or none of these kinds and depths.
    """
    # A decoder-only model has no cross-attention, and an LSTM layer has no attention at all.
    stacks: dict[Kind, list[Any]] = {"decoder": [layer.mixer for layer in model.decoder]}  # type: ignore[union-attr]
    if isinstance(model, EncoderDecoder):
        stacks["encoder"] = [layer.mixer for layer in model.encoder]
        stacks["cross"] = [layer.cross_attention for layer in model.decoder]
    available = [
        AttentionLayer(kind, number, module)
        for kind in KINDS
        for number, module in enumerate(stacks.get(kind, []), 1)
        if isinstance(module, MultiHeadAttention)
    ]
    if not available:
        raise UsageError("the run has no attention: it is a decoder-only model with mixer=lstm")
    chosen = [a for a in available if (not kinds or a.kind in kinds) and (not layers or a.layer in layers)]
    if not chosen:
        asked = [f"--kind {kind}" for kind in kinds] + [f"--layer {layer}" for layer in layers]
        raise UsageError(f"{' '.join(asked)}: the run has no such attention; it has {_summary(available)}")
    return chosen


def _summary(layers: list[AttentionLayer]) -> str:
    """Return `encoder layers 1 to 6 and cross layers 1 to 6`."""
    depths = {attention.kind: attention.layer for attention in layers}
    return listed(f"{kind} layers 1 to {depth}" for kind, depth in depths.items()).replace(" or ", " and ")
