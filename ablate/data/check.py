"""What can be said of a study's data before anything is read: cheap enough for a plan."""

from __future__ import annotations

from pathlib import Path

from ablate.config import DataConfig
from ablate.data.columns import PARQUET, refuse_parquet
from ablate.data.named import NAMED
from ablate.data.places import sources_of
from ablate.data.remote import OnHub
from ablate.data.sources import Tables
from ablate.errors import DataError


def data_faults(data: DataConfig, folder: Path, corpora: Path) -> tuple[str, ...]:
    """A line for every split that is not there or cannot be read here; nothing is downloaded."""
    try:
        sources = sources_of(data, folder, corpora)
        for source in sources.values():
            if isinstance(source, Tables):
                refuse_parquet(source.paths)
            elif isinstance(source, OnHub) and data.corpus in NAMED and NAMED[data.corpus].parquet:
                refuse_parquet([PARQUET])
    except DataError as error:
        return error.lines
    return ()
