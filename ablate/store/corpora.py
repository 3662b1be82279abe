"""What is known of prepared corpora without opening them.

corpora/<id>/corpus.json describes a corpus, named by its content; corpora/<settings>.json remembers
which one was last made from a study's data settings, so that a plan need not read the corpus again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ablate.config import DataConfig
from ablate.cost import Lengths
from ablate.errors import Damaged
from ablate.store.files import read_json, write_json

MANIFEST = "corpus.json"


def remember(data: DataConfig, corpora: Path, corpus: str) -> None:
    """Note which corpus these settings made."""
    pointer = _pointer(data, corpora)
    if _read(pointer) != {"corpus": corpus}:
        write_json(pointer, {"corpus": corpus})


def known_corpus(data: DataConfig, corpora: Path) -> Path | None:
    """The description of the corpus last made from these settings; None where there is none."""
    pointer = _read(_pointer(data, corpora))
    return corpora / pointer["corpus"] / MANIFEST if pointer else None


def known_lengths(data: DataConfig, corpora: Path) -> Lengths | None:
    """The lengths of the corpus last made from these settings; None where there is none."""
    pointer = _read(_pointer(data, corpora))
    return lengths_in(corpora, pointer["corpus"]) if pointer else None


def lengths_in(corpora: Path, corpus: str) -> Lengths | None:
    """The lengths of a corpus by its id; None where it is not there, or damaged: it will be prepared again."""
    manifest = _read(corpora / corpus / MANIFEST)
    return Lengths(**manifest["lengths"]) if manifest else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except Damaged:
        return None


def _pointer(data: DataConfig, corpora: Path) -> Path:
    settings = json.dumps(data.model_dump(exclude={"folder"}), sort_keys=True)
    return corpora / f"{hashlib.sha256(settings.encode()).hexdigest()[:12]}.json"
