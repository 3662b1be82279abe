"""Importance of attention heads: the change in loss when a head is masked (Michel et al., 2019,
section 3.2).

Deviation: the paper reports the change in BLEU. Here it is the loss on the dev set, which needs no
decoding and resolves smaller differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ablate.attention.weights import AttentionLayer, Kind
from ablate.data.corpus import Split
from ablate.model import Transformer
from ablate.model.attention_parts import HeadFactors
from ablate.tasks import Task


@dataclass(frozen=True)
class HeadImportance:
    """The importance of a head.

    kind: the kind of its attention.
    layer, head: numbers, from 1.
    loss: loss with the head masked, in nats per target token.
    importance: `loss` minus the loss of the unmasked model; positive if the head is useful.
    """

    kind: Kind
    layer: int
    head: int
    loss: float
    importance: float


@dataclass(frozen=True)
class Importances:
    """The importance of several heads.

    loss: loss of the unmasked model, in nats per target token.
    records: number of records on which losses are measured.
    heads: the importance of each head.
    """

    loss: float
    records: int
    heads: tuple[HeadImportance, ...]


def measure_importances(
    task: Task,
    model: Transformer,
    split: Split,
    device: torch.device,
    layers: Sequence[AttentionLayer],
    on_pass: Callable[[], None] = lambda: None,
) -> Importances:
    """Measure the importance of each head of these layers. `on_pass` is called after each pass over
    the split.

    The first pass over the split measures the loss of the model. Each further pass measures the
    loss with a head masked: its output is multiplied by 0 before W^O, and the bias of W^O stays.
    """
    unmasked_loss = task.nats_per_token(model, split, device)
    on_pass()
    heads = []
    for attention in layers:
        for head in range(attention.module.h):
            factors = torch.ones(attention.module.h, device=device)
            factors[head] = 0.0
            factors = attention.module.mechanism.in_output_order(factors[None])[0]
            parts = attention.module.on_heads
            attention.module.on_heads = (*parts, HeadFactors(factors))
            try:
                loss = task.nats_per_token(model, split, device)
            finally:
                attention.module.on_heads = parts
            importance = HeadImportance(
                attention.kind, attention.layer, head + 1, loss, loss - unmasked_loss
            )
            heads.append(importance)
            on_pass()
    return Importances(unmasked_loss, len(split), tuple(heads))


def count_passes(layers: Sequence[AttentionLayer]) -> int:
    """The number of passes of `measure_importances` over the split."""
    return 1 + sum(attention.module.h for attention in layers)
