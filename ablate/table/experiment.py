"""The content of a table: rows with their runs and scores, and the rule of the verdicts.

`ablate.analysis` makes an `Experiment` from a study and its results, `ablate.judging` from files of
scores. The code that prints and draws it does not depend on the source.
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
from ablate.table.looks import Looks
from ablate.table.scores import Scores

S = TypeVar("S", bound=str)
# A row with runs in several states has the first of these.
_STATE_ORDER = ("running", "failed", "diverged", "interrupted", "pending", "done")


def row_state(states: Iterable[S]) -> S:
    """The state of a row, from the states of its runs."""
    return min(states, key=_STATE_ORDER.index)


@dataclass(frozen=True)
class RunScore:
    """The score of a run in one metric.

    resamples: the scores on the resampled test sets, which are the same for every run; empty if
        they are unknown.
    parts: numbers that explain the score, by the names of `Metric.parts`.
    """

    value: float
    resamples: Sequence[float] = ()
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ExperimentRun:
    """A run of a row: a training with one seed, and its evaluation.

    id: id of the training. Rows that decode the same training in several ways share the id.
    state: `pending`, `running`, `interrupted`, `failed`, `diverged` or `done`.
    note: reason why the run has no scores; empty if it has scores.
    scores: by metric; empty unless the run is done.
    lacks_decoding: whether the run is trained, but not evaluated.
    former_default: the setting with which the run has scores, such as `beam_size=4`, if it has them
        only with this default of an earlier version; otherwise empty.
    """

    id: str
    seed: int
    state: str
    note: str = ""
    scores: Mapping[str, RunScore] = field(default_factory=dict)
    lacks_decoding: bool = False
    former_default: str = ""


@dataclass(frozen=True)
class TrainingCost:
    """The cost of training a row.

    seconds: time of a training with its evaluations, by seed; only finished seeds.
    tokens_per_second: number of training tokens divided by `seconds`, by seed.
    flops: FLOPs of a training, in closed form; None until a seed is finished, which gives the
        lengths of the corpus and the number of steps.
    machines: devices and processors that trained the row.
    """

    seconds: Scores = field(default_factory=Scores)
    tokens_per_second: Scores = field(default_factory=Scores)
    flops: float | None = None
    machines: tuple[str, ...] = ()

    def as_json(self, n_seeds: int, timed: bool = True) -> dict[str, Any]:
        """The cost for scripts.

        Args:
            n_seeds: number of seeds of the row, as in `Scores.as_json`.
            timed: whether to add measured times, which differ between repetitions of a study.
        """
        content: dict[str, Any] = {}
        if timed:
            content["seconds"] = self.seconds.as_json(n_seeds)
            content["tokens_per_second"] = self.tokens_per_second.as_json(n_seeds)
        return {**content, "flops": self.flops}


@dataclass(frozen=True)
class CandidateLoss:
    """A candidate value of a choice.

    loss: mean dev loss in nats per token; infinite if a run diverged, None until the runs end.
    """

    label: str
    loss: float | None
    is_chosen: bool


@dataclass(frozen=True)
class ChosenSettings:
    """Settings that the program chose: by tuning runs, or to match the cost of base.

    text: the settings, as text of a cell.
    legend: the line below the table that explains the choice.
    content: the choice for scripts.
    candidates: the candidates of the tuning runs; empty for settings that match a cost.
    sensitivity: sensitivity of the dev loss to the settings, in nats per token: mean loss of the
        candidates minus the smallest loss; None without candidates, or while losses are missing.
    trainings: seeds and steps of the tuning runs, as text; empty for other choices.
    """

    text: str
    legend: str
    content: Mapping[str, Any]
    candidates: tuple[CandidateLoss, ...] = ()
    sensitivity: float | None = None
    trainings: str = ""


@dataclass(frozen=True)
class Recipe:
    """How a row was trained, to the extent that a table shows it.

    settings: the values of the columns of settings, by field.
    changed: the fields that differ from base, with the row's values; empty for base.
    changes: the changed fields as texts, such as `dropout=0.3`.
    derived: the changed fields among d_k and d_v that equal d_model / h: they follow from other
        changes, unless the row sets them to this value.
    other: the changes that have no column, as text.
    is_labeled: whether the study names the row; otherwise the label consists of the changes.
    params: number of trained parameters.
    active_params: number of parameters that a single token uses.
    steps: optimizer steps; planned steps until a run is done.
    matched: the field that was chosen to give the row the cost of base.
    tuned: the settings that were chosen by tuning runs of the row.
    paper: the row of the paper's table with the same change.
    test_size: (name, size) of the test items, if all items have the same size and rows may set it.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    changed: Mapping[str, Any] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    other: str = ""
    is_labeled: bool = False
    params: int = 0
    active_params: int = 0
    steps: int | None = None
    cost: TrainingCost = field(default_factory=TrainingCost)
    matched: ChosenSettings | None = None
    tuned: ChosenSettings | None = None
    paper: PaperRow | None = None
    test_size: tuple[str, int] | None = None


