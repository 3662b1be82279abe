"""What a table is made of: rows with their runs and scores, and the rule of their verdicts.

`ablate.analysis` makes an experiment from a study and its results, `ablate.judging` from files of
scores. Nothing that reads it knows where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ablate.paper import PaperColumn, PaperRow, PaperTable
from ablate.stats.designs import Design
from ablate.stats.metrics import PPL, PPL_CHAR, Metric
from ablate.stats.significance import LEVEL
from ablate.table.looks import Standing
from ablate.table.scores import Scores

S = TypeVar("S", bound=str)
# State of a row with runs in several states; the first match wins.
_FIRST = ("running", "failed", "diverged", "interrupted", "pending", "done")


def row_state(states: Iterable[S]) -> S:
    """The state of a row from those of its runs, the same in every view and format."""
    return min(states, key=_FIRST.index)


@dataclass(frozen=True)
class Score:
    """The score of a run in one metric.

    resamples: the scores on the resampled test sets, which are the same for every run; empty
        without any.
    parts: numbers that the score is made with, by the names of `Metric.parts`.
    """

    value: float
    resamples: Sequence[float] = ()
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run of a row: a training with one seed, and its evaluation.

    id: of the training. Rows that evaluate one training in several ways share it.
    state: `pending`, `running`, `interrupted`, `failed`, `diverged` or `done`.
    note: why the run has no scores; empty if it has.
    scores: by metric; empty unless the run is done.
    lacks_decoding: whether the run is trained, and its evaluation is missing.
    former: the default of an earlier version with which the run has scores, as `--set` takes it;
        or empty.
    """

    id: str
    seed: int
    state: str
    note: str = ""
    scores: Mapping[str, Score] = field(default_factory=dict)
    lacks_decoding: bool = False
    former: str = ""


@dataclass(frozen=True)
class Cost:
    """The cost of training a row.

    seconds: of one training with its evaluations, by finished seed.
    tokens_per_second: tokens trained on, divided by `seconds`.
    flops: of one training, in closed form; None while the number of steps is unknown.
    machines: devices and processors that trained the row.
    """

    seconds: Scores = field(default_factory=Scores)
    tokens_per_second: Scores = field(default_factory=Scores)
    flops: float | None = None
    machines: tuple[str, ...] = ()

    def as_json(self, timed: bool = True) -> dict[str, Any]:
        """The cost for scripts.

        Args:
            timed: whether to add measured times, which differ each time a study is repeated.
        """
        content: dict[str, Any] = {}
        if timed:
            content["seconds"] = self.seconds.as_json()
            content["tokens_per_second"] = self.tokens_per_second.as_json()
        return {**content, "flops": self.flops}


@dataclass(frozen=True)
class Candidate:
    """A value that a choice could take.

    loss: its mean dev loss in nats per token, infinite if a run diverged; None while it is awaited.
    """

    label: str
    loss: float | None
    is_chosen: bool


@dataclass(frozen=True)
class Choice:
    """Settings that were not written, but chosen: by tuning runs, or to match the cost of base.

    text: the settings, as a cell has them.
    legend: the line below the table that explains the choice.
    content: the choice for scripts.
    candidates: the grid of tuning runs; empty for a match.
    sensitivity: of the dev loss to the settings; None without a grid, or while losses are missing.
    """

    text: str
    legend: str
    content: Mapping[str, Any]
    candidates: tuple[Candidate, ...] = ()
    sensitivity: float | None = None


@dataclass(frozen=True)
class Recipe:
    """How a row was trained, as far as a table shows it.

    settings: the values of the columns of settings, by field.
    changed: the fields that differ from base, with the row's values; empty for base.
    changes: the same as texts, such as `dropout=0.3`.
    derived: those fields that follow from another one, as head sizes from the number of heads.
    other: the changes without a column of their own, as text.
    is_labeled: whether the study writes the label, which then does not show the changes.
    params: trained parameters; active_params: those that one token meets.
    steps: optimizer steps made, or planned while no run is done.
    matched: the field that gives the row base's cost.
    tuned: the settings that tuning runs of the row have chosen.
    paper: the row of the paper's table with the same change.
    test_size: the size of the test items and its name, if all items have one that rows may set.
    """

    settings: Mapping[str, Any]
    changed: Mapping[str, Any]
    changes: tuple[str, ...]
    derived: frozenset[str]
    other: str
    is_labeled: bool
    params: int
    active_params: int
    steps: int | None
    cost: Cost
    matched: Choice | None = None
    tuned: Choice | None = None
    paper: PaperRow | None = None
    test_size: tuple[str, int] | None = None


