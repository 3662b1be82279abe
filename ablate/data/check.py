"""What can be said of a study's data before anything is read: cheap enough for a plan."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ablate.config import DataConfig
from ablate.data.resolve_sources import sources_of
from ablate.data.sources import Aligned, Tables
from ablate.errors import DataError
from ablate.store.corpora import remembered


def data_faults(data: DataConfig, folder: Path, corpora: Path) -> tuple[str, ...]:
    """A line for every split that is not there or cannot be read here; nothing is downloaded."""
    try:
        sources_of(data, folder, corpora)
    except DataError as error:
        return error.lines
    return ()


def is_other_text(data: DataConfig, folder: Path, corpora: Path, used: Collection[str]) -> bool:
    """Whether a study's files are not, as far as is known without reading them, those that these corpora were made of.

    Of files that are not there, and of what is downloaded or generated, nothing is said.
    """
    try:
        sources = sources_of(data, folder, corpora).values()
        if not all(isinstance(source, (Aligned, Tables)) for source in sources):
            return False
        signature = [source.signature() for source in sources]
    except DataError:
        return False
    return remembered(data, corpora, signature) not in used
