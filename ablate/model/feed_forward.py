"""The position-wise feed-forward network (section 3.3) and its activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.linear import on_packed_rows
from ablate.kernels.relu_feed_forward import relu_feed_forward
from ablate.model.layers import Dropout, Linear, optional


class Activation(nn.Module):
    """Base of all activations.

    Attributes:
        gated: whether the result is multiplied by a second projection of the input.
        elementwise: whether the function acts on each entry separately, and has a finite value and
            gradient everywhere. If so, in bf16 training on a CPU, the network stays in bf16 between
            its layers, and also computes rows of padding.
    """

    gated = False
    elementwise = False

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        raise NotImplementedError("define forward(self, x)")

    def multiply(self, inner: Tensor, x: Tensor) -> Tensor:
        """Apply the gate: the activated projection times the second projection x."""
        return inner * x


class Elementwise(Activation):
    """A function of each entry, with a finite value and gradient everywhere."""

    elementwise = True

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return self.function(x)


class Gated(Elementwise):
    """A gated function of each entry."""

    gated = True


class ReLU(Elementwise):
    """max(0, x) (3.3, eq. 2)."""

    def __init__(self) -> None:
        super().__init__(F.relu)


class GELU(Elementwise):
    """x times the normal distribution function of x, exactly (Hendrycks and Gimpel, 2016)."""

    def __init__(self) -> None:
        super().__init__(F.gelu)


class SwiGLU(Gated):
    """SiLU, gated (Shazeer, 2020)."""

    def __init__(self) -> None:
        super().__init__(F.silu)


class ClampedSwiGLU(Activation):
    """x sigmoid(1.702 x) * (1 + z), where x is clamped to at most 7, and z, the second projection,
    to [-7, 7] (gpt-oss).
    """

    gated = elementwise = True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        x = x.clamp(max=7.0)
        return x * torch.sigmoid(1.702 * x)

    def multiply(self, inner: Tensor, x: Tensor) -> Tensor:
        """Two tensors of one shape -> the same shape."""
        return inner * (x.clamp(-7.0, 7.0) + 1)


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (3.3, eq. 2).

    A gated activation gives (f(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2. The inner width is then
    2/3 of d_ff, so that the number of parameters is the same.
    """

    def __init__(
        self,
        config: ModelConfig,
        activation: Activation,
        init: torch.Generator,
        random: torch.Generator,
    ):
        super().__init__()
        width = config.inner_width(activation.gated)
        bias = config.feed_forward_bias
        self.W_1 = Linear(config.d_model, width, init, bias)
        self.W_2 = Linear(width, config.d_model, init, bias)
        self.W_3 = optional(activation.gated, Linear, config.d_model, width, init, bias)
        self.activation = activation
        self.dropout = Dropout(config.activation_dropout, random)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        inner = self.activation(self.W_1(x))  # (B, T, d_ff)
        if self.W_3 is not None:
            inner = self.activation.multiply(inner, self.W_3(x))
        out: Tensor = self.W_2(self.dropout(inner))
        return out


class ElementwiseFeedForward(FeedForward):
    """`FeedForward` that stays in bf16 between its layers where products on a CPU are in bf16."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return on_packed_rows(super().forward, x)


class ReLUFeedForward(FeedForward):
    """`FeedForward` with ReLU, as one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        W_1, b_1 = self.W_1.parameters()
        W_2, b_2 = self.W_2.parameters()
        return relu_feed_forward(x, W_1, b_1, W_2, b_2)


def feed_forward(
    config: ModelConfig, activation: Activation, init: torch.Generator, random: torch.Generator
) -> FeedForward:
    """Build the network, by the fastest of the classes above that the activation allows."""
    network_class = FeedForward
    # With dropout inside, rows of padding would change the dropout masks of the other rows.
    if activation.elementwise and config.activation_dropout == 0.0:
        network_class = ElementwiseFeedForward
        # `type`, not `isinstance`: a user's subclass of ReLU may compute another function.
        if type(activation) is ReLU and config.feed_forward_bias:
            network_class = ReLUFeedForward
    return network_class(config, activation, init, random)


_tanh_gelu = partial(F.gelu, approximate="tanh")
tanh_gelu = partial(Elementwise, _tanh_gelu)  # as GPT-2 and Gemma compute it
silu = partial(Elementwise, F.silu)  # Swish; Ramachandran et al., 2017
squared_relu = partial(Elementwise, lambda x: F.relu(x).square())  # So et al., 2021
squared_leaky_relu = partial(Elementwise, lambda x: F.leaky_relu(x, 0.5).square())  # nanochat
# Gated activations (Shazeer, 2020)
geglu = partial(Gated, F.gelu)
tanh_geglu = partial(Gated, _tanh_gelu)
reglu = partial(Gated, F.relu)
