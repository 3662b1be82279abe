"""Whether the data and each row fit together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.config import DataConfig
from ablate.study.study import Row


def misfits(data: DataConfig, rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row that cannot be trained on such data."""
    for row in rows:
        config = row.config
        needed = config.places(data.max_length, data.max_length)
        if needed > config.max_positions:
            yield (
                f"data.max_length={data.max_length} needs {needed} positions with its marks, more than "
                f'max_positions={config.max_positions} of row "{row.label}"'
            )
        if data.max_length >= config.batch_tokens:
            yield (
                f"data.max_length={data.max_length} allows sentences that do not fit in "
                f'batch_tokens={config.batch_tokens} of row "{row.label}"'
            )
        if data.vocabulary == "separate" and not config.has_encoder:
            yield (
                "data.vocabulary=separate gives source and target ids of their own, and architecture=decoder-only of "
                f'row "{row.label}" reads both as one sequence'
            )
        elif data.vocabulary == "separate" and config.tied_embeddings == "all":
            yield (
                "data.vocabulary=separate gives source and target ids of their own, which cannot share the matrix of "
                f'tied_embeddings=all of row "{row.label}": set tied_embeddings to decoder or none'
            )
