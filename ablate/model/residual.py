"""The residual stream, which each sub-layer reads and writes to (sections 3.1 and 5.4).

To add a variant, such as norms before and after a sub-layer, write a class here and name it in
ablate/parts/norms.py.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ablate.config import ModelConfig
from ablate.kernels.device import on_gpu
from ablate.kernels.dropout_add import fused_dropout_add_norm
from ablate.model.layers import Dropout, ParameterKinds
from ablate.model.norms import LayerNorm, UnitNorm
from ablate.parts.residual import LayerSkip


class Residual(nn.Module):
    """Base of the residual connections around a sub-layer, with norm and dropout."""

    parameter_kinds: ClassVar[ParameterKinds] = {"scale": "gain"}

    def __init__(
        self,
        norm: nn.Module,
        residual: bool,
        rate: float,
        random: torch.Generator,
        scale: nn.Parameter | float | None = None,
        config: ModelConfig | None = None,
    ) -> None:
        """Make the connection of a sub-layer.

        Args:
            norm: norm of vectors of d_model entries; the identity for none.
            residual: whether the output of the sub-layer is added to the stream; otherwise it
                replaces the stream.
            rate: dropout rate of the sub-layer's output.
            random: draws dropout masks.
            scale: factor of the sub-layer's output, a number or (d_model,); None for no factor.
            config: fields of the model, for users' classes.
        """
        super().__init__()
        self.dropout = Dropout(rate, random)
        self.norm = norm
        self.residual = residual
        self.scale = scale
        self.config = config

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer, read from the stream: (B, T, d_model) -> (B, T, d_model)."""
        raise NotImplementedError

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """The stream x and the output of the sub-layer -> the new stream; all (B, T, d_model)."""
        raise NotImplementedError

    def add(self, x: Tensor, output: Tensor) -> Tensor:
        """Compute x + Dropout(scale * output); without residual, Dropout(scale * output)."""
        if self.scale is not None:
            output = self.scale * output
        return self.dropout(output, residual=x if self.residual else None)


