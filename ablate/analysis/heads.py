"""Where a model's heads are."""

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
class Attention:
    """One attention of a model: its kind, its layer counted from 1, and the module."""

    kind: Kind
    layer: int
    module: MultiHeadAttention

    def __str__(self) -> str:
        return f"{self.kind} layer {self.layer}"


def attentions(model: Transformer, kinds: Collection[Kind] = (), layers: Collection[int] = ()) -> list[Attention]:
    """The model's attentions by kind and layer: those of some kinds and layers, or all.

    Raises:
        UsageError: there are none.
    """
    stacks: dict[Kind, list[Any]] = {"decoder": [layer.mixer for layer in model.decoder]}  # type: ignore[union-attr]
    if isinstance(model, EncoderDecoder):
        stacks["encoder"] = [layer.mixer for layer in model.encoder]
        stacks["cross"] = [layer.cross_attention for layer in model.decoder]
    found = [
        Attention(kind, number, module)
        for kind in KINDS
        for number, module in enumerate(stacks.get(kind, []), 1)
        if isinstance(module, MultiHeadAttention)
    ]
    if not found:
        raise UsageError("the run has no attention: mixer=lstm in a decoder-only model replaces all there is")
    chosen = [a for a in found if (not kinds or a.kind in kinds) and (not layers or a.layer in layers)]
    if not chosen:
        asked = [f"--kind {kind}" for kind in kinds] + [f"--layer {layer}" for layer in layers]
        raise UsageError(f"{' '.join(asked)}: the run has no such attention; it has {_summary(found)}")
    return chosen


def _summary(found: list[Attention]) -> str:
    """`encoder and cross layers 1 to 6`, in a row for a message."""
    depths = {attention.kind: attention.layer for attention in found}
    return listed(f"{kind} layers 1 to {depth}" for kind, depth in depths.items()).replace(" or ", " and ")
