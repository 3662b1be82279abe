"""What a worker is asked to do, as one JSON line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Unit:
    """A run to carry out.

    folder: the run's folder, in which run.json says what it is.
    corpus: the prepared corpus' folder.
    test: what the study calls its test side.
    decodings: the ways to decode it, by identity.
    device: `cpu` or `cuda:0`.
    settings: what the study says of the carrying out, now: it may have changed since the run was laid out.
    threads, fitting_tokens: how, unless the run has begun and says so itself, or the study says so.
    smaller: the system ended its last worker for want of memory, so its micro-batches are to be halved.
    """

    folder: str
    corpus: str
    test: str
    decodings: dict[str, dict[str, Any]]
    device: str
    settings: dict[str, Any]
    threads: int
    fitting_tokens: int
    smaller: bool = False

    def line(self) -> str:
        """For a worker's standard input."""
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def parse(line: str) -> Unit:
        """From a worker's standard input."""
        return Unit(**json.loads(line))
