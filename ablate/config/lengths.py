"""Lengths of the sequences of a corpus, as sums that the costs of a row follow from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Assumed tokens per sentence while the corpus is not prepared.
ASSUMED_LENGTH = 30


@dataclass(frozen=True)
class Lengths:
    """Sums over training pairs. S and T are the lengths of a pair in tokens, with the end token."""

    pairs: int
    source_tokens: int
    target_tokens: int
    longer_tokens: int  # sum of max(S, T), the unit of batch_tokens
    source_squares: int  # sums of S^2, S * T and T^2: numbers of attention scores
    products: int
    target_squares: int

    @staticmethod
    def of_fields(sums: Mapping[str, int], fields: Sequence[str]) -> Lengths:
        """Lengths from the sums of a corpus manifest: the first field is the source, the second the
        target; with one field, there is no source.
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
    """The name of the sum of S * T: `products`, or of more than two fields the first two's."""
    return "products" if len(fields) == 2 else f"{fields[0]}_{fields[1]}"
