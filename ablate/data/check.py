"""What can be said of a study's data before anything is read: cheap enough for a plan."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ablate.config import DataConfig
from ablate.data.places import sources_of
from ablate.data.sources import Tables
from ablate.errors import DataError

PARQUET = ".parquet"


def data_faults(data: DataConfig, folder: Path, corpora: Path) -> tuple[str, ...]:
    """A line for every split that is not there or cannot be read here; nothing is downloaded."""
    try:
        sources = sources_of(data, folder, corpora)
    except DataError as error:
        return error.lines
    tables = [path for source in sources.values() if isinstance(source, Tables) for path in source.paths]
    if any(path.endswith(PARQUET) for path in tables) and importlib.util.find_spec("pyarrow") is None:
        return ("parquet files need pyarrow; install it with: pip install 'ablate-transformer[parquet]'",)
    return ()