@dataclass(frozen=True)
class Row:
    """A row of the table.

    label: stable and unique, such as `A h=1 d_k=512`.
    group: name of the group that makes the row.
    base: label of the row that it is compared with; a base's own label.
    size: of an experiment at several sizes.
    runs: in the order of the seeds.
    evaluation: tells the evaluations of one training apart: rows with the same runs and the same
        evaluation have the same scores.
    recipe: None for scores that were measured elsewhere.
    """

    label: str
    group: str
    base: str
    runs: tuple[Run, ...]
    size: str = ""
    evaluation: str = ""
    recipe: Recipe | None = None

    @property
    def state(self) -> str:
        """The state of the row over its runs."""
        return row_state(run.state for run in self.runs)

    @property
    def is_base(self) -> bool:
        """Whether other rows are compared with this one; every size has a base of its own."""
        return self.base == self.label

    @property
    def name(self) -> str:
        """The label without the size."""
        return self.label.removeprefix(f"{self.size} ")


@dataclass(frozen=True)
class Setup:
    """What the rows of a study have in common, as far as a table shows it.

    settings: the columns of settings.
    base: base's settings without a column, as text.
    designs: groups of rows that are analyzed together.
    decoding: the choice of the decoding, the same for every row.
    vocabularies: sizes of the rows' vocabularies, sorted.
    task: its name.
    paper: the table of the paper for the task.
    is_as_paper: whether base and the corpus are those of the paper.
    """

    settings: tuple[PaperColumn, ...]
    base: str
    designs: tuple[Design, ...] = ()
    decoding: Choice | None = None
    vocabularies: tuple[int, ...] = ()
    task: str = ""
    paper: PaperTable | None = None
    is_as_paper: bool = False


@dataclass(frozen=True)
class Notes:
    """Lines below a table.

    remarks: differences in how the runs were made, and test text that occurs in the training data.
    advice: those of them that say how to improve the study, which are not for a paper.
    archived: a line on runs without predictions; empty without such runs.
    faults: files that cannot be used, and what heals them.
    """

    remarks: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """Rows, their runs and scores, and the rule by which rows are judged.

    rows: base first.
    seeds: of every row; further_seeds: that only bases have.
    measured: every metric with scores.
    shown: the metrics of the table, beside perplexity; the first is that of single test items.
    judged: the metrics that verdicts are by.
    margins: by metric, the difference within which a row counts as as good as base.
    totals: by base, the number of rows that are compared with it, also of those that are left out
        here: Holm's correction covers all of them.
    standing: where the experiment is among its looks.
    error: bound of the error of all verdicts; above 0.05 if seeds were changed after a verdict.
    signatures: how each metric was computed; one text if all runs agree.
    test_sets: by metric of the predictions for a test set, the name of the test set.
    corpora: behind the scores; one if all runs agree.
    notes: lines below the table.
    setup: None for scores that were measured elsewhere.
    """

    name: str
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    measured: tuple[Metric, ...]
    shown: tuple[Metric, ...]
    judged: tuple[Metric, ...]
    totals: Mapping[str, int]
    standing: Standing
    further_seeds: tuple[int, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)
    error: float = LEVEL
    signatures: Mapping[str, list[str]] = field(default_factory=dict)
    test_sets: Mapping[str, str] = field(default_factory=dict)
    corpora: tuple[str, ...] = ()
    notes: Notes = field(default_factory=Notes)
    setup: Setup | None = None

    @cached_property
    def by_label(self) -> dict[str, Row]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The measured metrics by name."""
        return {metric.name: metric for metric in self.measured}

    @property
    def tests(self) -> int:
        """Number of rows that Holm's correction covers: those of all bases."""
        return sum(self.totals.values())

    @property
    def designs(self) -> tuple[Design, ...]:
        """Groups of rows that are analyzed together."""
        return self.setup.designs if self.setup else ()

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Sizes of the rows' vocabularies. Perplexities per subword can only be compared if there
        is one size.
        """
        return self.setup.vocabularies if self.setup else ()

    @property
    def perplexity(self) -> Metric:
        """The perplexity that rows are compared by: per character if vocabularies differ and it is
        measured. The main metric if no perplexity is measured.
        """
        if PPL.name not in self.metrics:
            return self.judged[0]
        if len(self.vocabularies) > 1 and PPL_CHAR.name in self.metrics:
            return self.metrics[PPL_CHAR.name]
        return self.metrics[PPL.name]

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """The seeds with which a row is run."""
        return (*self.seeds, *self.further_seeds) if row.is_base else self.seeds

    def share_of_level(self, metric: str) -> float:
        """The part of the level at which a metric is tested: an equal one for each that verdicts
        are by, so that their sum is the level (Bonferroni); all of it for any other.
        """
        judged = [metric.name for metric in self.judged]
        return 1 / len(judged) if metric in judged else 1.0
