"""A study in memory: its rows, and the runs that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config import DataConfig, RowConfig, decoding_id, run_id
from ablate.config.identity import settled
from ablate.config.metrics import DEFAULT_METRICS


@dataclass(frozen=True)
class Row:
    """A configuration that differs from base in named fields; base itself is the row with none."""

    label: str
    group: str
    config: RowConfig
    test: str  # what is translated
    changed: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def decoding(self) -> str:
        """The identity of the way this row decodes, and of what."""
        return decoding_id(self.config, self.test)


@dataclass(frozen=True)
class Run:
    """One training: a row's configuration with a seed. Rows that differ only in decoding share it."""

    id: str
    seed: int
    config: RowConfig
    data: DataConfig


@dataclass(frozen=True)
class Study:
    """A study, read and resolved. `rows[0]` is base; `dropped` counts rows that `where` left out."""

    name: str
    path: Path
    data: DataConfig
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    dropped: int = 0
    metrics: tuple[str, ...] = DEFAULT_METRICS  # of translations; verdicts go by the first
    text: str = field(default="", repr=False, compare=False)  # of the file, as it was read
    selected: bool = field(default=False, compare=False)  # on the command line: not the study as its file has it
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)  # of own variants, by digest
    whole: int = 1  # runs of the study before any selection, shared ones counted for each row

    @property
    def base(self) -> Row:
        """The row that every other is compared with."""
        return self.rows[0]

    @property
    def data_folder(self) -> Path:
        """Where the splits lie: `data.folder`, or beside the study file."""
        return Path(self.data.folder) if self.data.folder else self.path.parent

    @cached_property
    def _ids(self) -> dict[tuple[int, int], str]:
        return {
            (index, seed): run_id(self.data, row.config, seed)
            for index, row in enumerate(self.rows)
            for seed in self.seeds
        }

    @cached_property
    def _index(self) -> dict[str, int]:
        return {row.label: index for index, row in enumerate(self.rows)}

    def runs_of(self, row: Row) -> list[Run]:
        """The row's runs, one a seed, in the order of the seeds."""
        index = self._index[row.label]
        return [self._run(index, row, seed) for seed in self.seeds]

    def data_of(self, row: Row) -> DataConfig:
        """The data with the row's own vocabulary size."""
        return settled(self.data, row.config)[0]

    def _run(self, index: int, row: Row, seed: int) -> Run:
        data, config = settled(self.data, row.config)
        return Run(self._ids[index, seed], seed, config, data)

    def runs(self) -> Iterator[Run]:
        """Every run once, breadth first: base, then each row with the first seed, then further seeds."""
        seen: set[str] = set()
        for seed in self.seeds:
            for index, row in enumerate(self.rows):
                id = self._ids[index, seed]
                if id not in seen:
                    seen.add(id)
                    yield self._run(index, row, seed)

    @cached_property
    def decodings(self) -> dict[str, dict[str, RowConfig]]:
        """For each run, the ways in which this study's rows decode it, by their identity."""
        wanted: dict[str, dict[str, RowConfig]] = {}
        for index, row in enumerate(self.rows):
            for seed in self.seeds:
                wanted.setdefault(self._ids[index, seed], {})[row.decoding] = row.config
        return wanted
