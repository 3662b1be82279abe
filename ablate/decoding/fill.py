"""Fill masked tokens of a text with a masked language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ablate.data.tokenizer import BOS, MASK, PAD, Tokenizer
from ablate.model import Transformer

MASK_TEXT = "<mask>"  # stands for a masked token in a text
NEVER = (PAD, MASK, BOS)  # tokens that no text has


@dataclass(frozen=True)
class Prediction:
    """A candidate for a masked token, and its probability."""

    id: int
    piece: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text whose masks are filled.

    text: the text with the most likely token for each mask. Masks are filled independently.
    masks: the most likely candidates for each mask, the best first.
    """

    text: str
    masks: tuple[tuple[Prediction, ...], ...]


def encode_masked(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of a text. Each `<mask>` becomes one masked token."""
    ids, *segments = tokenizer.encode(text.split(MASK_TEXT))
    for segment in segments:
        ids = [*ids, MASK, *segment]
    return ids


def masked_pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The piece of each id, `<mask>` for a masked token."""
    pieces = tokenizer.pieces(list(ids))
    for position, id in enumerate(ids):
        if id == MASK:
            pieces[position] = MASK_TEXT
    return pieces


@torch.no_grad()
def fill_masks(
    model: Transformer, tokenizer: Tokenizer, ids: Sequence[int], top: int
) -> FilledText:
    """Fill the masks of a text, of which `encode_masked` gives the ids, with `top` candidates for
    each mask.
    """
    model.eval()
    tokens = torch.tensor([ids], dtype=torch.int64, device=model.output_matrix.device)
    # Only at masked positions, because logits are the largest tensor.
    logits = model.logits(model.read(tokens)[0, tokens[0] == MASK]).double().cpu()  # (masks, V)
    logits[:, list(NEVER)] = -torch.inf
    values, indices = logits.softmax(-1).topk(min(top, logits.shape[1] - len(NEVER)))
    masks = []
    for row, probabilities in zip(indices.tolist(), values.tolist(), strict=True):
        masks.append(tuple(map(Prediction, row, tokenizer.pieces(row), probabilities)))
    tokens[tokens == MASK] = indices[:, 0].to(tokens.device)
    (text,) = tokenizer.decode(tokens.tolist())
    return FilledText(text, tuple(masks))