class PostNorm(Residual):
    """Norm(x + Dropout(Sublayer(x))), as in the paper (3.1, 5.4).

    Without residual, Norm(Dropout(Sublayer(x))).
    """

    def before(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        return x

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        norm = self.norm
        dropout = self.dropout
        is_plain = self.residual and self.scale is None and dropout.is_active
        if on_gpu(output) and is_plain and isinstance(norm, LayerNorm) and norm.bias is not None:
            words = dropout.draw(output)
            with torch.autocast(output.device.type, enabled=False):
                return fused_dropout_add_norm(
                    x, output, words, dropout.dropped, norm.weight, norm.bias, norm.eps
                )
        return norm(self.add(x, output))


class PreNorm(Residual):
    """x + Dropout(Sublayer(Norm(x))) (Xiong et al., 2020). The stack then ends with a further norm.

    Attributes:
        factor: factor of the norm's output; None for no factor.
    """

    factor: float | None = None

    def before(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        normed: Tensor = self.norm(x)
        return normed if self.factor is None else self.factor * normed

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        return self.add(x, output)


class SandwichNorm(PreNorm):
    """x + Dropout(Norm(Sublayer(Norm(x)))), with two norms (Ding et al., 2021; Gemma 2)."""

    norm_after: nn.Module

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        return self.add(x, self.norm_after(output))


class OutputNorm(PostNorm):
    """x + Dropout(Norm(Sublayer(x))), as in OLMo 2."""

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        return self.add(x, self.norm(output))


class HyperConnections(Residual):
    """Static hyper-connections: n residual streams, which are read, mixed and written with trained
    weights (Zhu et al., 2024, section 2.2, eq. 2 to 5).

    The streams are concatenated: (B, T, n * d_model). Initially they are copies of the embeddings,
    and their sum is the output of the stack.

    Attributes:
        around: norms and dropout of the sub-layer, without a residual connection.
        static: the weights (n * (n + 2),). Each stream has 1 weight in the input of the sub-layer
            (A_m), n weights in the new streams (A_r), and 1 weight of the sub-layer's output (B).
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"static": "gain"}

    def __init__(self, around: Residual, n: int, d_model: int, index: int) -> None:
        """Initialize the weights so that the model equals one with a single residual stream.

        Args:
            around: norms and dropout of the sub-layer.
            n: number of streams.
            d_model: width of a stream.
            index: index of the sub-layer in its stack; it first reads stream `index` modulo n.
        """
        super().__init__(nn.Identity(), True, 0.0, around.dropout.random)
        self.around = around
        self.n = n
        static = torch.cat([torch.zeros(n, 1), torch.eye(n), torch.ones(n, 1)], dim=1)
        static[index % n, 0] = 1.0
        self.static = nn.Parameter(static.flatten())

    def weights(self, streams: Tensor) -> Tensor:
        """The columns A_m, A_r and B for streams (B, T, n, d_model): (n, n + 2), or, if they depend
        on the streams, (B, T, n, n + 2).
        """
        return self.static.view(self.n, self.n + 2)

    def before(self, x: Tensor) -> Tensor:
        """(B, T, n * d_model) -> (B, T, d_model)."""
        streams = x.unflatten(-1, (self.n, -1))
        with torch.autocast(x.device.type, enabled=False):
            mixed = torch.einsum("...n,...nd->...d", self.weights(streams)[..., 0], streams)
        return self.around.before(mixed)

    def after(self, x: Tensor, output: Tensor) -> Tensor:
        """(B, T, n * d_model), (B, T, d_model) -> (B, T, n * d_model)."""
        streams = x.unflatten(-1, (self.n, -1))
        output = self.around.after(x, output).to(x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            weights = self.weights(streams)
            # Not `@`, which would repeat weights that all tokens share.
            mixed = torch.einsum("...nm,...nd->...md", weights[..., 1:-1], streams)
            # The sum has the layout of its first term, which `flatten` need not copy.
            return (weights[..., -1:] * output[..., None, :] + mixed).flatten(-2)


class DynamicHyperConnections(HyperConnections):
    """Dynamic hyper-connections: the weights also depend on the streams (Zhu et al., 2024, section
    2.3, eq. 10 to 13).

    Attributes:
        dynamic: W_m, W_r and W_beta, (d_model, n + 2). The norm before them has no gain, which
            would be redundant.
        scales: s_alpha and s_beta.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {
        "static": "gain",
        "dynamic": "matrix",
        "scales": "gain",
    }

    def __init__(self, around: Residual, n: int, d_model: int, index: int) -> None:
        super().__init__(around, n, d_model, index)
        self.norm = UnitNorm()
        self.dynamic = nn.Parameter(torch.zeros(d_model, n + 2))
        self.scales = nn.Parameter(torch.full((2,), 0.01))

    def weights(self, streams: Tensor) -> Tensor:
        """(B, T, n, d_model) -> (B, T, n, n + 2)."""
        scales = torch.cat([self.scales[:1].expand(self.n + 1), self.scales[1:]])
        return super().weights(streams) + scales * (self.norm(streams) @ self.dynamic).tanh()


class EmbeddingSkip(nn.Module):
    """a x + b x0, with embeddings x0 and trained numbers a (initially 1) and b (initially 0)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"shares": "gain"}

    def __init__(self) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        return self.shares[0] * x + self.shares[1] * embedded


class StreamScale(nn.Module):
    """a x, with a trained number a (initially 1)."""

    parameter_kinds: ClassVar[ParameterKinds] = {"factor": "gain"}

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor, embedded: Tensor) -> Tensor:
        """(B, T, d_model), (B, T, d_model) -> (B, T, d_model)."""
        return self.factor * x


class LayerSkips(nn.Module):
    """Adds the states of earlier layers, times trained weights, to the stream after a layer.

    Args:
        skip: the rule for which states are added after each layer.
        depth: number of layers, counted once for each loop.
    """

    parameter_kinds: ClassVar[ParameterKinds] = {"weights": "gain"}

    def __init__(self, skip: LayerSkip, depth: int) -> None:
        super().__init__()
        self.sources = [list(skip.sources(i, depth)) for i in range(depth)]
        # Index of the first weight of each layer
        self.first = [sum(map(len, self.sources[:i])) for i in range(depth)]
        self.weights = nn.Parameter(torch.full((skip.count(depth),), skip.initial))

    def forward(self, i: int, x: Tensor, states: list[Tensor]) -> Tensor:
        """Add states to the stream after a layer.

        Args:
            i: index of the layer.
            x: the stream after it (B, T, d_model), which is appended to `states`.
            states: states of earlier layers.

        Returns:
            (B, T, d_model).
        """
        states.append(x)
        for weight, source in enumerate(self.sources[i], self.first[i]):
            x = x + self.weights[weight] * states[source]
        return x
