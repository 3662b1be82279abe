"""Positional encodings (section 3.5; row E of Table 3).

A positional encoding belongs to a stack of layers. It may act on embeddings, on queries and keys,
on attention scores and on heads. To add an encoding, write a class here and name it in
ablate/parts/positions.py.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.errors import StudyError
from ablate.model.layers import ParameterKinds
from ablate.parts.positions import T5_BUCKETS, rotated_entries

T5_DISTANCE = 128  # in tokens; larger distances share the last bucket


class PositionalEncoding(nn.Module):
    """Base of all positional encodings. Its methods have no effect, so it is also `none`.

    Positions are counted from 0 in each sentence: (T,) if they are the same in all sentences, else
    (B, T). In beam search, the newest tokens of all hypotheses of a sentence have one position.
    """

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        """Make the encoding of a stack.

        Args:
            config: the fields of the model.
            causal: whether tokens attend only to earlier tokens, as in a decoder.
            init: draws the initial weights.
        """
        super().__init__()

    @property
    def acts_on_scores(self) -> bool:
        """Whether the class overrides `bias` or `values`, so that attention must form scores."""
        cls = type(self)
        base = PositionalEncoding
        return cls.bias is not base.bias or cls.values is not base.values

    def layer_encoding(self, layer: int) -> PositionalEncoding:
        """The encoding that acts in a layer, by its index in the stack."""
        return self

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add positions to embedded tokens: (B, T, d_model) -> (B, T, d_model)."""
        return x

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Add positions to queries or keys: (B, h, T, d_k) -> (B, h, T, d_k)."""
        return heads

    def bias(self, layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Compute the bias of the attention scores.

        Args:
            layer: index of the layer in the stack.
            Q: scaled queries (B, h, T, d_k).
            queries: positions of the queries, (T,) or (B, T).
            keys: positions of the keys, (S,) or (B, S).

        Returns:
            A tensor that broadcasts to (B, h, T, S), or None.
        """
        return None

    def values(self, layer: int, weights: Tensor, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Compute what positions add to the weighted sums of values, the output of the heads, from
        attention weights (B, h, T, S). The other arguments are as in `bias`.

        Returns:
            (B, h, T, d_v), or None.
        """
        return None


class SinusoidalPositions(PositionalEncoding):
    """Sines and cosines of wavelengths from 2 pi to 10000 * 2 pi, interleaved (3.5)."""

    table: Tensor

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        table = sinusoids(config.max_positions, config.d_model)
        self.register_buffer("table", table, persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return x + self.table[positions]


class LearnedPositions(PositionalEncoding):
    """A learned vector for each position (row E), with a table for each stack."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.weight = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        nn.init.normal_(self.weight, std=config.d_model**-0.5, generator=init)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return x + self.weight[positions]


class RotaryPositions(PositionalEncoding):
    """RoPE: rotates entries 2i and 2i+1 of queries and keys by the angle pos / base^(2i/d) (Su et
    al., 2021, eq. 34), where d is the number of rotated entries, from the first of a head on.
    """

    rotations: Tensor

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.rotated = rotated_entries(config)
        frequencies, scale = rope_frequencies(config)
        # Cosine and sine, as the two components of a complex number: (positions, rotated / 2, 2).
        rotations = waves(config.max_positions, frequencies, scale).flip(-1)
        self.register_buffer("rotations", rotations, persistent=False)

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """(B, h, T, d_k) -> (B, h, T, d_k)."""
        dtype = torch.promote_types(heads.dtype, self.rotations.dtype)
        # A pair of entries is a complex number, which one product rotates, in a quarter of the time
        # of real arithmetic (benchmarks/LOG.md, 2026-11-27). `view_as_complex` needs even offsets,
        # so the entries are copied.
        copy = heads[..., : self.rotated].to(
            dtype, copy=True, memory_format=torch.contiguous_format
        )
        pairs = torch.view_as_complex(copy.unflatten(-1, (-1, 2)))
        # (1, T, rotated / 2) or (B, 1, T, rotated / 2)
        factors = torch.view_as_complex(self.rotations[positions].to(dtype)).unsqueeze(-3)
        rotated = torch.view_as_real(pairs * factors).flatten(-2).to(heads.dtype)
        others = heads[..., self.rotated :]
        return torch.cat([rotated, others], dim=-1) if others.shape[-1] else rotated


class RelativePositions(PositionalEncoding):
    """Relative positions: learned vectors for distances, added to keys and to values (Shaw et al.,
    2018, eq. 3 and 4).

    Distances are clipped. The heads of a layer share its vectors. A causal stack has no vectors for
    distances to later tokens.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"keys": "embedding", "of_values": "embedding"}

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.behind = config.relative_clip
        self.ahead = 0 if causal else config.relative_clip
        encoder_depth, decoder_depth = config.depths
        layers = decoder_depth if causal else encoder_depth
        distances = self.behind + 1 + self.ahead
        self.keys = nn.Parameter(torch.empty(layers, distances, config.d_k))
        self.of_values = nn.Parameter(torch.empty(layers, distances, config.d_v))
        for table in (self.keys, self.of_values):
            nn.init.normal_(table, std=table.shape[-1] ** -0.5, generator=init)

    def bias(self, layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Q_i . a^K_(j-i) for every query i and key j."""
        # (T, S, d_k) or (B, T, S, d_k)
        vectors = self.keys[layer][self._indices(queries, keys)]
        equation = "bhtd,tsd->bhts" if vectors.dim() == 3 else "bhtd,btsd->bhts"
        return torch.einsum(equation, Q, vectors)

    def values(self, layer: int, weights: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """The sum over keys j of weight_ij a^V_(j-i)."""
        # (T, S, d_v) or (B, T, S, d_v)
        vectors = self.of_values[layer][self._indices(queries, keys)]
        equation = "bhts,tsd->bhtd" if vectors.dim() == 3 else "bhts,btsd->bhtd"
        return torch.einsum(equation, weights, vectors)

    def _indices(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Index of the vector for each pair of a query and a key: (T, S) or (B, T, S)."""
        return _distances(queries, keys).clamp(-self.behind, self.ahead) + self.behind


class T5Positions(PositionalEncoding):
    """T5's relative biases: a learned scalar for each head and bucket of distances, shared by all
    layers (Raffel et al., 2020, 2.1).
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "embedding"}
    buckets: Tensor  # bucket of each distance from -T5_DISTANCE to T5_DISTANCE

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        table = buckets(torch.arange(-T5_DISTANCE, T5_DISTANCE + 1), causal)
        self.register_buffer("buckets", table, persistent=False)
        self.weight = nn.Parameter(torch.empty(T5_BUCKETS, config.n_heads))
        nn.init.normal_(self.weight, std=config.d_model**-0.5, generator=init)

    def bias(self, layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """(h, T, S) or (B, h, T, S)."""
        distances = _distances(queries, keys).clamp(-T5_DISTANCE, T5_DISTANCE)
        return self.weight[self.buckets[distances + T5_DISTANCE]].movedim(-1, -3)


class AlibiPositions(PositionalEncoding):
    """ALiBi: each head subtracts its slope times the distance (Press et al., 2022)."""

    slopes: Tensor  # (h,)

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.register_buffer("slopes", torch.tensor(slopes(config.n_heads)), persistent=False)

    def bias(self, layer: int, Q: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """-slope * |i - j|: (h, T, S) or (B, h, T, S)."""
        distances = _distances(queries, keys).abs().unsqueeze(-3)
        return -self.slopes[:, None, None] * distances


class AlternatingPositions(PositionalEncoding):
    """Several encodings, of which each layer has one. No encoding may act on embeddings."""

    def __init__(
        self,
        config: ModelConfig,
        causal: bool,
        init: torch.Generator,
        encodings: list[PositionalEncoding],
        indices: list[int],
    ) -> None:
        """Combine encodings; `indices` has the index of the encoding of each layer.

        Raises:
            StudyError: an encoding acts on embeddings, which belong to no layer.
        """
        super().__init__(config, causal, init)
        self.encodings = nn.ModuleList(encodings)
        self.indices = indices
        for encoding in encodings:
            if type(encoding).embed is not PositionalEncoding.embed:
                raise StudyError(
                    f"positional_encoding: {type(encoding).__name__} acts on embeddings (it has "
                    "`embed`), and so cannot alternate over the layers"
                )

    def layer_encoding(self, layer: int) -> PositionalEncoding:
        """The encoding of a layer, by its index in the stack."""
        return self.encodings[self.indices[layer]]  # type: ignore[return-value]


def _distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Position of each key minus position of each query: (T, S), or (B, T, S) of positions with a
    batch axis.
    """
    return keys[..., None, :] - queries[..., :, None]


def sinusoids(positions: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos: (positions, d_model)."""
    return waves(positions, _frequencies(d_model, 10_000.0)).flatten(1)


def waves(positions: int, frequencies: Tensor, scale: float = 1.0) -> Tensor:
    """Sine and cosine of position times frequency, times a scale: (positions, frequencies, 2)."""
    # In fp64: in fp32, large angles would lose the digits that determine their sines.
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    return (scale * torch.stack([angles.sin(), angles.cos()], dim=-1)).float()


def _frequencies(entries: int, base: float) -> Tensor:
    """base^(-2i/entries) for each pair i of entries, in fp64: (entries / 2,)."""
    even = torch.arange(0, entries, 2, dtype=torch.float64)
    return torch.exp(even * (-math.log(base) / entries))


def rope_frequencies(c: ModelConfig) -> tuple[Tensor, float]:
    """Frequencies of the rotated pairs of entries, and the factor of the rotated entries.

    YaRN (Peng et al., 2024, 3.2) divides frequencies by `rope_factor` if they turn less than once
    within the original length, keeps frequencies that turn 32 times or more, and interpolates
    between. The factor of the entries sharpens the softmax (3.4).
    """
    entries = rotated_entries(c)
    base = c.rope_base
    factor = c.rope_factor
    frequencies = _frequencies(entries, base)
    if c.rope_scaling == "none":
        return frequencies, 1.0
    if c.rope_scaling == "linear":
        return frequencies / factor, 1.0

    def pair(turns: float) -> float:
        """Index of the pair that makes this number of turns within the original length."""
        length = c.max_positions / factor
        return entries * math.log(length / (2 * math.pi * turns)) / (2 * math.log(base))

    first = max(math.floor(pair(32)), 0)
    last = min(math.ceil(pair(1)), entries - 1)  # a bound on entries, as in YaRN's code
    pairs = torch.arange(entries // 2, dtype=torch.float64)
    share = ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    interpolated = frequencies * (1 - share) + frequencies / factor * share
    return interpolated, 0.1 * math.log(factor) + 1


def buckets(distances: Tensor, causal: bool) -> Tensor:
    """The T5 bucket of each distance.

    Each small distance has a bucket. Larger distances share buckets on a logarithmic scale, and all
    from T5_DISTANCE on the last bucket.

    Args:
        distances: position of the key minus position of the query, any shape.
        causal: whether all buckets are for earlier keys; otherwise half of them are for later keys.
    """
    if causal:
        count = T5_BUCKETS
        offset = torch.zeros_like(distances)
        sizes = (-distances).clamp(min=0)
    else:
        count = T5_BUCKETS // 2
        offset = (distances > 0).long() * count
        sizes = distances.abs()
    exact = count // 2
    # `clamp` avoids the logarithm of 0; for small distances the result is not used.
    share = (sizes.clamp(min=exact).float() / exact).log() / math.log(T5_DISTANCE / exact)
    logarithmic = (exact + (share * (count - exact)).long()).clamp(max=count - 1)
    return offset + torch.where(sizes < exact, sizes, logarithmic)


def slopes(n_heads: int) -> list[float]:
    """ALiBi's slopes: 2^(-8/n), 2^(-16/n), ... where n is a power of two.

    For any other n: the slopes for the next lower power of two, then every other slope for the next
    higher power.
    """
    power = 2 ** (n_heads.bit_length() - 1)
    values = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    if power < n_heads:
        values += slopes(2 * power)[0::2][: n_heads - power]
    return values
