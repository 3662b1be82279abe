"""Rows, and the runs that train them: what there is to execute, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from ablate.config import RowConfig, decoding_id
from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size, run_ids
from ablate.store.status import NO_DECODING
from ablate.study.choice import AFTER, Choice
from ablate.study.matching import Matched


@dataclass(frozen=True)
class Row:
    """A configuration of the study, compared with base.

    label: stable and readable, such as `A h=1 d_k=512`; `base` for base.
    group: name of the group that makes the row.
    config: the resolved configuration.
    test: what is evaluated, as in `data.evaluated`.
    changed: the fields that differ from base, with the row's values; empty for base.
    matched: the field that gives the row base's cost; None without `match`.
    choice: among the candidates of the row; None without any.
    is_chosen_as_base: whether base's trials choose, because the group has `tune: false`.
    decoding_choice: among decodings, the same for all rows but for the fields that the row sets;
        None without candidates.
    is_decoded: False for a trial, which is scored by its last evaluation.
    base: label of the row that it is compared with; a base's own label.
    size: of a study at several sizes.
    is_labeled: whether the study writes the label, which then does not show the settings.
    has_parts: whether the label has names of a design's parts in the place of their settings.
    """

    label: str
    group: str
    config: RowConfig
    test: str
    changed: dict[str, Any] = field(default_factory=dict)
    matched: Matched | None = None
    choice: Choice | None = None
    is_chosen_as_base: bool = False
    is_decoded: bool = True
    base: str = "base"
    size: str = ""
    is_labeled: bool = False
    has_parts: bool = False
    decoding_choice: Choice | None = None

    @cached_property
    def decoding(self) -> str:
        """Id of the row's decoding, by its fields and the test split; NO_DECODING for none."""
        if not self.is_decoded:
            return NO_DECODING
        after = AFTER * self.awaits_decoding
        return decoding_id(self.config, f"{self.test}{after}")

    @property
    def is_base(self) -> bool:
        """Whether other rows are compared with this one; every size has a base of its own."""
        return self.base == self.label

    @property
    def name(self) -> str:
        """The label without the size."""
        return self.label.removeprefix(f"{self.size} ")

    @property
    def own_choice(self) -> Choice | None:
        """The choice by trials of the row itself."""
        return None if self.is_chosen_as_base else self.choice

    @property
    def awaits_choice(self) -> bool:
        """Whether the row is not trained yet, because trials are missing."""
        return self.awaits_values or (self.awaits_decoding and not self.is_base)

    @property
    def awaits_values(self) -> bool:
        """Whether it is not known yet what is trained."""
        return self.choice is not None and self.choice.chosen is None

    @property
    def awaits_decoding(self) -> bool:
        """Whether base has not yet shown how to decode."""
        return self.decoding_choice is not None and self.decoding_choice.chosen is None


@dataclass(frozen=True)
class Run:
    """One training: a configuration with one seed. Rows that differ only in decoding share it.

    awaits_choice: whether the configuration is not known yet. The id then names no folder, and
        nothing is trained.
    decodings: configurations that decode the run, by decoding id; empty for a trial.
    split: that they decode.
    """

    id: str
    seed: int
    config: RowConfig
    data: CorpusConfig
    awaits_choice: bool = False
    decodings: Mapping[str, RowConfig] = field(default_factory=dict, compare=False, repr=False)
    split: Literal["test", "dev"] = "test"


@dataclass(frozen=True)
class Runs:
    """The runs of some rows, in the order of execution: all rows with the first seed, then with the
    next one, so that an interrupted study has a complete table.

    rows: base first.
    seeds: that each row is trained with.
    further_seeds: that only base is trained with.
    data: settings of the study.
    task_name: as run ids have it, with the hash of a custom task's source.
    metrics: that show what the runs give, beside perplexity.
    split: that is decoded.
    """

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    further_seeds: tuple[int, ...]
    data: CorpusConfig
    task_name: str
    metrics: tuple[str, ...]
    split: Literal["test", "dev"] = "test"

    def __iter__(self) -> Iterator[Run]:
        """Yield every run once."""
        yield from self.by_id.values()

    @cached_property
    def by_id(self) -> dict[str, Run]:
        """Every run by its id."""
        runs: dict[str, Run] = {}
        for seed in (*self.seeds, *self.further_seeds):
            for row in self.rows:
                run = self._of_rows.get((row.label, seed))
                if run is not None:
                    runs.setdefault(run.id, run)
        return runs

    @cached_property
    def _of_rows(self) -> dict[tuple[str, int], Run]:
        """The runs by (label of the row, seed); those of one training know all its decodings."""
        runs: dict[tuple[str, int], Run] = {}
        of_trainings: dict[str, dict[str, RowConfig]] = {}
        for row in self.rows:
            data, config = fold_vocab_size(self.data, row.config)
            task = self.task_name
            # Without a configuration yet, its ids must belong to no training.
            if row.awaits_values:
                task += f"{AFTER} {row.label}"
            for seed, id in run_ids(data, config, self.seeds_of(row), task).items():
                decodings = of_trainings.setdefault(id, {})
                if row.is_decoded and not row.awaits_decoding:
                    decodings[row.decoding] = row.config
                run = Run(id, seed, config, data, row.awaits_choice, decodings, self.split)
                runs[row.label, seed] = run
        return runs

    def of(self, row: Row) -> list[Run]:
        """The row's runs in the order of the seeds."""
        return [self._of_rows[row.label, seed] for seed in self.seeds_of(row)]

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """The seeds with which a row is trained."""
        if row.is_base:
            return *self.seeds, *self.further_seeds
        return self.seeds

    def data_of(self, row: Row) -> CorpusConfig:
        """The data settings with the row's vocabulary size."""
        return fold_vocab_size(self.data, row.config)[0]

    def with_seeds(self, seeds: tuple[int, ...], further: tuple[int, ...] = ()) -> Runs:
        """The runs of the same rows with other seeds."""
        return replace(self, seeds=seeds, further_seeds=further)

    def common(self, other: Runs) -> Runs:
        """These runs as far as the other ones have their rows and seeds."""
        seeds = tuple(seed for seed in self.seeds if seed in other.seeds)
        further = tuple(seed for seed in self.further_seeds if seed in other.further_seeds)
        return self.with_rows({row.label for row in other.rows}).with_seeds(seeds, further)

    def with_rows(self, labels: Collection[str]) -> Runs:
        """The runs of some of the rows."""
        return replace(self, rows=tuple(row for row in self.rows if row.label in labels))
