"""Sums over the lengths of the records of a split, which the manifest of a corpus stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.config.lengths import product_of


def length_sums(fields: Sequence[str], chunks: Iterable[NDArray[np.integer[Any]]]) -> Counter[str]:
    """Compute the sums from which `config/cost.py` computes costs. Lengths are in tokens with EOS.
    Each chunk has the lengths of records, in the shape (fields, records).

    Returns:
        `pairs` (number of records); `FIELD_tokens` and `FIELD_squares` (sums of lengths and of
        their squares); `longer_tokens` (sum of the longest field of each record); the product of
        the first two fields, whose name is `product_of(fields)`; `longest` (a maximum, not a sum).
    """
    sums = Counter[str]()
    longest = 0
    for lengths in chunks:
        wide = lengths.astype(np.int64)  # products overflow 32 bits
        sums["pairs"] += wide.shape[1]
        # In the order of the keys in a manifest, whose bytes stay the same.
        for field, field_lengths in zip(fields, wide, strict=True):
            sums[f"{field}_tokens"] += int(field_lengths.sum())
        sums["longer_tokens"] += int(wide.max(axis=0).sum())
        for index, field in enumerate(fields):
            sums[f"{field}_squares"] += int((wide[index] ** 2).sum())
            if index == 0 and len(fields) > 1:
                sums[product_of(fields)] += int((wide[0] * wide[1]).sum())
        longest = max(longest, int(wide.max(initial=0)))
    sums["longest"] = longest
    return sums
