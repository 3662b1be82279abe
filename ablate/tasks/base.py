"""The interface of a task: what a run learns, what it predicts, and how it is scored.

All other code works with this interface. Reading a study and printing a table need only the class
attributes and `resolve_data`, so the module of a task must load without torch. Methods that need
torch import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, get_args

from ablate.config import DataConfig, DecodingConfig, ModelConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.decoding import SearchSettings
from ablate.config.language_data import LanguageData
from ablate.config.row import TASK_FIELDS
from ablate.config.synthetic_data import SyntheticData
from ablate.errors import Fault, listed, unknown_name
from ablate.fields import UNSET, TaskSettings, facts_of
from ablate.stats.metrics import CHANCE_SCORE, PPL, Metric
from ablate.store.records import Measurement, Score

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from ablate.config.reach import Reach
    from ablate.data.corpus import Corpus, Split
    from ablate.metrics.resampling import Statistics
    from ablate.model import Transformer
    from ablate.paper import PaperTable

    Indices = NDArray[np.int64] | Sequence[int]


ARCHITECTURES: tuple[str, ...] = get_args(ModelConfig.model_fields["architecture"].annotation)
# Methods of earlier versions, and their present names: ablate would not call the former ones.
FORMER_METHODS = {
    "perplexity_by_chance": "unigram_perplexity",
    "reach": "longest_sequences",
    "idle_defaults": "original_defaults",
    "on_predictions": "prediction_metric_names",
    "of_items": "item_predictions",
}
# Base classes of the settings from which a corpus can be prepared
PREPARABLE = (DataConfig, LanguageData, SyntheticData)


class Batch(Protocol):
    """Padded tensors of some items."""

    @property
    def tokens(self) -> int:
        """Number of target tokens, without padding."""

    def to(self, device: torch.device) -> Batch:
        """Copy to a device."""


class OutputTerms(NamedTuple):
    """The tensors from which the loss of a batch is computed.

    Attributes:
        states: last hidden states (n, d_model), one for each target token.
        weight: output matrix (V, d_model).
        targets: token ids (n,).
    """

    states: Tensor
    weight: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Sample:
    """An item of the test split, to be shown to readers.

    number: number of the item, counted from 1.
    texts: pairs of a name and a text, such as ("source", "Ein Hund.").
    """

    number: int
    texts: tuple[tuple[str, str], ...]


class Task(ABC):
    """Base of tasks.

    Every task sets `name`, `data_config` and `architectures`, and implements `n_targets`, `collate`
    and `output_terms`. A task that makes predictions also sets `prediction_metrics`, and implements
    `predict`, and `statistics` or `measure` with `measure_items`. The rest has usual defaults.

    Attributes:
        name: name of the task in a study.
        data_config: class of the `data` section, which names the text fields of an item.
        architectures: values of `architecture` that the task supports.
        model_metrics: metrics of the model's likelihood on the dev split.
        units: unit over which the likelihood is averaged, by metric, such as "subword token" for a
            perplexity per subword token. Metrics without a unit describe themselves by the
            signatures of their scores, as sacreBLEU does.
        prediction_metrics: metrics of the predictions for the test split; empty if the task makes
            no predictions.
        predicts_texts: whether predictions are texts to read, not lines of numbers.
        default_metrics: names of the metrics of a study that names none. Verdicts use the first.
        defaults: default values of fields, where they differ from the paper's values.
        settings: classes of task-specific row fields that this task uses. A study of this task may
            set no other task-specific fields.
        shown_fields: settings that the legend of a table always shows.
        paper: the paper's table of this task.
        predicts: what `ablate predict` prints for a text: a prediction for each line, a
            continuation, or candidates for its masked tokens; empty if `ablate predict` does not
            support the task.
        exported_as: kind of the model in other libraries: sequence-to-sequence, causal or masked;
            empty if it cannot be exported.
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

    # Check of a user's class

    def class_fault(self) -> str:
        """The first fault of the class attributes; empty without a fault."""
        for former, name in FORMER_METHODS.items():
            if hasattr(self, former):
                return f"{former} has another name in version 0.2; rename it to {name}"
        if not isinstance(getattr(self, "name", None), str):
            return "name is not a str"
        for name in ("architectures", "model_metrics", "default_metrics", "settings"):
            if not isinstance(getattr(self, name, None), tuple):
                return f"{name} is not a tuple"
        data = getattr(self, "data_config", None)
        if not (isinstance(data, type) and issubclass(data, PREPARABLE)):
            return "data_config is not a subclass of ablate.tasks.DataConfig"
        if isinstance(getattr(data, "fields", ()), str):  # read as a name for each letter
            return f'fields of {data.__name__} is not a tuple; write ("{data.fields}",)'
        if PPL not in self.model_metrics:
            return "model_metrics does not have PPL, which early stopping and learning curves use"
        for section in self.settings:
            if not (isinstance(section, type) and issubclass(section, TaskSettings)):
                return "settings must contain only classes such as ablate.tasks.SearchSettings"
        if not self.default_metrics:
            return "default_metrics is empty; verdicts use its first metric"
        for name in self.architectures:
            if name not in ARCHITECTURES:
                return f"architectures has {unknown_name('architecture', str(name), ARCHITECTURES)}"
        for name in self.default_metrics:
            if name not in self.metrics:
                allowed = listed(self.metrics)
                return f"default_metrics has {name}, which is not a metric of the task: {allowed}"
        return ""

    # Settings

    @property
    def metrics(self) -> dict[str, Metric]:
        """All metrics of the task, by name."""
        return {metric.name: metric for metric in (*self.model_metrics, *self.prediction_metrics)}

    @property
    def prediction_metric_names(self) -> frozenset[str]:
        """Names of `prediction_metrics`."""
        return frozenset(metric.name for metric in self.prediction_metrics)

    @property
    def unused_fields(self) -> dict[str, str]:
        """Fields of a row that have no effect with this task, each with the reason."""
        used = {name for section in self.settings for name in section.model_fields}
        return {name: f"task {self.name}" for name in TASK_FIELDS if name not in used}

    @property
    def original_defaults(self) -> dict[str, Any]:
        """Values of unused fields for run ids: the first default of each field whose default has
        changed. Then a new default of a field changes no run id of a task that does not use it.
        """
        facts = facts_of(DecodingConfig)
        defaults = {}
        for name in self.unused_fields:
            if name in facts and facts[name].introduced is not UNSET:
                defaults[name] = facts[name].introduced
        return defaults

    def resolve_data(self, settings: Mapping[str, Any]) -> CorpusConfig:
        """Complete the study's `data` section. The name of a corpus is replaced by its splits.

        Raises:
            pydantic.ValidationError: a value is missing, of the wrong type or out of range.
            ValueError: the corpus is unknown, or the settings contradict each other.
        """
        return self.data_config.resolve(settings)

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data.

        A fault names fields of the row, or fields of the data after `data.`, such as
        `data.max_length`. A fault that names no field may be a plain text.
        """
        if config.architecture not in self.architectures:
            problem = f"architecture={config.architecture} does not work with task {self.name}"
            remedy = f"use {' or '.join(self.architectures)}"
            yield Fault(problem, ("architecture",), remedy=remedy)
        if config.loss_term != "none" and type(self).loss_terms is not Task.loss_terms:
            problem = "loss_term has no effect with a task that has its own loss_terms"
            yield Fault(problem, ("loss_term",), remedy="remove it")
        if isinstance(data, DataConfig):
            longest = f"a sequence of data.max_length={data.max_length} and its end"
            yield from config.batch_faults(longest, data.max_length + 1, "data.max_length")

    def longest_sequences(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The positions that the longest sequences take in training, in the data and in evaluation;
        None if they are unknown.
        """
        return None

    def check_metrics(
        self, metrics: Sequence[str], data: CorpusConfig, config: RowConfig
    ) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be scored by the metrics of a study."""
        return iter(())

    def describe(
        self, metric: Metric, data: CorpusConfig, vocab_sizes: Sequence[int]
    ) -> str | None:
        """Describe a metric for the legend of a table; None if its scores have signatures."""
        unit = self.units.get(metric.name)
        if unit is None:
            return None
        sizes = ", ".join(map(str, vocab_sizes))
        dev = "" if data.dev == "dev" else f"dev={data.dev}, "
        return f"per {unit}, {dev}vocab_size={sizes}, plain negative log-likelihood"

    # Data

    def test_size(self, data: CorpusConfig, config: RowConfig) -> tuple[str, int] | None:
        """Name and value of the setting for the size of test items, such as ("length", 40); None if
        rows cannot set the size, or if the test items have several sizes.
        """
        return None

    def prepare(
        self,
        data: CorpusConfig,
        folder: Path,
        corpora: Path,
        log: Callable[[str], None] = lambda line: None,
    ) -> Corpus:
        """Prepare the corpus of a study, or find it if it is prepared already.

        Args:
            data: settings of the corpus.
            folder: folder to which relative paths refer.
            corpora: folder of prepared corpora.
            log: receives a line for each stage.

        Raises:
            DataError: the corpus is missing or malformed.
        """
        from ablate.data.prepare import prepare

        return prepare(data, folder, corpora, log)

    @property
    def makes_text(self) -> bool:
        """Whether the class overrides `prepare`: the files of `data` may not be its text."""
        return type(self).prepare is not Task.prepare

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The items of `train` or `dev` for training, such as sentence pairs or contexts."""
        return corpus.split(split)

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """The training items for one step, such as items with new masks; by default, `split`.

        They must have the lengths of the items in `split`, and depend only on the arguments, so
        that a resumed run trains on the same items.

        Args:
            split: training items from `items`.
            seed: seed of the run.
            step: number of the step, counted from 1.
        """
        return split

    @abstractmethod
    def n_targets(self, split: Split, items: Indices) -> int:
        """Number of target tokens of these items: the denominator of the mean loss."""

    @abstractmethod
    def collate(self, split: Split, items: Indices) -> Batch:
        """Make the padded batch of these items."""

    def notes_on_scores(self, corpus: Corpus, metrics: Sequence[str]) -> Iterator[str]:
        """Yield a warning for each reason why a metric does not suit the test split."""
        return iter(())

    # Model

    @abstractmethod
    def output_terms(self, model: Transformer, batch: Any) -> OutputTerms:
        """Run the model on a batch from `collate`, whose type is each task's own."""

    def training_terms(self, model: Transformer, batch: Any) -> list[OutputTerms]:
        """Run the model on a training batch.

        Returns:
            The terms for the next token, as from `output_terms`; then the terms for each later
            token that the model predicts too (multi-token prediction), whose losses have the weight
            `future_loss`.
        """
        return [self.output_terms(model, batch)]

    def loss_terms(
        self, model: Transformer, batch: Batch, label_smoothing: float
    ) -> tuple[Tensor, int]:
        """Compute the training loss of a batch from `training_terms`.

        Returns:
            The loss in nats, summed over the target tokens, with the weighted losses of later
            tokens and the balance loss; and the number of target tokens.
        """
        from ablate.kernels.cross_entropy import smoothed_cross_entropy

        c = model.config
        loss, *future_losses = (
            smoothed_cross_entropy(*terms, label_smoothing, c.logit_cap, c.z_loss, model.loss_term)
            for terms in self.training_terms(model, batch)
        )
        for future_loss in future_losses:
            loss = loss + c.future_loss * future_loss
        # The balance loss, which the experts have kept since the last call, is a mean over tokens.
        # It is multiplied by the tokens, because the trainer divides the sum by them.
        return loss + batch.tokens * model.pop_balance_loss(), batch.tokens

    def nats_per_token(self, model: Transformer, split: Split, device: torch.device) -> float:
        """Mean negative log-likelihood of the target tokens of a split, in nats."""
        from ablate.data.batches import eval_batches
        from ablate.metrics import perplexity

        def batches(tokens: int) -> Iterator[Batch]:
            return (self.collate(split, items) for items in eval_batches(split, tokens))

        return perplexity.nats_per_token(model, batches, self.output_terms, device)

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

    def unigram_perplexity(self, corpus: Corpus, config: RowConfig) -> float | None:
        """Perplexity of the dev split under a unigram model, which predicts each token by its
        frequency among the training targets; None if batches have no `targets`.
        """
        from ablate.metrics.chance import unigram_perplexity

        dev = self.items(corpus, "dev", config)
        # The targets of one step stand for all steps: masks change them, but not their frequencies.
        train = self.at_step(self.items(corpus, "train", config), seed=0, step=1)
        if not hasattr(self.collate(dev, [0]), "targets"):
            return None

        def targets(split: Split, items: Indices) -> NDArray[np.int64]:
            batch: Any = self.collate(split, items)
            counted: NDArray[np.int64] = batch.targets.numpy()
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
        """Predict the test split: a line for each item; None if the task makes no predictions.

        Args:
            model: the trained model.
            corpus: the prepared corpus.
            config: the row.
            device: device of the model.
            after_batch: called after each batch; may raise an exception to stop.
        """
        return None

    def generate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> tuple[str, ...]:
        """Generate texts for the report."""
        return ()

    # Scores

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """The statistics from which `measure` and `measure_items` compute scores."""
        raise NotImplementedError(f"{type(self).__name__} has no metric {metric}")

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score predictions by one of `prediction_metrics`, also on resampled test sets."""
        from ablate.metrics import resampling

        measurement = resampling.measure(*self.statistics(metric, predictions, corpus))
        chance = self.chance_score(metric, corpus)
        if chance is None:
            return measurement
        return measurement.model_copy(update={"parts": {CHANCE_SCORE.name: chance}})

    def chance_score(self, metric: str, corpus: Corpus) -> float | None:
        """The score of a guess, without learning; None if it is unknown."""
        return None

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Score each prediction separately."""
        values, score, _ = self.statistics(metric, predictions, corpus)
        return [float(score(statistics)) for statistics in values]

    def n_predictions(self, corpus: Corpus) -> int:
        """Number of items of the test split."""
        return len(corpus.split("test"))

    def item_predictions(self, predictions: Sequence[str]) -> Sequence[str]:
        """Select the predictions for items of the test split, one for each item. `predict` may
        append lines for probes, which are further test sets, such as minimal pairs.
        """
        return predictions

    def scores_items(self, metric: Metric) -> bool:
        """Whether a metric scores predictions for the items of the test split, not for a probe. The
        first prediction metric does so, and each one for the same kind of item, such as sentences.
        """
        is_of_predictions = metric.name in self.prediction_metric_names
        return is_of_predictions and metric.item == self.prediction_metrics[0].item

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Yield the texts of some items of the test split, for reports."""
        return iter(())
