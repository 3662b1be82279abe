"""Sums over the lengths of the sequences of a corpus, for the costs of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ASSUMED_LENGTH = 30  # assumed tokens per sentence while the corpus is not prepared


@dataclass(frozen=True)
class Lengths:
    """Sums over training pairs. S and T are the lengths of source and target in tokens, including
    the end mark.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    longer_tokens: int  # sum of max(S, T), the unit of batch_tokens
    source_squares: int  # sum of S^2: number of attention scores of the encoder
    products: int  # sum of S * T
    target_squares: int  # sum of T^2

    @staticmethod
    def of_fields(sums: Mapping[str, int], fields: Sequence[str]) -> Lengths:
        """Lengths from the sums in a corpus manifest. The first text field is the source and the
        second the target; a single field is the target.
        """
        if len(fields) == 1:
            (field,) = fields
            tokens, squares = sums[f"{field}_tokens"], sums[f"{field}_squares"]
            return Lengths(sums["pairs"], 0, tokens, sums["longer_tokens"], 0, 0, squares)
        source, target = fields[:2]
        return Lengths(
            sums["pairs"],
            sums[f"{source}_tokens"],
            sums[f"{target}_tokens"],
            sums["longer_tokens"],
            sums[f"{source}_squares"],
            sums[product_of(fields)],
            sums[f"{target}_squares"],
        )

    def cut_into_contexts(self, context: int, stride: int) -> Lengths:
        """Lengths of the same text, cut into contexts that begin every `stride` tokens."""
        trained = round(self.target_tokens * context / stride)
        return Lengths(max(1, trained // context), 0, trained, trained, 0, 0, trained * context)

    @staticmethod
    def of_length(n: int) -> Lengths:
        """Lengths of one pair with n tokens on each side."""
        return Lengths(1, n, n, n, n * n, n * n, n * n)

    @staticmethod
    def assumed() -> Lengths:
        """Lengths of one pair with ASSUMED_LENGTH tokens on each side."""
        return Lengths.of_length(ASSUMED_LENGTH)


def product_of(fields: Sequence[str]) -> str:
    """Name of the sum of S * T in a manifest: `products`; with more than two text fields, the names
    of the first two.
    """
    return "products" if len(fields) == 2 else f"{fields[0]}_{fields[1]}"
