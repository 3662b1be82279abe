"""Changes and joins of tensors, which convert weights to the layout of another library."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ablate.config import ModelConfig
from ablate.export.target import TrainedModel
from ablate.model.positions import sinusoids
from ablate.parts.positions import rotated_entries


def absent_weights(model: TrainedModel) -> dict[str, Tensor]:
    """Weights that models of other libraries always have, with the values that make them equal to a
    model without these weights.
    """
    c = model.config
    embedding = model.weights["embedding.weight"]
    return {
        "output.weight": embedding,
        "output_bias": embedding.new_zeros(len(embedding)),
        "token_types.weight": embedding.new_zeros(1, c.d_model),
        "positions.weight": position_table(c).to(embedding),
    }


def position_table(c: ModelConfig) -> Tensor:
    """A vector for each position, (max_positions, d_model); zeros unless they are sinusoidal."""
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    return torch.zeros(c.max_positions, c.d_model)


def is_tied(c: ModelConfig) -> bool:
    """Whether the embeddings and the output matrix are one tensor in a library that does not scale
    embeddings: only if ablate does not scale them either. A scale is multiplied into the
    embeddings, and not into the output matrix, so that the two differ.
    """
    return c.tied_embeddings == "all" and c.embedding_scale == 1


def is_untied(c: ModelConfig) -> bool:
    """The opposite of `is_tied`."""
    return not is_tied(c)


def has_output_matrix(c: ModelConfig) -> bool:
    """Whether the output matrix is a separate tensor in a library that scales embeddings."""
    return c.tied_embeddings == "none"


def scale_embeddings(embeddings: Tensor, c: ModelConfig) -> Tensor:
    """Multiply the scale into the embeddings, for libraries that do not scale them."""
    return embeddings if c.embedding_scale == 1 else embeddings * math.sqrt(c.d_model)


def split_pairs(heads: Tensor, c: ModelConfig) -> Tensor:
    """Reorder the rows of W^Q or W^K in each head: the first entries of all rotated pairs, then the
    second entries. Other libraries rotate entry i with entry i + d/2; the RoPE paper rotates
    neighbors.
    """
    return _reorder_pairs(heads, c, (0, 1))


def split_pairs_reversed(heads: Tensor, c: ModelConfig) -> Tensor:
    """`split_pairs` for a library that rotates in the other direction."""
    return _reorder_pairs(heads, c, (1, 0))


def _reorder_pairs(heads: Tensor, c: ModelConfig, starts: tuple[int, int]) -> Tensor:
    if c.positional_encoding != "rope":
        return heads
    rotated = rotated_entries(c)
    first = range(starts[0], rotated, 2)
    second = range(starts[1], rotated, 2)
    order = [*first, *second, *range(rotated, c.d_k)]
    grouped: Tensor = heads.unflatten(0, (-1, c.d_k))
    return grouped[:, order].flatten(0, 1)


def repeat_heads(heads: Tensor, c: ModelConfig) -> Tensor:
    """Repeat each head of keys or values for all heads of queries that use it."""
    grouped: Tensor = heads.unflatten(0, (c.kv_heads, -1))
    return grouped.repeat_interleave(c.n_heads // c.kv_heads, 0).flatten(0, 1)


# Queries, keys and values in one tensor, in which each head of queries has its own keys and values.
QUERIES_KEYS_VALUES = (
    *("mixer.W_Q.*", split_pairs),
    *("mixer.W_K.*", split_pairs, repeat_heads),
    *("mixer.W_V.*", repeat_heads),
)


def subtract_one(gains: Tensor, c: ModelConfig) -> Tensor:
    """The gains of a norm as differences from 1."""
    return gains - 1


def split_even_odd(tensor: Tensor, c: ModelConfig) -> Tensor:
    """Reorder the first axis, of size d_model: even entries, then odd entries."""
    return torch.cat([tensor[0::2], tensor[1::2]])


def split_even_odd_columns(tensor: Tensor, c: ModelConfig) -> Tensor:
    """Reorder the columns of a projection as `split_even_odd`; a bias stays as it is."""
    return tensor if tensor.dim() == 1 else split_even_odd(tensor.T, c).T


def transpose(tensors: Sequence[Tensor], c: ModelConfig) -> Tensor:
    """Join tensors, and transpose a matrix to (d_in, d_out)."""
    return torch.cat(list(tensors)).T if tensors[0].dim() == 2 else torch.cat(list(tensors))


def interleave_heads(tensors: Sequence[Tensor], c: ModelConfig) -> Tensor:
    """Join Q, K and V head by head: Q, K and V of the first head, then of the next head."""
    heads = [tensor.unflatten(0, (c.n_heads, -1)) for tensor in tensors]
    return torch.cat(heads, dim=1).flatten(0, 1)
