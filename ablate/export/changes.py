"""How weights of this project become those of others: changes and joins of `TensorPart`."""

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
    """What other models have in every case, for a model without it."""
    c, embedding = model.config, model.weights["embedding.weight"]
    return {
        "output.weight": embedding,
        "output_bias": embedding.new_zeros(len(embedding)),
        "token_types.weight": embedding.new_zeros(1, c.d_model),
        "positions.weight": position_table(c).to(embedding),
    }


def position_table(c: ModelConfig) -> Tensor:
    """A vector for each position (max_positions, d_model); zeros where embeddings get none."""
    if c.positional_encoding == "sinusoidal":
        return sinusoids(c.max_positions, c.d_model)
    return torch.zeros(c.max_positions, c.d_model)


def is_tied(c: ModelConfig) -> bool:
    """Whether embeddings and the matrix of the logits are one, in a model that does not scale its
    embeddings: a factor goes into the embeddings alone.
    """
    return c.tied_embeddings == "all" and c.embedding_scale == 1


def is_untied(c: ModelConfig) -> bool:
    """Whether such a model has two matrices."""
    return not is_tied(c)


def has_output_matrix(c: ModelConfig) -> bool:
    """Whether a model that scales its embeddings has two matrices."""
    return c.tied_embeddings == "none"


def with_factor(embeddings: Tensor, c: ModelConfig) -> Tensor:
    """Embeddings with their factor, for models that have none."""
    return embeddings if c.embedding_scale == 1 else embeddings * math.sqrt(c.d_model)


def halves(heads: Tensor, c: ModelConfig) -> Tensor:
    """The rows of queries or keys, with the first entries of all rotated pairs before the second
    ones. Other models rotate entry i with entry i + d/2, and the RoPE paper neighbors.
    """
    return _by_pair(heads, c, (0, 1))


def turned_halves(heads: Tensor, c: ModelConfig) -> Tensor:
    """`halves` for a model that rotates the other way round."""
    return _by_pair(heads, c, (1, 0))


def _by_pair(heads: Tensor, c: ModelConfig, turns: tuple[int, int]) -> Tensor:
    if c.positional_encoding != "rope":
        return heads
    rotated = rotated_entries(c)
    order = [*range(turns[0], rotated, 2), *range(turns[1], rotated, 2), *range(rotated, c.d_k)]
    by_head: Tensor = heads.unflatten(0, (-1, c.d_k))
    return by_head[:, order].flatten(0, 1)


def repeated_heads(heads: Tensor, c: ModelConfig) -> Tensor:
    """Heads of keys or values, each repeated for all heads of queries that it serves."""
    by_head: Tensor = heads.unflatten(0, (c.kv_heads, -1))
    return by_head.repeat_interleave(c.n_heads // c.kv_heads, 0).flatten(0, 1)


# Queries, keys and values in one tensor, with a head of keys and of values for each of queries.
QUERIES_KEYS_VALUES = (
    *("mixer.W_Q.*", halves),
    *("mixer.W_K.*", halves, repeated_heads),
    *("mixer.W_V.*", repeated_heads),
)


def less_one(gains: Tensor, c: ModelConfig) -> Tensor:
    """Gains, stored as differences from 1."""
    return gains - 1


def rows_halved(tensor: Tensor, c: ModelConfig) -> Tensor:
    """Vectors of d_model entries along the first axis, the even ones before the odd ones."""
    return torch.cat([tensor[0::2], tensor[1::2]])


def columns_halved(tensor: Tensor, c: ModelConfig) -> Tensor:
    """`rows_halved` of the input of a projection; its bias stays."""
    return tensor if tensor.dim() == 1 else rows_halved(tensor.T, c).T


def by_input(tensors: Sequence[Tensor], c: ModelConfig) -> Tensor:
    """A projection stored as (d_in, d_out)."""
    return torch.cat(list(tensors)).T if tensors[0].dim() == 2 else torch.cat(list(tensors))


def by_head(tensors: Sequence[Tensor], c: ModelConfig) -> Tensor:
    """Q, K and V of a head, then those of the next one."""
    heads = [tensor.unflatten(0, (c.n_heads, -1)) for tensor in tensors]
    return torch.cat(heads, dim=1).flatten(0, 1)
