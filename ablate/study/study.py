"""A study in memory: its rows, its seeds, and the runs that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ablate.config import RowConfig, decoding_id
from ablate.config.data import CorpusConfig
from ablate.config.identity import DEFAULT_TASK, fold_vocab_size, run_ids
from ablate.config.inactive import inactive_fields
from ablate.errors import DataError, Fault, Mark
from ablate.own.reference import Reference, parse_reference
from ablate.parts.variant import references
from ablate.stats.designs import Design
from ablate.stats.metrics import PPL
from ablate.store.status import NO_DECODING
from ablate.study.choice import AFTER, Choice
from ablate.study.matching import Matched
from ablate.tasks import TASKS, Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


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


R = TypeVar("R")


class Family(NamedTuple, Generic[R]):
    """Rows that are compared with one base, and share the noise of seeds with it.

    total: of these rows in the file, whatever part of them is here.
    """

    base: R
    rows: list[R]
    total: int


@dataclass(frozen=True)
class Study:
    """A study, read and resolved.

    rows: base first.
    dropped: number of rows that `where` drops.
    metrics: beside perplexity.
    judge: metrics that verdicts are by; empty for the first of `metrics`.
    margins: by metric, the difference within which a row counts as as good as base.
    task: of every run; task_name: as run ids have it, with the hash of a custom task's source.
    text: the file as read.
    is_modified: whether `--set`, `--rows` or `--seeds` changes the study of the file.
    plugin_sources: source code of custom classes, by its hash.
    trial_seeds: of the trials of rows with a choice.
    judged_at: numbers of seeds at which the study is judged; empty for once, with all.
    designs: groups whose rows are analyzed together.
    rows_of_bases: number of rows of the file that are compared with each base, before `--rows`.
    total_runs: rows x seeds of the file, before `--rows` and `--seeds`; a shared run counts once
        for each row.
    further_seeds: that only base is trained with.
    fixed_seeds: why `--seeds` cannot replace the seeds; empty if it can.
    split: that is decoded.
    notes: lines about rows that are probably not meant, with their positions.
    data_mark: position of the section `data`.
    """

    name: str
    path: Path
    data: CorpusConfig
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    dropped: int = 0
    metrics: tuple[str, ...] = TASKS[DEFAULT_TASK].default_metrics
    judge: tuple[str, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    task: Task = field(default=TASKS[DEFAULT_TASK], compare=False)
    task_name: str = DEFAULT_TASK
    text: str = field(default="", repr=False, compare=False)
    is_modified: bool = field(default=False, compare=False)
    plugin_sources: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    rows_of_bases: Mapping[str, int] = field(default_factory=dict)
    total_runs: int = 1
    trial_seeds: tuple[int, ...] = ()
    designs: tuple[Design, ...] = ()
    judged_at: tuple[int, ...] = ()
    further_seeds: tuple[int, ...] = ()
    fixed_seeds: str = field(default="", compare=False)
    split: Literal["test", "dev"] = "test"
    notes: tuple[str, ...] = field(default=(), compare=False)
    data_mark: Mark = field(default=Mark("the study"), compare=False)

    @property
    def base(self) -> Row:
        """The first row, which others are compared with; of several sizes, that of the first."""
        return self.rows[0]

    @property
    def families(self) -> list[Family[Row]]:
        """The rows by their bases, the first base first; a single family in most studies."""
        rows: dict[str, list[Row]] = {row.label: [] for row in self.rows if row.is_base}
        for row in self.rows:
            if not row.is_base:
                rows[row.base].append(row)
        families = []
        for label, of_base in rows.items():
            different = len(of_base) - len(self.repeated(of_base))
            count = max(different, self.rows_of_bases.get(label, 0))
            families.append(Family(self.by_label[label], of_base, count))
        return families

    @property
    def tests(self) -> int:
        """Number of rows that Holm's correction covers: those of all bases of the file, whatever
        part of them is here.
        """
        totals = dict(self.rows_of_bases)
        for base, _, total in self.families:
            totals[base.label] = total
        return sum(totals.values())

    def repeated(self, rows: Sequence[Row]) -> dict[str, str]:
        """The rows that have the same scores as an earlier one, by label, with its label: one
        comparison, which is tested once.
        """
        first: dict[tuple[Any, ...], str] = {}
        repeated = {}
        for row in rows:
            key = row.base, row.decoding, *(run.id for run in self.runs_of(row))
            earlier = first.setdefault(key, row.label)
            if earlier != row.label:
                repeated[row.label] = earlier
        return repeated

    def base_of(self, row: Row) -> Row:
        """The row that a row is compared with."""
        return self.by_label.get(row.base, self.base)

    @property
    def data_folder(self) -> Path:
        """Folder of the splits: `data.folder`, or the folder of the study file."""
        if self.data.folder:
            return Path(self.data.folder)
        return self.path.parent

    def prepare(self, data: CorpusConfig, corpora: Path, log: Callable[[str], None]) -> Corpus:
        """Prepare the corpus of a row, or find the prepared one, as `Task.prepare` does.

        Raises:
            DataError: the corpus is missing or malformed; with the position of the section `data`.
        """
        try:
            return self.task.prepare(data, self.data_folder, corpora, log)
        except DataError as error:
            raise DataError(*map(self.data_fault, error.faults)) from None

    def data_fault(self, fault: Fault) -> Fault:
        """A fault of a corpus, with the position of the section `data`."""
        return fault.of("data").at(self.data_mark)

    @cached_property
    def _runs(self) -> dict[tuple[str, int], Run]:
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

    @cached_property
    def by_label(self) -> dict[str, Row]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    def runs_of(self, row: Row) -> list[Run]:
        """The row's runs in the order of the seeds."""
        return [self._runs[row.label, seed] for seed in self.seeds_of(row)]

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """The seeds with which a row is trained."""
        if row.is_base:
            return *self.seeds, *self.further_seeds
        return self.seeds

    @property
    def judged(self) -> tuple[str, ...]:
        """Names of the metrics that verdicts are by, the main one first."""
        return self.judge or self.metrics[:1]

    @property
    def plan(self) -> tuple[int, ...]:
        """Numbers of seeds at which the study is judged; a single one, that of all, in most."""
        return self.judged_at or (len(self.seeds),)

    def share_of_level(self, metric: str) -> float:
        """The part of the level at which a metric is tested: an equal one for each that verdicts
        are by, so that their sum is the level (Bonferroni); all of it for any other.
        """
        if metric in self.judged:
            return 1 / len(self.judged)
        return 1.0

    def data_of(self, row: Row) -> CorpusConfig:
        """The data settings with the row's vocabulary size."""
        return fold_vocab_size(self.data, row.config)[0]

    def plugins_of(self, run: Run) -> tuple[Reference, ...]:
        """Every plug-in of a run: those of its configuration, and the task."""
        return self._with_task(references(run.config))

    @property
    def custom_classes(self) -> tuple[Reference, ...]:
        """Every custom class of the study: those of its rows, and the task."""
        of_rows: list[Reference] = []
        for row in self.rows:
            of_rows += references(row.config)
        return self._with_task(of_rows)

    def _with_task(self, plugins: Iterable[Reference]) -> tuple[Reference, ...]:
        """Each plug-in once, and the task, if that is one."""
        task = parse_reference(self.task_name)
        return tuple(filter(None, dict.fromkeys((*plugins, task))))

    @cached_property
    def trials(self) -> Study | None:
        """The trials as a study, with a row for each candidate; None without any."""
        rows: list[Row] = []
        for row in self.rows:
            rows += self.trials_of(row)
        return self._first(rows, self.trial_seeds) if rows else None

    def _first(self, rows: Sequence[Row], seeds: tuple[int, ...]) -> Study:
        """A study of rows that are executed before the own ones, and judged by no verdict."""
        return replace(
            self,
            rows=tuple(rows),
            seeds=seeds,
            further_seeds=(),
            metrics=(PPL.name,),
            judge=(),
            trial_seeds=(),
            total_runs=len(rows) * len(seeds),
            designs=(),
            judged_at=(),
        )

    @cached_property
    def on_dev(self) -> Study | None:
        """Base's own runs, decoded on dev with each candidate of the decoding; None without any.

        The seeds are those that are judged first: the choice must not move when more are trained.
        """
        base, choice = self.base, self.base.decoding_choice
        if choice is None or base.awaits_values:
            return None
        seeds, rows = self.seeds[: self.plan[0]], []
        for row in self.trials_of(replace(base, choice=choice)):
            config = base.config.model_copy(update=row.changed)
            rows.append(replace(row, config=config, test=f"dev {row.test}", is_decoded=True))
        return replace(self._first(rows, seeds), split="dev", total_runs=len(seeds))

    @property
    def pending_trials(self) -> Study | None:
        """The trials, if some row waits for them; then base's, if decoding is not chosen."""
        if any(row.awaits_values for row in self.rows):
            return self.trials
        return self.on_dev if self.base.awaits_decoding else None

    @staticmethod
    def trials_of(row: Row) -> list[Row]:
        """The rows of `trials` that belong to a row: one for each candidate."""
        trials: list[Row] = []
        if row.own_choice is None:
            return trials
        base = f"{row.label}: {row.own_choice.candidates[0].label}"
        for candidate in row.own_choice.candidates:
            label, values = f"{row.label}: {candidate.label}", dict(candidate.values)
            trial = Row(label, row.label, candidate.trial, row.test, values, base=base)
            trials.append(replace(trial, is_decoded=False))
        return trials

    def all_runs(self) -> Iterator[Run]:
        """Yield every run once: those of the trials, then those of the rows."""
        runs: dict[str, Run] = {}
        for study in filter(None, (self.trials, self.on_dev, self)):
            for run in study.runs():
                runs.setdefault(run.id, run)
        yield from runs.values()

    def runs(self) -> Iterator[Run]:
        """Yield every run once: all rows with the first seed, then with the next ones."""
        seen: set[str] = set()
        for seed in (*self.seeds, *self.further_seeds):
            # All rows with the first seed come first: an interrupted study has a complete table.
            for row in self.rows:
                run = self._runs.get((row.label, seed))
                if run is not None and run.id not in seen:
                    seen.add(run.id)
                    yield run


_SAY_POSITIONS = ("architecture", "context", "positional_encoding")


def changes(config: RowConfig, base: RowConfig) -> dict[str, Any]:
    """The fields that differ from base and have an effect in `config`, with its values."""
    inactive = {*inactive_fields(config)}
    changed = {}
    # The number of learned positions that a study leaves out follows from these.
    if any(getattr(config, name) != getattr(base, name) for name in _SAY_POSITIONS):
        inactive.add("max_positions")
    for name, value in config.model_dump().items():
        if value != getattr(base, name) and name not in inactive:
            changed[name] = value
    return changed
