"""Masked tokens of a text, filled in by a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ablate.data.tokenizer import BOS, MASK, PAD, Tokenizer
from ablate.model import Transformer

MASK_TEXT = "<mask>"  # in a text
NEVER = (PAD, MASK, BOS)


@dataclass(frozen=True)
class Prediction:
    """A token that may be behind a mask, with its probability."""

    id: int
    piece: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text whose masks are filled.

    text: with the most likely token in place of each mask; each is chosen by itself.
    masks: the likeliest candidates of each mask, best first.
    """

    text: str
    masks: tuple[tuple[Prediction, ...], ...]


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text in which `<mask>` is one masked token."""
    ids, *others = tokenizer.encode(text.split(MASK_TEXT))
    for part in others:
        ids = [*ids, MASK, *part]
    return ids


def masked_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The piece of each id, `<mask>` for a masked token."""
    pieces = tokenizer.pieces(list(ids))
    for place, id in enumerate(ids):
        if id == MASK:
            pieces[place] = MASK_TEXT
    return pieces


@torch.no_grad()
def fill_masks(
    model: Transformer, tokenizer: Tokenizer, ids: Sequence[int], top: int
) -> FilledText:
    """Fill the masks of a text.

    Args:
        model: trained on masked tokens.
        tokenizer: of the model.
        ids: token ids with masks, from `encode_masked`.
        top: number of candidates for each mask.
    """
    model.eval()
    tokens = torch.tensor([ids], dtype=torch.int64, device=model.output_matrix.device)
    # Only the masked positions: logits are the largest tensor.
    logits = model.logits(model.read(tokens)[0, tokens[0] == MASK]).double().cpu()  # (masks, V)
    logits[:, list(NEVER)] = -torch.inf
    values, indices = logits.softmax(-1).topk(min(top, logits.shape[1] - len(NEVER)))
    masks = []
    for row, probabilities in zip(indices.tolist(), values.tolist(), strict=True):
        masks.append(tuple(map(Prediction, row, tokenizer.pieces(row), probabilities)))
    tokens[tokens == MASK] = indices[:, 0].to(tokens.device)
    (text,) = tokenizer.decode(tokens.tolist())
    return FilledText(text, tuple(masks))
