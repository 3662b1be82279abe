"""What is known of prepared corpora without opening them.

corpora/<id>/corpus.json describes a corpus, named by its content; corpora/<settings>.json remembers
which one was last made from a study's data settings, so that a plan need not read the corpus again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.config import DataConfig
from ablate.config.cost import Lengths
from ablate.config.identity import INTRODUCED_DATA
from ablate.errors import Damaged
from ablate.store.files import read_json, write_json

MANIFEST = "corpus.json"
_FIRST = {"vocab_size", "max_length"}  # in the pointer's name from the first version on, at their defaults too


def remember(data: DataConfig, corpora: Path, corpus: str, signature: Sequence[Any] = ()) -> None:
    """Note which corpus these settings made, of files with this signature."""
    pointer, content = _pointer(data, corpora), {"corpus": corpus, "signature": list(signature)}
    if _read(pointer) != json.loads(json.dumps(content)):
        write_json(pointer, content)


def remembered(data: DataConfig, corpora: Path, signature: Sequence[Any], format: int | None = None) -> str | None:
    """The corpus that these settings last made of files with this signature; None where none (of this format) is."""
    pointer = _read(_pointer(data, corpora))
    if not pointer or pointer.get("signature") != json.loads(json.dumps(list(signature))):
        return None
    manifest = _read(corpora / pointer["corpus"] / MANIFEST)
    return str(pointer["corpus"]) if manifest is not None and format in (None, manifest["format"]) else None


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
    values = data.model_dump(exclude={"folder"})
    later = {name for name, default in INTRODUCED_DATA.items() if name in values and values[name] == default} - _FIRST
    settings = json.dumps({name: value for name, value in values.items() if name not in later}, sort_keys=True)
    return corpora / f"{hashlib.sha256(settings.encode()).hexdigest()[:12]}.json"
