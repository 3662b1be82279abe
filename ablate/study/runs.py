"""The runs that train the rows of a study, in the order of execution."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size, run_ids
from ablate.stats.metrics import PPL
from ablate.stats.significance import repeated_comparisons
from ablate.study.choice import AFTER_TUNING
from ablate.study.row import Row
from ablate.study.seeds import Seeds
from ablate.study.study import Study


@dataclass(frozen=True)
class Run:
    """One training: a configuration with one seed. Rows that differ only in decoding share a run.

    id: id of the run, and name of its folder.
    config: configuration of the training.
    data: data settings, with the vocabulary size of the row.
    awaits_choice: whether the configuration is not known yet. Then the run has no folder, and it
        cannot be executed.
    decodings: configurations with which the run is decoded, by decoding id; empty for a tuning run.
    split: the split that is decoded.
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
    """The runs of some rows of a study, in the order of execution: all rows with the first seed,
    then all rows with the next seed, so that an interrupted study has a complete table.

    study: the study.
    rows: the rows, base first. A row whose tuning runs are complete has the configuration that they
        chose.
    seeds: seeds with which the rows are trained.
    split: the split that is decoded.
    """

    study: Study
    rows: tuple[Row, ...]
    seeds: Seeds
    split: Literal["test", "dev"] = "test"

    def __iter__(self) -> Iterator[Run]:
        """Yield every run once."""
        yield from self.by_id.values()

    @cached_property
    def by_id(self) -> dict[str, Run]:
        """Every run by its id."""
        runs: dict[str, Run] = {}
        for seed in self.seeds.base:
            for row in self.rows:
                run = self._by_row.get((row.label, seed))
                if run is not None:
                    runs.setdefault(run.id, run)
        return runs

    @cached_property
    def _by_row(self) -> dict[tuple[str, int], Run]:
        """The runs by (label of the row, seed). Runs with the same id share one mapping of
        decodings.
        """
        runs: dict[tuple[str, int], Run] = {}
        decodings_by_id: dict[str, dict[str, RowConfig]] = {}
        for row in self.rows:
            data, config = fold_vocab_size(self.study.data, row.config)
            task = self.study.task_name
            # The configuration is not known yet, so the ids must differ from all real ids.
            if row.awaits_values:
                task += f"{AFTER_TUNING} {row.label}"
            for seed, id in run_ids(data, config, self.seeds_of(row), task).items():
                decodings = decodings_by_id.setdefault(id, {})
                if row.is_decoded and not row.awaits_decoding:
                    decodings[row.decoding] = row.config
                run = Run(id, seed, config, data, row.awaits_choice, decodings, self.split)
                runs[row.label, seed] = run
        return runs

    def of(self, row: Row) -> list[Run]:
        """The runs of a row, in the order of the seeds."""
        return [self._by_row[row.label, seed] for seed in self.seeds_of(row)]

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """The seeds with which a row is trained."""
        return self.seeds.base if row.is_base else self.seeds.rows

    def data_of(self, row: Row) -> CorpusConfig:
        """The data settings of the study, with the vocabulary size of a row."""
        return fold_vocab_size(self.study.data, row.config)[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics to show: metrics of the study, or perplexity for tuning runs."""
        if self.split == "dev" or not self.base.is_decoded:
            return (PPL.name,)
        return self.study.metrics.shown

    def with_seeds(self, seeds: Seeds) -> Runs:
        """The runs of the same rows with other seeds."""
        return replace(self, seeds=seeds)

    def with_rows(self, labels: Collection[str]) -> Runs:
        """The runs of some of the rows."""
        return replace(self, rows=tuple(row for row in self.rows if row.label in labels))

    def intersection(self, other: Runs) -> Runs:
        """The runs of the rows and seeds that are in both `self` and `other`."""
        return self.with_rows(other.by_label).with_seeds(self.seeds.intersection(other.seeds))

    @property
    def base(self) -> Row:
        """The base of the first size, which is the first row."""
        return self.rows[0]

    @cached_property
    def by_label(self) -> dict[str, Row]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    @cached_property
    def labels(self) -> dict[str, str]:
        """A name for each run, by id: the label of its first row, and the seed if there are
        several seeds.
        """
        labels: dict[str, str] = {}
        has_seeds = any(len(self.seeds_of(row)) > 1 for row in self.rows)
        for row in self.rows:
            for run in self.of(row):
                label = f"{row.label} seed {run.seed}" if has_seeds else row.label
                labels.setdefault(run.id, label)
        return labels

    def base_of(self, row: Row) -> Row:
        """The row with which a row is compared."""
        return self.by_label.get(row.base, self.base)

    @cached_property
    def comparisons(self) -> dict[str, int]:
        """Number of comparisons with each base, by the label of base. All rows of the file count,
        even if only some are selected, because Holm's correction covers all comparisons.
        """
        whole = Runs(self.study, self.study.whole.rows, self.study.whole.seeds.first(1))
        counts = whole._distinct_rows
        for label, count in self._distinct_rows.items():
            # Rows that are equal as written can differ once their decoding is chosen.
            counts[label] = max(counts[label], count)
        return counts

    @cached_property
    def repeated(self) -> dict[str, str]:
        """The rows that have the same runs and decoding as an earlier row: label -> label of the
        earlier row. Both rows are one comparison, which is tested once.
        """
        keys = {}
        for row in self.rows:
            if not row.is_base:
                first_run = self.of(row)[0]  # tells the configuration; the seeds are the same
                keys[row.label] = (row.base, row.decoding, first_run.id)
        return repeated_comparisons(keys)

    @property
    def _distinct_rows(self) -> dict[str, int]:
        """Number of rows that are compared with each base, without repeated rows, by the label of
        base.
        """
        counts = {row.label: 0 for row in self.rows if row.is_base}
        for row in self.rows:
            if not row.is_base and row.label not in self.repeated:
                counts[row.base] += 1
        return counts


def runs_of(study: Study) -> Runs:
    """The runs of the rows as written, before tuning runs have chosen configurations."""
    return Runs(study, study.rows, study.seeds)