@dataclass(frozen=True)
class ExperimentRow:
    """A row of the table.

    label: unique label, such as `A h=1 d_k=512`.
    group: name of the group of rows.
    base: label of the base that the row is compared with; for a base, the label of the row itself.
    size: name of the model size, in an experiment with several sizes.
    runs: runs in the order of the seeds.
    evaluation: id of the evaluation of the runs. Rows with the same runs and evaluation have equal
        scores.
    recipe: empty for scores of other code.
    """

    label: str
    group: str
    base: str
    runs: tuple[ExperimentRun, ...]
    size: str = ""
    evaluation: str = ""
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def states(self) -> dict[int, str]:
        """State of each run, by seed."""
        return {run.seed: run.state for run in self.runs}

    @property
    def state(self) -> str:
        """The state of the row over its runs."""
        return row_state(self.states.values())

    def has_runs_of(self, other: ExperimentRow) -> bool:
        """Whether the row evaluates the trainings of another row, and has no others."""
        return {run.id for run in self.runs} == {run.id for run in other.runs}

    @property
    def is_base(self) -> bool:
        """Whether other rows are compared with this row. Every model size has its base."""
        return self.base == self.label

    @property
    def name(self) -> str:
        """The label without the size."""
        return self.label.removeprefix(f"{self.size} ")


@dataclass(frozen=True)
class Setup:
    """The common properties of the rows of a study that a table shows.

    settings: the columns of settings.
    base: the settings of base without a column, as text.
    designs: the factorials and paths of the study.
    decoding: the choice of the decoding, the same for every row.
    vocabularies: the sizes of the vocabularies, sorted. Scores per token are comparable only if
        there is a single one.
    task: name of the task.
    command: command that prints the table.
    paper: the table of the paper for the task.
    is_as_paper: whether base and the corpus equal base and the corpus of the paper.
    """

    settings: tuple[PaperColumn, ...] = ()
    base: str = ""
    designs: tuple[Design, ...] = ()
    decoding: ChosenSettings | None = None
    vocabularies: tuple[int, ...] = ()
    task: str = ""
    command: str = "ablate judge"
    paper: PaperTable | None = None
    is_as_paper: bool = False


@dataclass(frozen=True)
class Notes:
    """Lines below a table.

    remarks: differences in how the runs were made, and test text that occurs in the training data.
    advice: what to change because of a remark, by remark; papers leave it out.
    leaks: shares of test and dev text in the training data that are too large for scores to show
        the quality on new text, each with its split.
    archived: lines about what an unpacked archive lacks: predictions, and the text of the study.
    faults: files that cannot be used, with a remedy.
    text: what the preparation has found in the text, such as splits with exchanged sides, and why
        metrics do not suit the references.
    is_exchanged: whether the sides of a split are exchanged, so that nothing can be learned.
    unjudged: names of the metrics that cannot judge the references, whatever is learned.
    """

    remarks: tuple[str, ...] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    archived: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    leaks: Mapping[str, str] = field(default_factory=dict)
    text: tuple[str, ...] = ()
    is_exchanged: bool = False
    unjudged: tuple[str, ...] = ()

    @property
    def advised_remarks(self) -> list[str]:
        """The remarks, each followed by its advice."""
        return [f"{remark} {self.advice.get(remark, '')}".strip() for remark in self.remarks]

    @property
    def text_sentences(self) -> list[str]:
        """The notes on the text, as sentences."""
        return [f"Text: {note}." for note in self.text]


