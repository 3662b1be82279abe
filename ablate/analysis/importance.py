"""The importance of a head: the change in loss when it is masked (Michel et al., 2019, section 3.2).

Deviation: they tell the change in BLEU; here it is the loss on the dev side, which needs no decoding and tells
smaller differences apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ablate.analysis.heads import Attention, Kind
from ablate.data.corpus import Split
from ablate.metrics.perplexity import nats_per_token
from ablate.model import Transformer


@dataclass(frozen=True)
class MaskedHead:
    """One head, masked.

    kind, layer, head: which, counted from 1.
    loss: in nats a target token, without the head.
    importance: that minus the loss of the whole model: positive where the head is worth something.
    """

    kind: Kind
    layer: int
    head: int
    loss: float
    importance: float


@dataclass(frozen=True)
class Importances:
    """The loss of the whole model on some pairs, in nats a target token, and what each head is worth there."""

    loss: float
    pairs: int
    heads: tuple[MaskedHead, ...]


def importances(
    model: Transformer,
    split: Split,
    device: torch.device,
    among: Sequence[Attention],
    after_pass: Callable[[], None] = lambda: None,
) -> Importances:
    """The importance of every head of these attentions: a pass over the split for each, and one for the whole model.

    A head is masked by multiplying its output by 0 before W^O; biases of W^O stay.
    """
    whole = nats_per_token(model, split, device)
    after_pass()
    found = []
    for attention in among:
        for head in range(attention.module.h):
            loss = _without(model, split, device, attention, head)
            found.append(MaskedHead(attention.kind, attention.layer, head + 1, loss, loss - whole))
            after_pass()
    return Importances(whole, len(split), tuple(found))


def passes(among: Sequence[Attention]) -> int:
    """How many passes over the split `importances` makes."""
    return 1 + sum(attention.module.h for attention in among)


def _without(model: Transformer, split: Split, device: torch.device, attention: Attention, head: int) -> float:
    gate = torch.ones(attention.module.h, device=device)
    gate[head] = 0.0
    attention.module.gate = gate
    try:
        return nats_per_token(model, split, device)
    finally:
        attention.module.gate = None
