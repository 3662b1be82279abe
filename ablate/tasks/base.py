"""The interface of a task: what a run learns from, what it predicts, and how it is scored.

Everything outside of a task's own file works with this interface. The class attributes and
`resolve_data` are used to read studies and to print tables, so a task's module loads without torch;
methods import it where they need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from ablate.config import DataConfig, DecodingConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.decoding import SearchSettings
from ablate.config.reach import Reach
from ablate.config.resolve import TASK_FIELDS
from ablate.errors import Fault
from ablate.fields import UNSET, TaskSettings, facts_of
from ablate.paper import PaperTable
from ablate.stats.metrics import PPL, Metric
from ablate.store.records import Measurement, Score

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from ablate.data.corpus import Corpus, Split
    from ablate.metrics.resampling import Statistics
    from ablate.model import Transformer

    Indices = NDArray[np.int64] | Sequence[int]


class Batch(Protocol):
    """Padded tensors of some items."""

    @property
    def tokens(self) -> int:
        """Number of target tokens, without padding."""

    def to(self, device: torch.device) -> Batch:
        """Copy to a device."""


class OutputTerms(NamedTuple):
    """Everything that the loss of a batch depends on.

    Attributes:
        states: last hidden states (n, d_model), one for each target token.
        weight: output matrix (V, d_model).
        targets: token ids (n).
    """

    states: Tensor
    weight: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Sample:
    """An item of the test split: its number from 1, its texts by name: ("source", "Ein Hund.")."""

    number: int
    texts: tuple[tuple[str, str], ...]


class Task(ABC):
    """A task. Subclasses set the class attributes and implement the abstract methods.

    Attributes:
        name: as a study writes it.
        data_config: settings of the corpus; its class says which text fields an item has.
        architectures: values of `architecture` that the task can train.
        model_metrics: measured on the dev split by the model's likelihood.
        units: of the perplexities that follow from the study, by metric; any other score has a
            signature of its own.
        prediction_metrics: measured on the predictions for the test split; empty if the task
            predicts nothing.
        predicts_texts: whether a prediction is a text to read, and not what a score is made of.
        default_metrics: names of the metrics of a study that names none. The verdicts use the
            first.
        defaults: of fields for which the paper's value does not suit the task.
        settings: the classes of row fields that only some tasks use, of which this task uses
            these; a study that writes a field of another class is refused.
        shown_fields: settings that the legend of a table always shows.
        paper: the table of the paper for this task.
        predicts: what `ablate predict` prints for a text: a prediction of each of its lines, its
            continuation, or its masked tokens; empty: nothing.
        exported_as: the kind of model that other libraries know it as: sequence-to-sequence, causal
            or masked; empty: none.
    """

    name: ClassVar[str]
    data_config: ClassVar[type[CorpusConfig]]
    architectures: ClassVar[tuple[str, ...]]
    model_metrics: ClassVar[tuple[Metric, ...]] = (PPL,)
    units: ClassVar[Mapping[str, str]] = {PPL.name: "subword token"}
    prediction_metrics: ClassVar[tuple[Metric, ...]] = ()
    predicts_texts: ClassVar[bool] = True
    default_metrics: ClassVar[tuple[str, ...]] = (PPL.name,)
    defaults: ClassVar[Mapping[str, Any]] = {}
    settings: ClassVar[tuple[type[TaskSettings], ...]] = (SearchSettings,)
    shown_fields: ClassVar[tuple[str, ...]] = ("batch_tokens", "warmup_steps", "beam", "alpha")
    paper: ClassVar[PaperTable | None] = None
    predicts: ClassVar[Literal["", "lines", "continuation", "masks"]] = ""
    exported_as: ClassVar[Literal["", "sequence-to-sequence", "causal", "masked"]] = ""

    # Settings

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every metric of the task, by name."""
        return {metric.name: metric for metric in (*self.model_metrics, *self.prediction_metrics)}

    @property
    def on_predictions(self) -> frozenset[str]:
        """Names of the metrics that are measured on predictions."""
        return frozenset(metric.name for metric in self.prediction_metrics)

    @property
    def unused_fields(self) -> dict[str, str]:
        """Fields of a row that have no effect with this task, and why."""
        used = {name for section in self.settings for name in section.model_fields}
        return {name: f"task {self.name}" for name in TASK_FIELDS if name not in used}

    @property
    def idle_defaults(self) -> dict[str, Any]:
        """The first default of each field without effect whose default has changed since: ids of
        results stay.
        """
        facts = facts_of(DecodingConfig)
        first = {name: facts[name].introduced for name in self.unused_fields if name in facts}
        return {name: value for name, value in first.items() if value is not UNSET}

    def resolve_data(self, settings: Mapping[str, Any]) -> CorpusConfig:
        """Complete the study's `data` section; a named corpus brings its splits.

        Raises:
            pydantic.ValidationError: a value is missing, of the wrong type or out of range.
            ValueError: the corpus is unknown, or the settings cannot go together.
        """
        return self.data_config.resolve(settings)

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data.

        Its fields are names of the row's, or `data.max_length`; a text has none.
        """
        if config.architecture not in self.architectures:
            what = f"architecture={config.architecture} does not work with task {self.name}"
            yield Fault(what, ("architecture",), remedy=f"use {' or '.join(self.architectures)}")
        if config.loss_term != "none" and type(self).loss_terms is not Task.loss_terms:
            what = "loss_term has no effect with a task that has its own loss_terms"
            yield Fault(what, ("loss_term",), remedy="remove it")
        if isinstance(data, DataConfig):
            longest = f"a sequence of data.max_length={data.max_length} and its end"
            yield from config.batch_faults(longest, data.max_length + 1, "data.max_length")

    def reach(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The positions that the longest sequence of a row takes; None if that is not known."""
        return None

    def check_metrics(
        self, metrics: Sequence[str], data: CorpusConfig, config: RowConfig
    ) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be scored in a study's metrics."""
        yield from ()

    def describe(
        self, metric: Metric, data: CorpusConfig, vocab_sizes: Sequence[int]
    ) -> str | None:
        """Description of a metric for the legend; None if each score has a signature."""
        unit = self.units.get(metric.name)
        if unit is None:
            return None
        sizes = ", ".join(map(str, vocab_sizes))
        return f"per {unit}, dev={data.dev}, V={sizes}, plain negative log-likelihood"

    # Data

    def test_size(self, data: CorpusConfig, config: RowConfig) -> tuple[str, int] | None:
        """What is the size of the test items, and theirs, if all have one that rows may set."""
        return None

    def prepare(
        self,
        data: CorpusConfig,
        folder: Path,
        corpora: Path,
        log: Callable[[str], None] = lambda line: None,
    ) -> Corpus:
        """Prepare the corpus of a study, or find the prepared one.

        Args:
            data: settings of the corpus.
            folder: where relative paths begin.
            corpora: the folder of prepared corpora.
            log: receives a line for each stage.

        Raises:
            DataError: the corpus is missing or malformed.
        """
        from ablate.data.prepare import prepare

        return prepare(data, folder, corpora, log)

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The items of `train` or `dev` for training: sentence pairs, or contexts of a text."""
        return corpus.split(split)

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """The training items as a step uses them, of the same lengths; by default, as they are.

        The result must follow from the arguments alone, so that a resumed run trains on the same
        items.

        Args:
            split: from `items`.
            seed: of the run.
            step: counted from 1.
        """
        return split

    @abstractmethod
    def n_targets(self, split: Split, items: Indices) -> int:
        """Number of target tokens of these items: the denominator of the mean loss."""

    @abstractmethod
    def collate(self, split: Split, items: Indices) -> Batch:
        """Make the padded batch of these items."""

    def notes_on_scores(self, corpus: Corpus, metrics: Sequence[str]) -> Iterator[str]:
        """Yield a note on each reason why a metric cannot judge the test split."""
        yield from ()

    # Model

    @abstractmethod
    def output_terms(self, model: Transformer, batch: Any) -> OutputTerms:
        """Run the model on a batch."""

    def training_terms(self, model: Transformer, batch: Any) -> list[OutputTerms]:
        """Run the model on a batch of training: the terms of `output_terms`, and those of each
        further prediction, whose loss counts `future_loss` times.
        """
        return [self.output_terms(model, batch)]

    def loss_terms(
        self, model: Transformer, batch: Batch, label_smoothing: float
    ) -> tuple[Tensor, int]:
        """The training loss of a batch: (cross-entropy summed in nats, number of target tokens)."""
        from ablate.kernels.cross_entropy import smoothed_cross_entropy

        c = model.config
        loss, *further = (
            smoothed_cross_entropy(*terms, label_smoothing, c.logit_cap, c.z_loss, model.loss_term)
            for terms in self.training_terms(model, batch)
        )
        for term in further:
            loss = loss + c.future_loss * term
        # A mean over tokens, as the balance of experts is; so it does not depend on their number.
        return loss + batch.tokens * model.pop_balance_loss(), batch.tokens

    def nats_per_token(self, model: Transformer, split: Split, device: torch.device) -> float:
        """Mean negative log-likelihood of the target tokens of a split, in nats."""
        from ablate.data.batches import eval_batches
        from ablate.metrics.perplexity import nats_per_token

        def batches(tokens: int) -> Iterator[Batch]:
            return (self.collate(split, items) for items in eval_batches(split, tokens))

        return nats_per_token(model, batches, self.output_terms, device)

    def perplexity(self, model: Transformer, split: Split, device: torch.device) -> float:
        """Perplexity of the target tokens of a split."""
        from ablate.metrics.perplexity import nats_to_perplexity

        return nats_to_perplexity(self.nats_per_token(model, split, device))

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Measure `model_metrics` on the dev split."""
        dev = self.items(corpus, "dev", config)
        return {PPL.name: Score(value=self.perplexity(model, dev, device))}

    def perplexity_by_chance(self, corpus: Corpus, config: RowConfig) -> float | None:
        """Perplexity of the dev split by the frequencies of its tokens alone; None if the batches
        do not say their targets.
        """
        from ablate.metrics.chance import unigram_perplexity

        dev = self.items(corpus, "dev", config)
        train = self.at_step(self.items(corpus, "train", config), seed=0, step=1)
        if not hasattr(self.collate(dev, [0]), "targets"):
            return None

        def targets(split: Split, items: Indices) -> NDArray[np.int64]:
            counted: NDArray[np.int64] = self.collate(split, items).targets.numpy()  # type: ignore[attr-defined]
            return counted

        return unigram_perplexity(
            partial(targets, train), len(train), partial(targets, dev), len(dev)
        )

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str] | None:
        """Predictions for the test split, a line for each item; None if the task has none.

        `after_batch` is called after each batch, and may raise to stop.
        """
        return None

    def generate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> tuple[str, ...]:
        """Texts that the model generates for the report, beside the predictions."""
        return ()

    # Scores

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """The statistics of each prediction, the score of their sums, and the score's signature,
        from which `measure` and `measure_items` follow.
        """
        raise NotImplementedError(f"{type(self).__name__} has no metric {metric}")

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score predictions in one of `prediction_metrics`, also on resampled test sets."""
        from ablate.metrics import resampling

        return resampling.measure(*self.statistics(metric, predictions, corpus))

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Score each prediction alone."""
        values, score, _ = self.statistics(metric, predictions, corpus)
        return [float(score(of_item)) for of_item in values]

    def n_predictions(self, corpus: Corpus) -> int:
        """Number of items of the test split."""
        return len(corpus.split("test"))

    def of_items(self, predictions: Sequence[str]) -> Sequence[str]:
        """The predictions for the items of the test split, of all lines that `predict` returns."""
        return predictions

    def scores_items(self, metric: Metric) -> bool:
        """Whether a metric is measured on the predictions for the items of the test split."""
        if metric.name not in self.on_predictions:
            return False
        return metric.item == self.prediction_metrics[0].item

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """The texts of some items of the test split, for a report with the predictions."""
        yield from ()
