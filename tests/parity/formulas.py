"""The model written from the papers' formulas, in double precision: one sentence, query, head and
key at a time.

Without batches it needs no padding, mask or cache. It reads our weights by name.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablate.config import ModelConfig
from ablate.config.resolve import resolve_row
from tests.parity.cases import PRIMES, Case, Settings, compared, free_sizes
from tests.parity.copying import weights_of
from tests.parity.row import Row

Vector = NDArray[np.float64]
Vectors = list[Vector]


def logits(case: Case) -> Tensor:
    """Logits of every target token by the formulas."""
    weights = {name: weight.double().numpy() for name, weight in weights_of(case.model).items()}
    written = Written(case.config, weights)
    return torch.tensor(
        np.concatenate([written.logits(source, target) for source, target in case.pairs])
    )


@dataclass
class Order:
    """The place of a self-attention: stack, layer, and whether it is causal."""

    positions: str
    layer: int
    causal: bool


@dataclass
class Written:
    """The model for a configuration and weights."""

    c: ModelConfig
    w: dict[str, Vector]

    def logits(self, source: list[int], target: list[int]) -> Vector:
        """(T, V)."""
        tied = self.c.tied_embeddings
        if self.c.architecture == "decoder-only":
            states = self.stack(
                "decoder", "positions", [*source, *target], "embedding", True, None
            )[len(source) :]
        else:
            of_source = "embedding" if tied == "all" else "source_embedding"
            memory = self.stack("encoder", "source_positions", source, of_source, False, None)
            states = self.stack("decoder", "target_positions", target, "embedding", True, memory)
        return (
            np.stack(states) @ self.w["output.weight" if tied == "none" else "embedding.weight"].T
        )

    def stack(
        self,
        name: str,
        positions: str,
        tokens: list[int],
        embedding: str,
        causal: bool,
        memory: Vectors | None,
    ) -> Vectors:
        """N layers over embedded tokens (3.1)."""
        c = self.c
        E = self.w[f"{embedding}.weight"]
        x = [
            E[token] * math.sqrt(c.d_model) + self.place(positions, pos)
            for pos, token in enumerate(tokens)
        ]
        for n in range(c.depths[0] if name == "encoder" else c.depths[1]):
            at, order = f"{name}.{n}", Order(positions, n, causal)
            x = self.sublayer(
                f"{at}.around_mixer", x, partial(self.mixer, f"{at}.mixer", order=order)
            )
            if memory is not None:
                ask = partial(self.attention, f"{at}.cross_attention", y=memory, order=None)
                x = self.sublayer(f"{at}.around_cross_attention", x, ask)
            x = self.sublayer(
                f"{at}.around_feed_forward", x, partial(self.feed_forward, f"{at}.feed_forward")
            )
        return [self.norm(f"{name}_norm", v) for v in x] if c.norm_position == "pre" else x

    def sublayer(self, around: str, x: Vectors, f: Callable[[Vectors], Vectors]) -> Vectors:
        """Residual and norm around a sub-layer (3.1; Xiong et al., 2020)."""
        c, norm = self.c, f"{around}.norm"
        inner = f([self.norm(norm, v) for v in x] if c.norm_position == "pre" else x)
        sums = [v + u if c.residual else u for v, u in zip(x, inner, strict=True)]
        return [self.norm(norm, v) for v in sums] if c.norm_position == "post" else sums

    def norm(self, at: str, v: Vector) -> Vector:
        """Layer normalization (Ba et al., 2016) or RMSNorm (Zhang and Sennrich, 2019)."""
        if self.c.norm == "rmsnorm":
            return v / math.sqrt((v**2).mean() + 1e-6) * self.w[f"{at}.weight"]
        spread = math.sqrt(((v - v.mean()) ** 2).mean() + 1e-6)
        return (v - v.mean()) / spread * self.w[f"{at}.weight"] + self.w[f"{at}.bias"]

    def linear(self, at: str, v: Vector) -> Vector:
        """W v + b; without b if there is none."""
        return self.w[f"{at}.weight"] @ v + self.w.get(f"{at}.bias", 0.0)

    def feed_forward(self, at: str, x: Vectors) -> Vectors:
        """3.3, eq. 2; gated, eq. 6 of Shazeer, 2020."""
        inner = [
            [ACTIVATIONS[self.c.activation](u) for u in self.linear(f"{at}.W_1", v)] for v in x
        ]
        if self.c.activation == "swiglu":
            inner = [u * self.linear(f"{at}.W_3", v) for u, v in zip(inner, x, strict=True)]
        return [self.linear(f"{at}.W_2", np.array(u)) for u in inner]

    def place(self, positions: str, pos: int) -> Vector | float:
        """The vector that is added to an embedding (3.5)."""
        d = self.c.d_model
        if self.c.positional_encoding == "sinusoidal":
            angles = [pos / 10000 ** ((i - i % 2) / d) for i in range(d)]
            return np.array(
                [math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)]
            )
        return (
            self.w[f"{positions}.weight"][pos] if self.c.positional_encoding == "learned" else 0.0
        )

    def mixer(self, at: str, x: Vectors, order: Order) -> Vectors:
        """Self-attention or an LSTM; the LSTM is bidirectional in the encoder."""
        if self.c.mixer == "attention":
            return self.attention(at, x, x, order)
        forth = self.lstm(at, "", x)
        if order.causal:
            return forth
        back = self.lstm(at, "_reverse", x[::-1])[::-1]
        return [np.concatenate(both) for both in zip(forth, back, strict=True)]

    def attention(self, at: str, x: Vectors, y: Vectors, order: Order | None) -> Vectors:
        """Concat(head_1, ..., head_h) W^O (3.2.2)."""
        c, out = self.c, []
        h = c.n_heads if order else c.n_cross_heads or c.n_heads
        groups = c.n_kv_heads or h
        Q = [self.linear(f"{at}.W_Q", v).reshape(h, c.d_k) for v in x]
        K = [self.linear(f"{at}.W_K", v).reshape(groups, c.d_k) for v in y]
        V = [self.linear(f"{at}.W_V", v).reshape(groups, c.d_v) for v in y]
        for i in range(len(x)):
            heads = []
            for n in range(h):
                g = n // (h // groups)  # the keys and values of head n (Ainslie et al., 2023)
                weights = [self.weight(order, n, i, j, Q[i][n], K[j][g]) for j in range(len(y))]
                values = [
                    V[j][g] + self.of_distance(order, "of_values", i, j) for j in range(len(y))
                ]
                heads.append(
                    sum(a * v for a, v in zip(weights, values, strict=True)) / sum(weights)
                )
            out.append(self.linear(f"{at}.W_O", np.concatenate(heads)))
        return out

    def weight(self, order: Order | None, n: int, i: int, j: int, q: Vector, k: Vector) -> float:
        """Weight of key j for query i in head n, before the division by the sum over keys."""
        c = self.c
        if order is None:
            return math.exp(self.scale * (q @ k))
        if (order.causal and j > i) or (c.attention == "local" and abs(i - j) > c.attention_window):
            return 0.0
        if c.attention == "linear":  # Katharopoulos et al., 2020, eq. 4 and 7
            return elu_plus_1(q) @ elu_plus_1(k)
        if c.positional_encoding == "rope":
            return math.exp(self.scale * (turned(q, i).conj() @ turned(k, j)).real)
        if c.positional_encoding == "relative":  # Shaw et al., 2018, eq. 2
            return math.exp(self.scale * (q @ (k + self.of_distance(order, "keys", i, j))))
        bias = 0.0
        if c.positional_encoding == "alibi":
            bias = -slope(n, c.n_heads) * abs(i - j)
        elif c.positional_encoding == "t5":
            bias = self.w[f"{order.positions}.weight"][bucket(j - i, order.causal), n]
        return math.exp(self.scale * (q @ k) + bias)

    @property
    def scale(self) -> float:
        return 1.0 if self.c.attention_scale == 1 else 1 / math.sqrt(self.c.d_k)

    def of_distance(self, order: Order | None, table: str, i: int, j: int) -> Vector | float:
        """The vector of the clipped distance from i to j (Shaw et al., 2018, eq. 4)."""
        clip = self.c.relative_clip
        if order is None or self.c.positional_encoding != "relative" or (order.causal and j > i):
            return 0.0
        return self.w[f"{order.positions}.{table}"][order.layer][
            max(-clip, min(clip, j - i)) + clip
        ]

    def lstm(self, at: str, direction: str, x: Vectors) -> Vectors:
        """Hochreiter and Schmidhuber, 1997, with forget gates."""
        W, U, b, d = (
            self.w[f"{at}.cells.{name}_l0{direction}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        state = cell = np.zeros(U.shape[1])
        out = []
        for v in x:
            i, f, g, o = np.split(W @ v + b + U @ state + d, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            state = sigmoid(o) * np.tanh(cell)
            out.append(state)
        return out


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda u: max(0.0, u),
    "gelu": lambda u: u * (1 + math.erf(u / math.sqrt(2))) / 2,  # Hendrycks and Gimpel, 2016
    "swiglu": lambda u: u * sigmoid(u),
}


def elu_plus_1(v: Vector) -> Vector:
    return np.array([u + 1 if u > 0 else math.exp(u) for u in v])


def turned(v: Vector, pos: int) -> NDArray[np.complex128]:
    """Pairs of entries as complex numbers, rotated (Su et al., 2021, eq. 12 and 15)."""
    theta = 10000.0 ** (-np.arange(0, len(v), 2) / len(v))
    return (v[0::2] + 1j * v[1::2]) * np.exp(1j * pos * theta)


def slope(n: int, h: int) -> float:
    """2^(-8 (n+1) / h) for an h that is a power of two; others add odd ones of twice the power
    (Press et al., 2022).
    """
    power = 2 ** math.floor(math.log2(h))
    return 2 ** (-8 * (n + 1) / power) if n < power else 2 ** (-4 * (2 * (n - power) + 1) / power)


def bucket(distance: int, causal: bool) -> int:
    """Bucket of a distance: one of 32, or of 16 in each direction if not causal (Raffel et al.,
    2020).
    """
    if causal:
        return one_way(-distance, 32)
    return one_way(abs(distance), 16) + (16 if distance > 0 else 0)


def one_way(distance: int, count: int) -> int:
    """Half of the buckets hold one distance each, the others logarithmically growing ranges."""
    exact = count // 2
    if distance < exact:
        return distance
    return min(
        count - 1, exact + math.floor(exact * math.log(distance / exact) / math.log(128 / exact))
    )


# Values of every field of the model, for random configurations.
FIELDS = {
    "architecture": ("encoder-decoder", "decoder-only"),
    "positional_encoding": ("sinusoidal", "learned", "none", "rope", "relative", "t5", "alibi"),
    "norm_position": ("post", "pre", "none"),
    "norm": ("layernorm", "rmsnorm"),
    "residual": (True, False),
    "attention_scale": ("1/sqrt(d_k)", 1),
    "activation": ("relu", "gelu", "swiglu"),
    "n_kv_heads": (None, 1, 2),
    "n_cross_heads": (None, 2, 8),
    "attention": ("full", "local", "linear"),
    "tied_embeddings": ("all", "decoder", "none"),
    "attention_bias": (True, False),
    "mixer": ("attention", "attention", "attention", "lstm"),
}


def anything(draw: Random) -> Settings:
    """A random valid configuration."""
    while True:
        sizes = {
            **free_sizes(draw),
            "n_heads": draw.choice((2, 4, 6)),
            "relative_clip": 3,
            "attention_window": 2,
        }
        settings = {**sizes, **{name: draw.choice(values) for name, values in FIELDS.items()}}
        if settings["positional_encoding"] == "rope":
            settings["d_k"] *= 2
        try:
            resolve_row(settings)
        except ValueError:
            continue
        return settings


def _row(what: str, longest: int = 11, seeds: Sequence[int] = (1, 2), **fields: object) -> Row:
    def settings(draw: Random) -> Settings:
        return {**free_sizes(draw), **fields}

    return Row("formulas", what, compared(settings, logits, seeds, longest))


def _both(what: str, **fields: object) -> tuple[Row, Row]:
    return (
        _row(f"{what}, both stacks", **fields),
        _row(f"{what}, decoder-only", **fields, architecture="decoder-only"),
    )


ROWS = (
    *_both("alibi", positional_encoding="alibi"),
    *_both("relative, clipped at 3", positional_encoding="relative", relative_clip=3),
    *_both("rope", positional_encoding="rope", d_k=2 * PRIMES[1]),
    *_both("local, 2 tokens at either side", attention="local", attention_window=2),
    *_both("linear", attention="linear"),
    _row(
        "linear, decoder-only, 134 tokens",
        67,
        (1,),
        attention="linear",
        architecture="decoder-only",
    ),  # three chunks
    *_both("lstm", mixer="lstm"),
    _row("no residual", residual=False),
    _row("no norm", norm_position="none"),
    Row(
        "formulas",  # in double precision: without norms, rounding may grow to more than is allowed
        "60 configurations drawn from all fields, ours in double precision",
        compared(anything, logits, range(60), longest=9, double=True),
    ),
)
