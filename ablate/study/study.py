"""A study in memory: its rows, its seeds, and the runs that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.config import DataConfig, RowConfig, decoding_id, run_id
from ablate.config.identity import fold_vocab_size
from ablate.config.plugins import Reference, parse_reference, references
from ablate.study.matching import Matched
from ablate.tasks import TASKS, Task, Translation


@dataclass(frozen=True)
class Row:
    """A configuration of the study, compared with base.

    label: stable and readable, such as `A h=1 d_k=512`; `base` for base.
    group: name of the group that makes the row.
    config: the resolved configuration.
    test: test split to translate, as in `data.test`.
    changed: the fields that differ from base, with the row's values; empty for base.
    matched: the field that gives the row base's cost; None without `match`.
    """

    label: str
    group: str
    config: RowConfig
    test: str
    changed: dict[str, Any] = field(default_factory=dict)
    matched: Matched | None = None

    @cached_property
    def decoding(self) -> str:
        """Id of the row's decoding: its decoding fields and the test split."""
        return decoding_id(self.config, self.test)


@dataclass(frozen=True)
class Run:
    """One training: a row's configuration with one seed. Rows that differ only in decoding share it."""

    id: str
    seed: int
    config: RowConfig
    data: DataConfig


@dataclass(frozen=True)
class Study:
    """A study, read and resolved.

    rows: base first.
    dropped: number of rows that `where` drops.
    metrics: beside perplexity; verdicts use the first.
    task: of every run; task_name: as run ids have it, with the hash of a custom task's source.
    text: the file as read.
    is_modified: whether `--set`, `--rows` or `--seeds` changes the study of the file.
    plugin_sources: source code of custom classes, by its hash.
    total_runs: rows x seeds of the file, before `--rows` and `--seeds`; a shared run counts once for each row.
    """

    name: str
    path: Path
    data: DataConfig
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    dropped: int = 0
    metrics: tuple[str, ...] = Translation.default_metrics
    task: Task = field(default=TASKS[Translation.name], compare=False)
    task_name: str = Translation.name
    text: str = field(default="", repr=False, compare=False)
    is_modified: bool = field(default=False, compare=False)
    plugin_sources: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    total_runs: int = 1

    @property
    def base(self) -> Row:
        """The row that every other row is compared with."""
        return self.rows[0]

    @property
    def data_folder(self) -> Path:
        """Folder of the splits: `data.folder`, or the folder of the study file."""
        return Path(self.data.folder) if self.data.folder else self.path.parent

    @cached_property
    def _ids(self) -> dict[tuple[int, int], str]:
        """Run ids by (index of the row, seed)."""
        # By index, since a Row holds a dict and cannot be a key.
        return {
            (index, seed): run_id(self.data, row.config, seed, self.task_name)
            for index, row in enumerate(self.rows)
            for seed in self.seeds
        }

    @cached_property
    def _index(self) -> dict[str, int]:
        return {row.label: index for index, row in enumerate(self.rows)}

    def runs_of(self, row: Row) -> list[Run]:
        """The row's runs in the order of the seeds."""
        index = self._index[row.label]
        return [self._run(index, row, seed) for seed in self.seeds]

    def data_of(self, row: Row) -> DataConfig:
        """The data settings with the row's vocabulary size."""
        return fold_vocab_size(self.data, row.config)[0]

    def plugins_of(self, run: Run) -> tuple[Reference, ...]:
        """Every plug-in of a run: those of its configuration, and the task."""
        task = parse_reference(self.task_name)
        return (*references(run.config), *([task] if task else []))

    def _run(self, index: int, row: Row, seed: int) -> Run:
        data, config = fold_vocab_size(self.data, row.config)
        return Run(self._ids[index, seed], seed, config, data)

    def runs(self) -> Iterator[Run]:
        """Yield every run once: base and then each row with the first seed, then with the next seeds."""
        seen: set[str] = set()
        for seed in self.seeds:
            # All rows with the first seed come first, so that an interrupted study has a complete table.
            for index, row in enumerate(self.rows):
                id = self._ids[index, seed]
                if id not in seen:
                    seen.add(id)
                    yield self._run(index, row, seed)

    @cached_property
    def decodings(self) -> dict[str, dict[str, RowConfig]]:
        """For each run id, the configurations that decode the run, by decoding id."""
        decodings: dict[str, dict[str, RowConfig]] = {}
        for index, row in enumerate(self.rows):
            for seed in self.seeds:
                decodings.setdefault(self._ids[index, seed], {})[row.decoding] = row.config
        return decodings
