"""The position-wise feed-forward network (section 3.3) and its activations."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.linear import from_rows, is_rounded, to_rows
from ablate.kernels.relu_network import relu_network
from ablate.model.layers import Dropout, Linear


class Activation(nn.Module):
    """A function of each entry.

    gated: its value is multiplied by a second projection of the input.
    of_rows: it may be given (M, d) with rows behind the others that are nobody's, since it is of each entry alone and
        finite everywhere, its gradient too.
    """

    gated = False
    of_rows = False

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        raise NotImplementedError("define forward(self, x)")


class ReLU(Activation):
    """max(0, x) (3.3, eq. 2)."""

    of_rows = True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape, in the place of x, which is a product that nothing else asks for."""
        return F.relu(x, inplace=True)


class GELU(Activation):
    """x times the normal distribution function of x, not its approximation (Hendrycks and Gimpel, 2016)."""

    of_rows = True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return F.gelu(x)


class SwiGLU(Activation):
    """x sigmoid(x), gated (Shazeer, 2020)."""

    gated = True
    of_rows = True

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape."""
        return F.silu(x)


class FeedForward(nn.Module):
    """FFN(x) = f(x W_1 + b_1) W_2 + b_2 (3.3, eq. 2); gated, (f(x W_1 + b_1) * (x W_3 + b_3)) W_2 + b_2.

    A gated one is narrower by a third, so that it has as many parameters.
    """

    def __init__(self, config: ModelConfig, activation: Activation, init: torch.Generator, random: torch.Generator):
        super().__init__()
        width = config.inner_width(activation.gated)
        self.W_1 = Linear(config.d_model, width, init)
        self.W_2 = Linear(width, config.d_model, init)
        self.W_3 = Linear(config.d_model, width, init) if activation.gated else None
        self.activation = activation
        self.dropout = Dropout(config.activation_dropout, random)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        if not self.activation.of_rows or self.dropout.rate:  # masks are drawn for what there is, and for no more
            return self._between(x)
        if type(self.activation) is ReLU and (is_rounded(x) or (x.device.type == "cpu" and torch.is_grad_enabled())):
            return relu_network(x, self.W_1.weight, self.W_1.bias, self.W_2.weight, self.W_2.bias)
        return from_rows(self._between(to_rows(x)), like=x)

    def _between(self, x: Tensor) -> Tensor:
        inner = self.activation(self.W_1(x))
        if self.W_3 is not None:
            inner = inner * self.W_3(x)
        out: Tensor = self.W_2(self.dropout(inner))
        return out


ACTIVATIONS: dict[str, Callable[[], Activation]] = {"relu": ReLU, "gelu": GELU, "swiglu": SwiGLU}
