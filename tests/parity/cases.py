"""Small random models with random padded sentences, and their logits at the target tokens."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import torch
from torch import Tensor

from ablate.config.resolve import resolve_row
from ablate.model import build
from tests.parity.row import Pairs

SEEDS = (1, 2, 3, 4)
LONGEST = 13  # tokens of a side
PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)

Settings = dict[str, Any]


class Case:
    """A model, and sentences of a batch padded to different lengths."""

    def __init__(self, settings: Settings, draw: Random, longest: int = LONGEST) -> None:
        self.V = draw.choice((37, 41, 43, 47))
        self.config = resolve_row({"max_positions": 2 * longest + 2, "dropout": 0.0, **settings})
        self.model = (
            build(self.config, self.V, seed=draw.randrange(1000)).requires_grad_(False).eval()
        )
        random = torch.Generator().manual_seed(draw.randrange(1000))
        for parameter in self.model.parameters():
            if parameter.dim() == 1:  # at 1 and 0, a missing gain or bias would go unnoticed
                parameter += 0.5 * torch.randn(parameter.shape, generator=random)
        some, others = ([draw.randint(2, longest - 1) for _ in range(2)] for _ in range(2))
        self.source = _drawn(
            draw, self.V, [longest, 1, *some]
        )  # longest with longest, and one token with several
        self.target = _drawn(draw, self.V, [longest, *others, 1])

    @property
    def pairs(self) -> list[tuple[list[int], list[int]]]:
        """The sentences, without padding."""
        sides = (
            [[int(t) for t in row if t] for row in side] for side in (self.source, self.target)
        )
        return list(zip(*sides, strict=True))

    def logits(self) -> Tensor:
        """Logits of all positions at once: (target tokens, V)."""
        return self.of_tokens(self.model.logits(self.model(self.source, self.target)))

    def logits_by_step(self) -> Tensor:
        """Logits token by token, with a cache: (target tokens, V)."""
        cache = self.model.start(self.source, 1)
        states = [self.model.step(tokens, cache) for tokens in self.target.split(1, dim=1)]
        return self.of_tokens(self.model.logits(torch.cat(states, dim=1)))

    def of_tokens(self, logits: Tensor) -> Tensor:
        """Select the logits of tokens, without padding: (B, T, V) -> (n, V)."""
        return logits[self.target != 0]


def compared(
    settings: Callable[[Random], Settings],
    oracle: Callable[[Case], Tensor],
    seeds: Sequence[int] = SEEDS,
    longest: int = LONGEST,
    double: bool = False,
) -> Callable[[], Pairs]:
    """For one case per seed, our logits, at once and step by step, with the oracle's; `double`:
    ours in fp64.
    """

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for seed in seeds:
            draw = Random(seed)
            case = Case(settings(draw), draw, longest)
            theirs = oracle(case)
            if double:
                case.model.double()
            yield case.logits(), theirs
            yield case.logits_by_step(), theirs

    return pairs


def depths(draw: Random) -> Settings:
    """Random depths of both stacks."""
    return {"encoder_layers": draw.choice((1, 2)), "decoder_layers": draw.choice((1, 2, 3))}


def free_sizes(draw: Random) -> Settings:
    """Sizes that are distinct primes, or twice one, so that any transposition breaks."""
    heads, d_k, d_v, half, d_ff = draw.sample(PRIMES, 5)
    sizes = {"n_heads": min(heads, 5), "d_k": d_k, "d_v": d_v, "d_model": 2 * half, "d_ff": d_ff}
    return {**depths(draw), **sizes}


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Token ids, padded with 0 at the end to the longest."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])


def _drawn(draw: Random, V: int, lengths: Sequence[int]) -> Tensor:
    return pad([[draw.randrange(1, V) for _ in range(length)] for length in lengths])
