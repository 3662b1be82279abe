"""A study as its file and the options of the command line define it. It never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.custom.reference import Reference, parse_reference
from ablate.errors import DataError, Fault
from ablate.parts.variant import classes_of
from ablate.stats.designs import Design
from ablate.study.row import Row
from ablate.study.seeds import Seeds
from ablate.study.yaml_nodes import Node
from ablate.tasks import Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


@dataclass(frozen=True)
class Source:
    """The file from which a study was read.

    text: text of the file.
    notes: lines about probably unintended rows, with their positions.
    data: the section `data`, with its positions.
    classes: source code of the custom classes, by its hash.
    is_modified: whether `--set`, `--rows` or `--seeds` makes the study differ from the file.
    """

    text: str = field(repr=False)
    notes: tuple[str, ...]
    data: Node = field(repr=False)
    classes: Mapping[str, bytes] = field(repr=False)
    is_modified: bool


@dataclass(frozen=True)
class Whole:
    """All rows and seeds of the file, before `--rows` and `--seeds` select a part of them.

    rows: all rows, base first.
    seeds: all seeds.
    dropped: number of rows that `where` drops.
    """

    rows: tuple[Row, ...]
    seeds: Seeds
    dropped: int

    @property
    def runs(self) -> int:
        """Number of runs; a run that several rows share counts once for each row."""
        bases = sum(row.is_base for row in self.rows)
        return len(self.rows) * len(self.seeds.rows) + bases * len(self.seeds.further)


@dataclass(frozen=True)
class StudyMetrics:
    """Names of the metrics of a study.

    shown: metrics in tables, beside perplexity.
    judged: metrics of the verdicts, the main metric first.
    margins: margin of equivalence by metric: a row whose difference from base is surely smaller is
        as good as base.
    """

    shown: tuple[str, ...]
    judged: tuple[str, ...]
    margins: Mapping[str, float]


@dataclass(frozen=True)
class Study:
    """A study with its options, before any results.

    name: name of the study, and of its folder in the results root.
    path: path of the study file.
    data: data settings.
    rows: selected rows, base first; without choices by tuning runs.
    seeds: selected seeds.
    metrics: names of the metrics.
    task: the task.
    task_name: name of the task in run ids; it has the hash of a custom task's source.
    designs: groups of rows that are analyzed together.
    whole: all rows and seeds of the file.
    source: the file from which the study was read.
    """

    name: str
    path: Path
    data: CorpusConfig
    rows: tuple[Row, ...]
    seeds: Seeds
    metrics: StudyMetrics
    task: Task = field(compare=False)
    task_name: str
    designs: tuple[Design, ...]
    whole: Whole = field(compare=False)
    source: Source = field(compare=False)

    @property
    def base(self) -> Row:
        """The base of the first size, which is the first row."""
        return self.rows[0]

    @property
    def data_folder(self) -> Path:
        """Folder of the splits: `data.folder`, or the folder of the study file."""
        if self.data.folder:
            return Path(self.data.folder)
        return self.path.parent

    def prepare(self, data: CorpusConfig, corpora: Path, log: Callable[[str], None]) -> Corpus:
        """Prepare the corpus of a row, or open the prepared corpus, as `Task.prepare` does.

        Raises:
            DataError: the corpus is missing or malformed. The fault has the position of a field of
                `data`.
        """
        try:
            return self.task.prepare(data, self.data_folder, corpora, log)
        except DataError as error:
            raise DataError(*map(self.data_fault, error.faults)) from None

    def data_fault(self, fault: Fault) -> Fault:
        """The fault of a corpus, placed at the first of its fields that the section `data` has, or
        at the section.
        """
        if fault.place is not None:  # such as a line of a text
            fault = fault.about(str(fault.place))
        nodes = {"data": self.source.data, **self.source.data.fields()}
        names = [name.removeprefix("data.") for name in fault.fields]
        name = next((name for name in names if name in nodes), "data")
        return fault.about(name).located(nodes[name].mark)

    @property
    def custom_classes(self) -> tuple[Reference, ...]:
        """Every custom class of the study: in rows and in candidates of their tuning runs, and
        a custom task.
        """
        configs = [row.config for row in self.rows]
        for row in self.rows:
            if row.choice is not None:
                configs += [candidate.config for candidate in row.choice.candidates]
        return self.classes_of(configs)

    def classes_of(self, configs: Iterable[RowConfig]) -> tuple[Reference, ...]:
        """The custom classes in some configurations, each once, and the task if it is custom."""
        classes: dict[Reference, None] = {}
        for config in configs:
            classes |= dict.fromkeys(classes_of(config))
        if self.custom_task is not None:
            classes[self.custom_task] = None
        return tuple(classes)

    @property
    def custom_task(self) -> Reference | None:
        """The class of the task if it is custom; else None."""
        return parse_reference(self.task_name)
