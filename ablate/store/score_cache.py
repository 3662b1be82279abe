"""Scores of a run's stored translations: in every metric that some study asked for, and on resampled test sets.

They follow from the translations and the corpus alone, so they are only remembered, never lost: a file that is
damaged, or speaks of other translations, counts as none.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ablate.errors import StoreError
from ablate.store.files import read_json, write_json
from ablate.store.layout import RunFolder

FORMAT = 1


def read_translations(folder: RunFolder, decoding: str) -> bytes | None:
    """The translated test side, a sentence a line; None where there is none."""
    path = folder.translations(decoding)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None


def translations(folder: RunFolder, decoding: str) -> list[str]:
    """The translated sentences; only LF ends one. Empty where there are none."""
    return (read_translations(folder, decoding) or b"").decode(errors="replace").split("\n")[:-1]


def read_measured(folder: RunFolder, decoding: str, corpus: str) -> dict[str, Any]:
    """What is known of the translations, by metric: {"value", "signature", "resamples"}."""
    text = read_translations(folder, decoding)
    if text is None:
        return {}
    try:
        content = read_json(folder.scores(decoding))
    except StoreError:
        return {}
    if content is None or content.get("of") != _of(text, corpus):
        return {}
    metrics: dict[str, Any] = content["metrics"]
    return metrics


def write_measured(folder: RunFolder, decoding: str, corpus: str, metrics: dict[str, Any]) -> None:
    """Remember what is known of the translations."""
    text = read_translations(folder, decoding)
    assert text is not None
    write_json(folder.scores(decoding), {"of": _of(text, corpus), "metrics": metrics}, durable=False)


def _of(text: bytes, corpus: str) -> dict[str, Any]:
    return {"format": FORMAT, "translations": hashlib.sha256(text).hexdigest(), "corpus": corpus}
