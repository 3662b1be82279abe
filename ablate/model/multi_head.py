"""Multi-head attention (section 3.2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.device import on_gpu
from ablate.kernels.linear import linears
from ablate.model.attention import AttentionMechanism
from ablate.model.attention_context import AttentionContext
from ablate.model.attention_parts import (
    AddConvolution,
    HeadPart,
    OutputGate,
    TokenPart,
    pass_through,
    query_norm,
    repeat_heads,
)
from ablate.model.kv_cache import BatchState, GrowingKeyValues, KeyValues
from ablate.model.layers import Dropout, Linear, ParameterKinds, optional, zeros
from ablate.model.short_convolution import ShortConvolution
from ablate.model.token_mixer import TokenMixer
from ablate.parts.attention import CONVOLUTION_WIDTH, convolved_width, gate_width
from ablate.parts.initialization import score_scale


@dataclass(frozen=True)
class AttentionState(BatchState):
    """State of self-attention after earlier tokens.

    Attributes:
        memory: keys and values of these tokens, or their latent vectors; None before the first
            token.
        input_tail: last inputs of a convolution of x (B, width - 1, channels); None without it.
        projection_tail: last inputs of a convolution of queries, keys and values; None without it.
    """

    memory: Any = None
    input_tail: Tensor | None = None
    projection_tail: Tensor | None = None


class MultiHeadAttention(TokenMixer):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (3.2.2).

    As in the paper, projections have no biases by default. Head sizes need not be d_model / h. With
    g < h heads of keys and values, consecutive query heads share a head of keys and values (Ainslie
    et al., 2023).

    Attributes:
        on_input: function that changes x.
        on_projections: function that changes queries, keys and values.
        value_parts: modules that change the values, in order of application.
        on_heads: functions that change the heads, in order of application.
        on_weights: callback for the attention weights (B, h, T, S), for analysis.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"sinks": "gain"}

    def __init__(
        self,
        config: ModelConfig,
        n_heads: int,
        mechanism: AttentionMechanism,
        init: torch.Generator,
        random: torch.Generator,
    ) -> None:
        super().__init__()
        c = config
        self.h = n_heads
        self.g = c.key_heads(n_heads)
        self.scale = score_scale(c)
        bias = c.attention_bias in (True, "inputs")
        self._make_projections(c, init, bias)
        has_output_bias = c.attention_bias in (True, "output")
        self.W_O = Linear(self.h * c.d_v, c.d_model, init, has_output_bias)
        width = gate_width(c, n_heads)
        self.W_G = optional(width, Linear, c.d_model, width, init, bias)
        self.norm_Q = query_norm(c, self.h)
        self.norm_K = query_norm(c, self.g)
        self.value_parts = nn.ModuleList()
        self.score_cap = c.score_cap
        self.sinks = optional(c.attention_sinks and mechanism.forms_scores, zeros, n_heads)
        self.mechanism = mechanism
        self.supports_query_masks = mechanism.supports_query_masks
        self.dropout = Dropout(c.attention_dropout, random)
        # Functions and plain objects, not modules: the modules in them are attributes already.
        self.on_input: TokenPart = pass_through
        self.on_projections: TokenPart = pass_through
        self.on_heads: tuple[HeadPart, ...] = ()
        if self.W_G is not None:
            self.on_heads = (OutputGate(self.W_G),)
        self.on_weights: Callable[[Tensor], None] | None = None

    def _make_projections(self, c: ModelConfig, init: torch.Generator, bias: bool) -> None:
        """Make the projections to queries, keys and values."""
        self.W_Q = Linear(c.d_model, self.h * c.d_k, init, bias)
        self.W_K = Linear(c.d_model, self.g * c.d_k, init, bias)
        self.W_V = Linear(c.d_model, self.g * c.d_v, init, bias)

    @property
    def value_projection(self) -> Linear:
        """The projection from which the values come."""
        return self.W_V

    def add_convolution(self, config: ModelConfig, init: torch.Generator) -> None:
        """Convolve the input, or queries, keys and values, by `attention_convolution`."""
        self.convolution = ShortConvolution(convolved_width(config), CONVOLUTION_WIDTH, init)
        if config.attention_convolution == "input":
            self.on_input = AddConvolution(self.convolution)
        else:
            self.on_projections = AddConvolution(self.convolution)
        self.supports_query_masks = False  # the last inputs differ between hypotheses

    def forward(
        self, x: Tensor, past: AttentionState | None, context: AttentionContext
    ) -> tuple[Tensor, AttentionState]:
        """Self-attention: every position of x attends to the past and to x.

        Args:
            x: (B, T, d_model).
            past: the state after earlier positions; None if there are none.
            context: masks and positions.

        Returns:
            (B, T, d_model), and the state after x.
        """
        past = past or AttentionState()
        (x,), input_tail = self.on_input([x], past.input_tail, context)
        projected, projection_tail = self.on_projections(
            self.project(x), past.projection_tail, context
        )
        Q, K, V = projected  # (B, T, heads * d)
        for part in self.value_parts:
            V = part(V, x, context.earlier)
        new = self._key_values(K, V, context)
        memory = new if past.memory is None else past.memory.append(new)
        context = self._call_context(context, x, new.V)
        heads = self._attend(self._queries(Q, context), memory, context)
        return self._output(heads, context), AttentionState(memory, input_tail, projection_tail)

    def project(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values of x (B, T, d_model), each (B, T, heads * d)."""
        return _projected(x, self.W_Q, self.W_K, self.W_V)

    def key_values(self, x: Tensor, context: AttentionContext) -> KeyValues:
        """Keys and values of x (B, S, d_model) at `context.query_positions`."""
        K, V = _projected(x, self.W_K, self.W_V)
        return self._key_values(K, V, context)

    def cross_attend(
        self, x: Tensor, memory: KeyValues | GrowingKeyValues, context: AttentionContext
    ) -> Tensor:
        """Cross-attention: every position of x (B, T, d_model) attends to the memory ->
        (B, T, d_model).
        """
        (Q,) = _projected(x, self.W_Q)
        context = self._call_context(context, x)
        return self._output(self._attend(self._queries(Q, context), memory, context), context)

    def _queries(self, Q: Tensor, context: AttentionContext) -> Tensor:
        """Split queries into heads, normalize and rotate: (B, T, h * d_k) -> (B, h, T, d_k)."""
        return self._normalized(self.norm_Q, self._heads(Q, self.h), context)

    def _key_values(self, K: Tensor, V: Tensor, context: AttentionContext) -> KeyValues:
        """Split keys (B, S, g * d_k) into heads, normalize and rotate; split values (B, S, g * d_v)
        into heads.
        """
        keys = self._normalized(self.norm_K, self._heads(K, self.g), context)
        return KeyValues(keys, self._heads(V, self.g))

    def _heads(self, x: Tensor, count: int) -> Tensor:
        """(B, T, count * d) -> (B, count, T, d)."""
        return x.unflatten(2, (count, -1)).transpose(1, 2)

    def _normalized(self, norm: nn.Module, heads: Tensor, context: AttentionContext) -> Tensor:
        """Normalize and rotate queries or keys (B, h, T, d_k), in their dtype."""
        return context.rotate(norm(heads).to(heads.dtype))

    def _call_context(
        self, context: AttentionContext, x: Tensor, own_values: Tensor | None = None
    ) -> AttentionContext:
        """The context of a call, with the settings of this attention."""
        return context.replace(
            x=x,
            own_values=own_values,
            scale=self.scale,
            dropout=self.dropout,
            on_weights=self.on_weights,
            score_cap=self.score_cap,
            sinks=self.sinks,
        )

    def _attend(
        self, Q: Tensor, memory: KeyValues | GrowingKeyValues, context: AttentionContext
    ) -> Tensor:
        """Queries (B, h, T, d_k) attend to the memory -> heads (B, h, T, d_v)."""
        K = repeat_heads(memory.K, self.h)
        V = repeat_heads(memory.V, self.h)
        return _apply(self.mechanism, Q, K, V, context)

    def _output(self, heads: Tensor, context: AttentionContext) -> Tensor:
        """Concat(head_1, ..., head_h) W^O: (B, h, T, d_v) -> (B, T, d_model)."""
        for part in self.on_heads:
            heads = part(heads, context)
        return self.W_O(heads.transpose(1, 2).flatten(2))


def _projected(x: Tensor, *projections: Linear) -> list[Tensor]:
    """Projections of x (B, T, d_model), each (B, T, heads * d)."""
    return linears(x, [(W.weight, W.bias) for W in projections])


def _apply(
    mechanism: AttentionMechanism, Q: Tensor, K: Tensor, V: Tensor, context: AttentionContext
) -> Tensor:
    """Apply the mechanism in fp32, even under autocast; in bf16 on a GPU if it supports bf16.

    On a CPU, torch's bf16 kernel of attention is many times slower than the fp32 kernel at the
    lengths of sentences (benchmarks/LOG.md, 2026-11-21, how workers are set up).
    """
    if Q.dtype == torch.bfloat16 and not (on_gpu(Q) and mechanism.supports_bf16):
        Q = Q.float()
        K = K.float()
        V = V.float()
    with torch.autocast(Q.device.type, enabled=False):
        return mechanism(Q, K, V, context)
