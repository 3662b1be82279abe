"""The encoder-decoder (section 3.1, figure 1), built once from a configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.model.attention import KeysValues, MultiHeadAttention
from ablate.model.layers import Dropout, Embedding, LayerNorm, Linear
from ablate.model.positions import POSITIONS


@dataclass
class Memory:
    """What the decoder asks: each layer's keys and values of the encoded source, and what of it is padding.

    mask: (B, 1, 1, S), true at tokens; None where no sentence is padded.
    """

    layers: list[KeysValues]
    mask: Tensor | None

    def select(self, rows: Tensor) -> Memory:
        """The memory of these sentences."""
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return Memory([layer.select(rows) for layer in self.layers], mask)


class AddNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the paper's post-norm residual (3.1, 5.4)."""

    def __init__(self, d_model: int, rate: float, random: torch.Generator) -> None:
        super().__init__()
        self.dropout = Dropout(rate, random)
        self.norm = LayerNorm(d_model)

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """(B, T, d_model), twice -> (B, T, d_model)."""
        return self.norm(x + self.dropout(sublayer))


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (3.3, eq. 2)."""

    def __init__(self, d_model: int, d_ff: int, init: torch.Generator) -> None:
        super().__init__()
        self.W_1 = Linear(d_model, d_ff, init)
        self.W_2 = Linear(d_ff, d_model, init)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return self.W_2(F.relu(self.W_1(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig, init: torch.Generator, random: torch.Generator) -> None:
        super().__init__()
        c = config
        self.attention = MultiHeadAttention(c.d_model, c.n_heads, c.d_k, c.d_v, init)
        self.after_attention = AddNorm(c.d_model, c.dropout, random)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, init)
        self.after_feed_forward = AddNorm(c.d_model, c.dropout, random)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model)."""
        x = self.after_attention(x, self.attention(x, self.attention.keys_values(x), mask))
        return self.after_feed_forward(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the source, then the feed-forward network."""

    def __init__(self, config: ModelConfig, init: torch.Generator, random: torch.Generator) -> None:
        super().__init__()
        c = config
        self.self_attention = MultiHeadAttention(c.d_model, c.n_heads, c.d_k, c.d_v, init)
        self.after_self_attention = AddNorm(c.d_model, c.dropout, random)
        self.cross_attention = MultiHeadAttention(c.d_model, c.n_heads, c.d_k, c.d_v, init)
        self.after_cross_attention = AddNorm(c.d_model, c.dropout, random)
        self.feed_forward = FeedForward(c.d_model, c.d_ff, init)
        self.after_feed_forward = AddNorm(c.d_model, c.dropout, random)

    def forward(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        """All positions at once, each seeing only itself and those before it; (B, T, d_model) -> same."""
        past = self.self_attention.keys_values(x)
        x = self.after_self_attention(x, self.self_attention(x, past, causal=True))
        return self._after_self_attention(x, memory, mask)

    def step(
        self, x: Tensor, past: KeysValues | None, memory: KeysValues, mask: Tensor | None
    ) -> tuple[Tensor, KeysValues]:
        """One position of K hypotheses for each of B sentences.

        The hypotheses are the rows of self-attention, each with a past of its own; to the source they
        are K queries side by side, so its keys and values are never repeated.

        Args:
            x: (B, K, d_model).
            past: keys and values of earlier positions, (B * K, h, t, d); None at the first.
            memory: keys and values of the source, (B, h, S, d).
            mask: (B, 1, 1, S).

        Returns:
            (B, K, d_model), and the past with this position.
        """
        B, K, d_model = x.shape
        rows = x.view(B * K, 1, d_model)
        now = self.self_attention.keys_values(rows)
        past = past.append(now) if past else now
        attended = self.self_attention(rows, past).view(B, K, d_model)
        x = self.after_self_attention(x, attended)
        return self._after_self_attention(x, memory, mask), past

    def _after_self_attention(self, x: Tensor, memory: KeysValues, mask: Tensor | None) -> Tensor:
        x = self.after_cross_attention(x, self.cross_attention(x, memory, mask))
        return self.after_feed_forward(x, self.feed_forward(x))


class Transformer(nn.Module):
    """The paper's model: N encoder layers, N decoder layers, one embedding for all three uses.

    Token 0 is padding. `forward` returns decoder states rather than logits, so that the loss can
    take the product with the vocabulary in pieces.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, init: torch.Generator, random: torch.Generator) -> None:
        """Build from a configuration.

        Args:
            config: the shape.
            vocab_size: V.
            init: draws the initial weights; on the CPU, so that every device starts from the same ones.
            random: draws dropout masks; on the device that the model will run on.
        """
        super().__init__()
        positions = POSITIONS[config.positional_encoding]
        self.config = config
        self.embedding = Embedding(vocab_size, config.d_model, init)
        self.source_positions = positions(config.d_model, config.max_positions, init)
        self.target_positions = positions(config.d_model, config.max_positions, init)
        self.embedding_dropout = Dropout(config.dropout, random)
        self.encoder = nn.ModuleList(EncoderLayer(config, init, random) for _ in range(config.n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config, init, random) for _ in range(config.n_layers))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Token ids (B, S) and (B, T), padded with 0 at the end -> decoder states (B, T, d_model)."""
        memory = self.encode(source)
        x = self._embedded(target, self.target_positions)
        for layer, keys_values in zip(self.decoder, memory.layers, strict=True):
            x = layer(x, keys_values, memory.mask)
        return x

    def encode(self, source: Tensor) -> Memory:
        """Token ids (B, S) -> what the decoder asks."""
        tokens = source != 0
        mask = None if bool(tokens.all()) else tokens[:, None, None, :]
        x = self._embedded(source, self.source_positions)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory([layer.cross_attention.keys_values(x) for layer in self.decoder], mask)  # type: ignore[union-attr,operator]

    def step(
        self, tokens: Tensor, position: int, past: list[KeysValues | None], memory: Memory
    ) -> tuple[Tensor, list[KeysValues | None]]:
        """One decoding step: tokens (B, K) at `position` -> decoder states (B, K, d_model), and the new past."""
        x = self.embedding(tokens)  # (B, K, d_model): the K hypotheses stand at one and the same position
        x = self.embedding_dropout(self.target_positions(x.flatten(0, 1)[:, None], position).view_as(x))
        now: list[KeysValues | None] = []
        for layer, before, keys_values in zip(self.decoder, past, memory.layers, strict=True):
            x, after = layer.step(x, before, keys_values, memory.mask)  # type: ignore[operator]
            now.append(after)
        return x, now

    def logits(self, states: Tensor) -> Tensor:
        """(..., d_model) -> (..., V), through the transposed embedding (3.4)."""
        return F.linear(states, self.embedding.weight)

    def _embedded(self, tokens: Tensor, positions: nn.Module) -> Tensor:
        x: Tensor = self.embedding_dropout(positions(self.embedding(tokens)))
        return x


def build(config: ModelConfig, vocab_size: int, seed: int, device: torch.device | str = "cpu") -> Transformer:
    """A Transformer whose initial weights and dropout follow from the seed alone."""
    init = torch.Generator().manual_seed(seed)
    random = torch.Generator(device).manual_seed(seed)
    return Transformer(config, vocab_size, init, random).to(device)
