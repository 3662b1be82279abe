"""Warnings about text that looks tokenized or HTML-escaped: scores need detokenized, plain text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablate.data.readers import Record

# Plain text contains an entity, or a space before a full stop, now and then. Only a large share of lines is a sign.
SHARE = 0.1
CHECKED_RECORDS = 20_000  # at the beginning of a split

_MOSES = re.compile(r" @-@ |(?:^| )&(?:apos|quot|#91|#93|#124);|[^\s.] [.?!]$")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,5});")


class CorpusWarnings:
    """Collects one line per warning, for each field of each split."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def check(self, split: str, records: Sequence[Record], labels: Sequence[str]) -> None:
        """Check the beginning of a split; `labels` name the fields, such as languages."""
        beginning = [texts for _, texts in records[:CHECKED_RECORDS]]
        for field, label in enumerate(labels):
            for pattern, what in ((_ENTITY, "HTML-escaped"), (_MOSES, "Moses-tokenized")):
                share = sum(pattern.search(texts[field]) is not None for texts in beginning) / max(1, len(beginning))
                if share >= SHARE:
                    self._lines.append(f"{split} ({label}): {share:.0%} of lines look {what}; scores need plain text")

    def add(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def lines(self) -> list[str]:
        """All warnings, in the order in which they were found."""
        return list(self._lines)
