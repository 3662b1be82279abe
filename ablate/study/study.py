"""A study in memory: its rows, its seeds, and the runs that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.identity import DEFAULT_TASK
from ablate.config.inactive import inactive_fields
from ablate.errors import DataError, Fault, Mark
from ablate.own.reference import Reference, parse_reference
from ablate.parts.variant import references
from ablate.stats.designs import Design
from ablate.stats.metrics import PPL
from ablate.study.runs import Row, Run, Runs
from ablate.tasks import TASKS, Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


R = TypeVar("R")


class Family(NamedTuple, Generic[R]):
    """Rows that are compared with one base, and share the noise of seeds with it.

    total: of these rows in the file, whatever part of them is here.
    """

    base: R
    rows: list[R]
    total: int


@dataclass(frozen=True)
class Source:
    """The file that a study was read from.

    text: as read.
    notes: lines about rows that are probably not meant, with their positions.
    data_mark: position of the section `data`.
    classes: source code of custom classes, by its hash.
    fixed_seeds: why `--seeds` cannot replace the seeds; empty if it can.
    is_modified: whether `--set`, `--rows` or `--seeds` changes the study of the file.
    """

    text: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()
    data_mark: Mark = field(default=Mark("the study"))
    classes: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    fixed_seeds: str = ""
    is_modified: bool = False


@dataclass(frozen=True)
class Whole:
    """What the file asks for, whatever part of it `--rows` and `--seeds` select.

    rows_of_bases: number of rows that are compared with each base.
    runs: rows x seeds; a shared run counts once for each row.
    dropped: number of rows that `where` drops.
    """

    rows_of_bases: Mapping[str, int] = field(default_factory=dict)
    runs: int = 1
    dropped: int = 0


@dataclass(frozen=True)
class Study:
    """A study, read and resolved.

    rows: base first.
    metrics: beside perplexity.
    judge: metrics that verdicts are by; empty for the first of `metrics`.
    margins: by metric, the difference within which a row counts as as good as base.
    task: of every run; task_name: as run ids have it, with the hash of a custom task's source.
    source: the file.
    whole: of the file, before a selection of rows and seeds.
    trial_seeds: of the trials of rows with a choice.
    judged_at: numbers of seeds at which the study is judged; empty for once, with all.
    designs: groups whose rows are analyzed together.
    further_seeds: that only base is trained with.
    """

    name: str
    path: Path
    data: CorpusConfig
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    metrics: tuple[str, ...] = TASKS[DEFAULT_TASK].default_metrics
    judge: tuple[str, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    task: Task = field(default=TASKS[DEFAULT_TASK], compare=False)
    task_name: str = DEFAULT_TASK
    source: Source = field(default=Source(), compare=False)
    whole: Whole = Whole()
    trial_seeds: tuple[int, ...] = ()
    designs: tuple[Design, ...] = ()
    judged_at: tuple[int, ...] = ()
    further_seeds: tuple[int, ...] = ()

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
            count = max(different, self.whole.rows_of_bases.get(label, 0))
            families.append(Family(self.by_label[label], of_base, count))
        return families

    @property
    def tests(self) -> int:
        """Number of rows that Holm's correction covers: those of all bases of the file, whatever
        part of them is here.
        """
        totals = dict(self.whole.rows_of_bases)
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
        return fault.of("data").at(self.source.data_mark)

    @cached_property
    def by_label(self) -> dict[str, Row]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    def runs_of(self, row: Row) -> list[Run]:
        """The row's runs in the order of the seeds."""
        return self.runs().of(row)

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """The seeds with which a row is trained."""
        return self.runs().seeds_of(row)

    @property
    def judged(self) -> tuple[str, ...]:
        """Names of the metrics that verdicts are by, the main one first."""
        return self.judge or self.metrics[:1]

    @property
    def plan(self) -> tuple[int, ...]:
        """Numbers of seeds at which the study is judged; a single one, that of all, in most."""
        return self.judged_at or (len(self.seeds),)

    def data_of(self, row: Row) -> CorpusConfig:
        """The data settings with the row's vocabulary size."""
        return self.runs().data_of(row)

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
    def trials(self) -> Runs | None:
        """The trials, with a row for each candidate; None without any."""
        return self.trials_of(self.rows)

    def trials_of(self, rows: Iterable[Row]) -> Runs | None:
        """The trials of some rows; None without any."""
        candidates: list[Row] = []
        for row in rows:
            candidates += self.trial_rows(row)
        return self._first(candidates, self.trial_seeds) if candidates else None

    def _first(
        self, rows: Sequence[Row], seeds: tuple[int, ...], split: Literal["test", "dev"] = "test"
    ) -> Runs:
        """The runs of rows that are executed before the own ones, and judged by no verdict."""
        return Runs(tuple(rows), seeds, (), self.data, self.task_name, (PPL.name,), split)

    @cached_property
    def on_dev(self) -> Runs | None:
        """Base's own runs, decoded on dev with each candidate of the decoding; None without any.

        The seeds are those that are judged first: the choice must not move when more are trained.
        """
        base, choice = self.base, self.base.decoding_choice
        if choice is None or base.awaits_values:
            return None
        seeds, rows = self.seeds[: self.plan[0]], []
        for row in self.trial_rows(replace(base, choice=choice)):
            config = base.config.model_copy(update=row.changed)
            rows.append(replace(row, config=config, test=f"dev {row.test}", is_decoded=True))
        return self._first(rows, seeds, "dev")

    def pending_trials(self, rows: Sequence[Row]) -> Runs | None:
        """The trials that some rows wait for; then base's, if decoding is not chosen."""
        if any(row.awaits_values for row in rows):
            return self.trials_of(rows)
        return self.on_dev if self.base.awaits_decoding else None

    @staticmethod
    def trial_rows(row: Row) -> list[Row]:
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
        for part in filter(None, (self.trials, self.on_dev, self.runs())):
            for run in part:
                runs.setdefault(run.id, run)
        yield from runs.values()

    @cached_property
    def _runs(self) -> Runs:
        return Runs(
            self.rows, self.seeds, self.further_seeds, self.data, self.task_name, self.metrics
        )

    def runs(self) -> Runs:
        """The runs of the rows."""
        return self._runs


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