@dataclass(frozen=True)
class Experiment:
    """Rows, their runs and scores, and the rule by which rows are judged.

    rows: the rows, beginning with a base.
    seeds: the seeds of every row.
    further_seeds: seeds that only bases have.
    is_paired: whether runs of different rows with the same seed have anything in common. Otherwise
        the seeds only count the runs of each row, as in scores of other code without seeds.
    measured: all metrics with scores.
    shown: the metrics of the table besides perplexity. Single test items are scored in the first.
    judged: the metrics of the verdicts.
    margins: the margin of equivalence, by metric.
    totals: number of rows that are compared with a base, by label of the base. It includes rows of
        the study that are not in `rows`, because Holm's correction covers all rows.
    looks: the looks of the experiment, planned and judged.
    error_rate: bound of the familywise error rate, the probability of any false verdict; above 0.05
        if seeds were changed after a verdict.
    signatures: how each metric was computed, by metric; several texts if runs differ.
    test_sets: name of the test set, by metric; only metrics of predictions for a test set.
    corpora: ids of the corpora of the runs; several if runs differ.
    notes: lines below the table.
    setup: empty for scores of other code.
    """

    name: str
    rows: tuple[ExperimentRow, ...]
    seeds: tuple[int, ...]
    measured: tuple[Metric, ...]
    shown: tuple[Metric, ...]
    judged: tuple[Metric, ...]
    totals: Mapping[str, int]
    looks: Looks
    further_seeds: tuple[int, ...] = ()
    is_paired: bool = True
    margins: Mapping[str, float] = field(default_factory=dict)
    error_rate: float = LEVEL
    signatures: Mapping[str, list[str]] = field(default_factory=dict)
    test_sets: Mapping[str, str] = field(default_factory=dict)
    corpora: tuple[str, ...] = ()
    notes: Notes = field(default_factory=Notes)
    setup: Setup = field(default_factory=Setup)

    @cached_property
    def by_label(self) -> dict[str, ExperimentRow]:
        """The rows by their labels."""
        return {row.label: row for row in self.rows}

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """The measured metrics by name."""
        return {metric.name: metric for metric in self.measured}

    @property
    def n_tests(self) -> int:
        """Number of tests that Holm's correction covers: one for each row of each base."""
        return sum(self.totals.values())

    @property
    def is_study(self) -> bool:
        """Whether the experiment is a study; otherwise its scores come from other code."""
        return bool(self.setup.task)

    @property
    def perplexity(self) -> Metric:
        """The perplexity in which rows are compared: per token, or per character if vocabularies
        differ. The main metric if this perplexity is not measured.
        """
        comparable = PPL if len(self.setup.vocabularies) < 2 else PPL_CHAR
        return self.metrics.get(comparable.name, self.judged[0])

    @property
    def judged_seeds(self) -> tuple[int, ...]:
        """The seeds whose scores the verdicts use: the seeds up to the last judged look; empty
        before the first look.
        """
        return self.seeds[: self.looks.last.seeds] if self.looks.last else ()

    @property
    def level(self) -> float:
        """The significance level of the verdicts, for all judged metrics together."""
        return self.looks.level

    def seeds_of(self, row: ExperimentRow) -> tuple[int, ...]:
        """The seeds of a row."""
        return (*self.seeds, *self.further_seeds) if row.is_base else self.seeds

    def share_of_level(self, metric: str) -> float:
        """The share of the level at which a metric is tested: equal shares for the metrics of the
        verdicts (Bonferroni), 1 for other metrics.
        """
        judged = [metric.name for metric in self.judged]
        return 1 / len(judged) if metric in judged else 1.0
