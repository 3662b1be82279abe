"""Token mixers with a state of fixed size, which replace self-attention in a causal stack.

Most of them project x to queries, keys, values and decays, and apply the recurrence of
`ablate/kernels/linear_recurrence.py`: chunk by chunk in training, and token by token in decoding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.linear_recurrence import decayed_average, linear_recurrence, vector_recurrence
from ablate.model.attention_context import AttentionContext
from ablate.model.kv_cache import BatchState
from ablate.model.layers import Linear, ParameterKinds
from ablate.model.norms import RMSNorm
from ablate.model.positions import RotaryPositions
from ablate.model.short_convolution import ShortConvolution, TokenShift, token_mask
from ablate.model.token_mixer import TokenMixer
from ablate.parts.attention import CONVOLUTION_WIDTH
from ablate.parts.mixers import DECAY_RANK, GATED_CONVOLUTION_WIDTH, LRU_POWER, RWKV_EXPANSION

GATE_TEMPERATURE = 16  # decay = sigmoid(...) ** (1 / 16), so that a state forgets slowly


@dataclass(frozen=True)
class MixerState(BatchState):
    """The state after the last token of each sentence.

    Attributes:
        memory: state of the recurrence: (B, h, d_k, d_v), or (B, width) for a recurrence over
            vectors; None in a mixer without a recurrence.
        inputs: last inputs (B, width - 1, channels) of each short convolution or token shift.
    """

    memory: Tensor | None
    inputs: Sequence[Tensor]


def _memory_and_inputs(past: MixerState | None) -> tuple[Tensor | None, Tensor | None]:
    """The two tensors in the state of a mixer with one convolution or token shift."""
    if past is None:
        return None, None
    return past.memory, past.inputs[0]


class Projections(NamedTuple):
    """Inputs of `linear_recurrence`; a term `skip` (B, h, T, d_v) that is added to its output; and
    `last_inputs` of the convolutions, as in `MixerState.inputs`.
    """

    Q: Tensor
    K: Tensor
    V: Tensor
    log_decay: Tensor
    beta: Tensor | None = None
    skip: Tensor | None = None
    last_inputs: Sequence[Tensor] = ()


class RecurrentMixer(TokenMixer):
    """Base of the mixers whose state is a matrix for each head. A subclass defines `project`.

    Attributes:
        has_gate: whether the output is multiplied by SiLU of a projection of x.
    """

    has_gate = True

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        self.n_heads = config.n_heads
        self.d_k = config.d_k
        self.d_v = config.d_v
        d = config.d_model
        h = config.n_heads
        self.query = Linear(d, self._key_width(), init, bias=False)
        self.key = Linear(d, self._key_width(), init, bias=False)
        self.value = Linear(d, h * self.d_v, init, bias=False)
        self.output = Linear(h * self.d_v, d, init, bias=False)
        if self.has_gate:
            self.gate = Linear(d, h * self.d_v, init, bias=False)
        self.norm = RMSNorm(self.d_v)
        self.convolutions = nn.ModuleList()

    def _key_width(self) -> int:
        return self.n_heads * self.d_k

    def project(self, x: Tensor, past: MixerState | None, context: AttentionContext) -> Projections:
        """Project x to the inputs of the recurrence.

        Args:
            x: (B, T, d_model).
            past: the state before x; None at the beginning of a sequence.
            context: masks and positions.
        """
        raise NotImplementedError

    def gated(self, out: Tensor, x: Tensor) -> Tensor:
        """Normalize the output of the recurrence, and gate it: (B, T, h, d_v) -> (B, T, h, d_v)."""
        normed: Tensor = self.norm(out)
        return silu_gate(normed, self.gate(x)) if self.has_gate else normed

    def forward(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[Tensor, MixerState]:
        """(B, T, d_model) -> (B, T, d_model), and the state after each sentence's last token."""
        Q, K, V, log_decay, beta, skip, last_inputs = self.project(x, past, context)
        tokens = token_mask(x, context)
        if tokens is not None:  # padding does not change the state
            real = tokens[:, None, :, None]
            K = K * real
            log_decay = log_decay * real
            if beta is not None:
                beta = beta * real
        # The recurrence adds up many products, whose errors in bf16 would grow with the length.
        with torch.autocast(x.device.type, enabled=False):
            Q, K, V, log_decay = map(full_precision, (Q, K, V, log_decay))
            if beta is not None:
                beta = full_precision(beta)
            before = None if past is None else past.memory
            out, memory = linear_recurrence(Q, K, V, log_decay, beta, before)
        if skip is not None:
            out = out + skip
        mixed = self.gated(out.transpose(1, 2), x)  # (B, T, h, d_v)
        return self.output(mixed.flatten(2)), MixerState(memory, last_inputs)

    def _add_convolutions(self, init: torch.Generator, bias: bool = False) -> None:
        for projection in (self.query, self.key, self.value):
            channels = projection.weight.shape[0]
            self.convolutions.append(ShortConvolution(channels, CONVOLUTION_WIDTH, init, bias))

    def _convolved(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Queries, keys and values, each after its short convolution and SiLU, and the last inputs
        of the three convolutions.
        """
        tokens = token_mask(x, context)
        results = []
        last_inputs = []
        for i, projection in enumerate((self.query, self.key, self.value)):
            before = None if past is None else past.inputs[i]
            out, last = self.convolutions[i](projection(x), before, tokens)
            results.append(F.silu(out))
            last_inputs.append(last)
        return results, last_inputs

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, h * d) -> (B, h, T, d)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class Retention(RecurrentMixer):
    """Retention ("Retentive Network", Sun et al., 2023, eq. 5 to 8): queries and keys are rotated
    as by RoPE, and each head has a fixed decay.
    """

    log_decay: Tensor  # (h, 1, 1)

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        # Rotate by the defaults of the rope_* fields, unless this layer has rope: otherwise the
        # fields are for the layers that have it.
        if config.positional_encoding != "rope":
            fields = ModelConfig.model_fields
            defaults = {name: fields[name].default for name in fields if name.startswith("rope_")}
            config = config.model_copy(update=defaults)
        self.rotary = RotaryPositions(config, True, init)
        decay = 1 - 2.0 ** (-5 - torch.arange(self.n_heads))
        self.register_buffer("log_decay", decay.log().view(-1, 1, 1), persistent=False)

    def project(self, x: Tensor, past: MixerState | None, context: AttentionContext) -> Projections:
        """Scaled and rotated queries and keys, and the decay of each head."""
        Q = self.rotary.rotate(self._heads(self.query(x)), context.query_positions)
        K = self.rotary.rotate(self._heads(self.key(x)), context.query_positions)
        log_decay = self.log_decay.expand(x.shape[0], -1, x.shape[1], 1)
        return Projections(Q, K * self.d_k**-0.5, self._heads(self.value(x)), log_decay)


class GatedLinearAttention(RecurrentMixer):
    """Gated linear attention ("Gated Linear Attention Transformers", Yang et al., 2023, section
    4.4): the decay of each row of the state depends on the token.
    """

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.decay_in = Linear(config.d_model, DECAY_RANK, init, bias=False)
        self.decay_out = Linear(DECAY_RANK, self.n_heads * self.d_k, init)

    def project(self, x: Tensor, past: MixerState | None, context: AttentionContext) -> Projections:
        """Scaled queries, keys, values, and the decay by a projection of low rank."""
        decay = self.decay_out(self.decay_in(x))
        Q, K, V = (self._heads(W(x)) for W in (self.query, self.key, self.value))
        log_decay = F.logsigmoid(full_precision(self._heads(decay))) / GATE_TEMPERATURE
        return Projections(Q * self.d_k**-0.5, K, V, log_decay)


class DeltaNet(RecurrentMixer):
    """The delta rule ("Parallelizing Linear Transformers with the Delta Rule", Yang et al., 2024):
    the new value of a key replaces its old value, with a strength that depends on the token.
    """

    has_gate = False

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.strength = Linear(config.d_model, self.n_heads, init, bias=False)
        self._add_convolutions(init)

    def project(self, x: Tensor, past: MixerState | None, context: AttentionContext) -> Projections:
        """Convolved projections, with queries and keys of length 1."""
        convolved, last_inputs = self._convolved(x, past, context)
        Q, K, V = map(self._heads, convolved)
        beta = self._heads(self.strength(x)).sigmoid()
        Q = unit_length(Q) * self.d_k**-0.5
        K = unit_length(K)
        return Projections(Q, K, V, self.log_decays(x), beta, last_inputs=last_inputs)

    def log_decays(self, x: Tensor) -> Tensor:
        """Zeros (B, h, T, 1): the state does not decay."""
        return x.new_zeros(x.shape[0], self.n_heads, x.shape[1], 1)


class GatedDeltaNet(DeltaNet):
    """DeltaNet with Mamba 2's decay and a gate ("Gated Delta Networks", Yang et al., 2024)."""

    has_gate = True

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.decay = StepDecay(config.d_model, self.n_heads, init)

    def log_decays(self, x: Tensor) -> Tensor:
        """(B, h, T, 1)."""
        return self.decay(x)[1]


class Mamba2(RecurrentMixer):
    """Mamba 2 ("Transformers are SSMs", Dao and Gu, 2024, section 7): a state space model with one
    decay for each head; all heads share queries and keys.

    In the terms of the paper, d_k is the size of the state, and h * d_v the inner width.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"skip": "gain"}

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__(config, causal, init)
        self.decay = StepDecay(config.d_model, self.n_heads, init)
        self.skip = nn.Parameter(torch.ones(self.n_heads))
        self.norm = RMSNorm(self.n_heads * self.d_v)
        self._add_convolutions(init, bias=True)

    def _key_width(self) -> int:
        return self.d_k

    def project(self, x: Tensor, past: MixerState | None, context: AttentionContext) -> Projections:
        """Convolved projections, with values times the step of each token; decay; skip."""
        (Q, K, V), last_inputs = self._convolved(x, past, context)
        step, log_decay = self.decay(x)
        V = self._heads(V)
        Q = Q[:, None].expand(-1, self.n_heads, -1, -1)
        K = K[:, None].expand(-1, self.n_heads, -1, -1)
        skip = self.skip[:, None, None] * V
        return Projections(Q, K, V * step, log_decay, skip=skip, last_inputs=last_inputs)

    def gated(self, out: Tensor, x: Tensor) -> Tensor:
        """Multiply the heads by SiLU of a gate, then normalize over all heads."""
        normed: Tensor = self.norm(silu_gate(out, self.gate(x)).flatten(2))
        return normed.unflatten(2, (self.n_heads, -1))


class StepDecay(nn.Module):
    """Step and decay of each token and head: decay = exp(-rate * step) (Dao and Gu, 2024).

    Initial steps are between 0.001 and 0.1, initial rates between 1 and 16.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"step_bias": "bias", "log_rate": "gain"}

    def __init__(self, d_model: int, n_heads: int, init: torch.Generator) -> None:
        super().__init__()
        self.step = Linear(d_model, n_heads, init, bias=False)
        low = math.log(0.001)
        high = math.log(0.1)
        step = torch.empty(n_heads).uniform_(low, high, generator=init).exp()
        # The inverse of softplus, so that softplus(step_bias) = step.
        self.step_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.log_rate = nn.Parameter(torch.empty(n_heads).uniform_(1, 16, generator=init).log())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, d_model) -> steps and logarithms of decays, (B, h, T, 1) each."""
        step = F.softplus(full_precision(self.step(x)) + self.step_bias)
        log_decay = -self.log_rate.exp() * step
        return step.mT[..., None], log_decay.mT[..., None]


class GatedConvolution(TokenMixer):
    """A short convolution between two gates, as in LFM2 (Liquid AI, 2025): C * conv(B * x)."""

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        d = config.d_model
        self.before = Linear(d, d, init, bias=False)
        self.after = Linear(d, d, init, bias=False)
        self.value = Linear(d, d, init, bias=False)
        self.convolution = ShortConvolution(d, GATED_CONVOLUTION_WIDTH, init)
        self.output = Linear(d, d, init, bias=False)

    def forward(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[Tensor, MixerState]:
        """(B, T, d_model) -> (B, T, d_model), and the last inputs of the convolution."""
        _, last_inputs = _memory_and_inputs(past)
        gated = self.before(x) * self.value(x)
        out, inputs = self.convolution(gated, last_inputs, token_mask(x, context))
        return self.output(self.after(x) * out), MixerState(None, [inputs])


class BlockLinear(nn.Module):
    """A separate projection of each head: y = x W + b with W of shape (h, d, d)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"weight": "matrix", "bias": "bias"}

    def __init__(self, n_heads: int, size: int, init: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, size, size))
        self.bias = nn.Parameter(torch.zeros(n_heads, size))
        nn.init.normal_(self.weight, std=size**-0.5, generator=init)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, h * d) -> (B, T, h * d)."""
        heads = x.unflatten(-1, self.bias.shape)
        return (torch.einsum("bthi,hio->btho", heads, self.weight) + self.bias).flatten(2)


class RGLRU(TokenMixer):
    """The recurrent block of Griffin and RecurrentGemma (De et al., 2024, sections 2.3 and 2.4).

    A convolution and a gated linear recurrence over vectors (RG-LRU), times GELU of a projection of
    x. The inner width is h * d_v, and the gates of the recurrence have h blocks.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"decay": "gain"}

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        h = config.n_heads
        size = config.d_v
        self.gate = Linear(config.d_model, h * size, init)
        self.value = Linear(config.d_model, h * size, init)
        self.convolution = ShortConvolution(h * size, CONVOLUTION_WIDTH, init, bias=True)
        self.input_gate = BlockLinear(h, size, init)
        self.decay_gate = BlockLinear(h, size, init)
        # The parameter Lambda of the paper: softplus(Lambda) = -log(a), with a^2 uniform.
        squares = torch.empty(h * size).uniform_(0.9**2, 0.999**2, generator=init)
        self.decay = nn.Parameter(torch.expm1(-0.5 * squares.log()).log())
        self.output = Linear(h * size, config.d_model, init)

    def forward(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[Tensor, MixerState]:
        """(B, T, d_model) -> (B, T, d_model), and the state after each sentence's last token."""
        memory, last_inputs = _memory_and_inputs(past)
        tokens = token_mask(x, context)
        convolved, inputs = self.convolution(self.value(x), last_inputs, tokens)
        input_gate = full_precision(self.input_gate(convolved)).sigmoid()  # i of the paper
        recurrence_gate = full_precision(self.decay_gate(convolved)).sigmoid()  # r of the paper
        log_decay = -LRU_POWER * recurrence_gate * F.softplus(self.decay)
        # sqrt(1 - a^2), which keeps the variance of the state. At least 1e-12 under the root, which
        # has no derivative at 0; 1 for the first token, before which there is no state.
        scale = (-torch.expm1(2 * log_decay)).clamp(min=1e-12).sqrt()
        scale = scale.masked_fill((context.query_positions == 0)[..., None], 1.0)
        added = full_precision(convolved) * input_gate * scale
        if tokens is not None:  # padding does not change the state
            added = added * tokens[..., None]
            log_decay = log_decay * tokens[..., None]
        states = vector_recurrence(log_decay.exp(), added, memory)
        out = self.output(states * F.gelu(self.gate(x), approximate="tanh"))
        return out, MixerState(states[:, -1], [inputs])


class RWKV(TokenMixer):
    """The time mixing of RWKV-4 (Peng et al., 2023, section 3.1): an average of the values so far,
    with weights that fall with the distance, times the sigmoid of a gate.

    Deviation: initial decays and shares do not depend on the layer.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"log_decay": "gain", "bonus": "gain"}

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        d = config.d_model
        self.shift = TokenShift(d, 3)
        self.key = Linear(d, d, init, bias=False)
        self.value = Linear(d, d, init, bias=False)
        self.receptance = Linear(d, d, init, bias=False)
        self.output = Linear(d, d, init, bias=False)
        self.log_decay = nn.Parameter(torch.linspace(-5.0, 3.0, d))
        self.bonus = nn.Parameter(torch.full((d,), math.log(0.3)))

    def forward(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[Tensor, MixerState]:
        """(B, T, d_model) -> (B, T, d_model), and the state after each sentence's last token."""
        memory, previous = _memory_and_inputs(past)
        tokens = token_mask(x, context)
        (key_input, value_input, gate_input), last = self.shift(x, previous, tokens)
        K = full_precision(self.key(key_input))
        V = full_precision(self.value(value_input))
        decay = self.log_decay.exp().expand(1, x.shape[1], -1)  # weights fall by exp(-decay)
        if tokens is not None:  # padding does not change the state
            # A weight of exp(min / 4) is 0. With `min`, differences of two logarithms would be
            # infinite, and NaN in the next step.
            K = K.masked_fill(~tokens[..., None], torch.finfo(K.dtype).min / 4)
            decay = decay * tokens[..., None]
        average, memory = decayed_average(K, V, decay, self.bonus, memory)
        gate = self.receptance(gate_input).sigmoid()
        return self.output(gate * average), MixerState(memory, [last])


class RWKVChannels(TokenMixer):
    """The channel mixing of RWKV-4 (Peng et al., 2023, section 3.1): a gated feed-forward network
    that also reads the previous token. It is a mixer here, because a feed-forward network reads
    each token separately.
    """

    def __init__(self, config: ModelConfig, causal: bool, init: torch.Generator) -> None:
        super().__init__()
        d = config.d_model
        self.shift = TokenShift(d, 2)
        self.key = Linear(d, RWKV_EXPANSION * d, init, bias=False)
        self.receptance = Linear(d, d, init, bias=False)
        self.output = Linear(RWKV_EXPANSION * d, d, init, bias=False)

    def forward(
        self, x: Tensor, past: MixerState | None, context: AttentionContext
    ) -> tuple[Tensor, MixerState]:
        """(B, T, d_model) -> (B, T, d_model), and the last token."""
        _, previous = _memory_and_inputs(past)
        (key_input, gate_input), last = self.shift(x, previous, token_mask(x, context))
        out = self.output(self.key(key_input).relu().square())
        return self.receptance(gate_input).sigmoid() * out, MixerState(None, [last])


def silu_gate(out: Tensor, gate: Tensor) -> Tensor:
    """Heads (B, T, h, d_v) times SiLU of a gate (B, T, h * d_v)."""
    return out * F.silu(gate).view_as(out)


def unit_length(x: Tensor) -> Tensor:
    """Vectors (..., d) divided by their lengths. The 1e-6 is under the root, as in the code of Yang
    et al.; `F.normalize` bounds the length instead.
    """
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def full_precision(x: Tensor) -> Tensor:
    """Convert x to fp32, unless it is fp64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
