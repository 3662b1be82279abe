"""What text looks like that sacreBLEU does not expect: it wants plain, detokenized text."""

from __future__ import annotations

import re
from collections.abc import Sequence

# A share of lines this large is no accident. Plain text has a full stop after a space, or an entity, once in a while.
SHARE = 0.1
LOOKED_AT = 20_000  # pairs of a split

_MOSES = re.compile(r" @-@ |(?:^| )&(?:apos|quot|#91|#93|#124);|[^\s.] [.?!]$")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,5});")


class Notices:
    """Collects what is noticed of each side of each split."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def look(self, split: str, pairs: Sequence[tuple[int, str, str]], languages: tuple[str, str]) -> None:
        """Look at a split's beginning."""
        some = pairs[:LOOKED_AT]
        sides = ([source for _, source, _ in some], [target for _, _, target in some])
        for side, language in zip(sides, languages, strict=True):
            for pattern, what in ((_ENTITY, "HTML-escaped"), (_MOSES, "Moses-tokenized")):
                share = sum(pattern.search(text) is not None for text in side) / max(1, len(side))
                if share >= SHARE:
                    self._lines.append(
                        f"{split} ({language}): {share:.0%} of lines look {what}; sacreBLEU wants plain text"
                    )

    def add(self, line: str) -> None:
        """Something else that was noticed."""
        self._lines.append(line)

    def lines(self) -> list[str]:
        """A line for each thing noticed."""
        return self._lines
