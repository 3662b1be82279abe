"""Base of causal and masked language models. Text is a stream of tokens: it is cut into contexts,
which the model reads, and into blocks, which are scored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import BYTES, FIELD, LanguageData
from ablate.config.reach import Reach
from ablate.errors import Fault
from ablate.stats.metrics import PAIRS_RIGHT, PPL
from ablate.store.records import Score
from ablate.tasks.base import OutputTerms, Sample, Task

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from ablate.data.contexts import ContextBatch, Contexts
    from ablate.data.corpus import Corpus, Split
    from ablate.metrics.resampling import Statistics
    from ablate.metrics.token_scores import Blocks, TokenScores
    from ablate.model import Transformer
    from ablate.tasks.base import Indices

_SHOWN_CHARACTERS = 300  # number of characters of a block that reports show


class TextTask(Task):
    """Base of tasks on a stream of text. Predictions are lines of scores, one for each block of the
    test split.

    Attributes:
        counted: name of the target tokens in signatures.
    """

    data_config = LanguageData
    predicts_texts = False
    shown_fields: ClassVar[tuple[str, ...]] = ("batch_tokens", "warmup_steps", "context")
    counted: ClassVar[str]
    units: ClassVar[Mapping[str, str]] = {}

    # Settings

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data."""
        yield from super().check(data, config)
        assert isinstance(data, LanguageData)
        if config.context is None:
            problem = "context must be given: the number of tokens in a training context"
            yield Fault(problem, ("context",))
            return
        for name in ("context", "eval_context"):
            length = getattr(config, name)
            if length is not None and length > config.max_positions:
                yield Fault(
                    f"{name}={length} is longer than max_positions={config.max_positions}",
                    (name, "max_positions"),
                    remedy="increase max_positions",
                )
        yield from config.batch_faults(f"context={config.context}", config.context, "context")
        if config.stride is not None and config.stride > config.context:
            limit = f"it must be at most context={config.context}"
            problem = f"stride={config.stride} leaves out tokens: {limit}"
            yield Fault(problem, ("stride", "context"))
        if data.tokenizer == BYTES and config.vocab_size not in (None, data.vocab_size):
            yield Fault(
                f"vocab_size={config.vocab_size} has no effect with data.tokenizer=bytes",
                ("vocab_size", "data.tokenizer"),
                remedy="remove it, or set data.tokenizer to bpe or unigram",
            )

    def longest_sequences(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The lengths of contexts in training and in evaluation."""
        if config.context is None:
            return None
        context = config.context
        return Reach(context, context, max(context, config.eval_context or 0))

    def check_metrics(
        self, metrics: Sequence[str], data: CorpusConfig, config: RowConfig
    ) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be scored by the metrics of a study."""
        assert isinstance(data, LanguageData)
        has_pairs = data.minimal_pairs is not None
        uses_pairs = PAIRS_RIGHT.name in metrics
        if has_pairs and not uses_pairs:
            problem = f"minimal_pairs has no effect: metrics do not name {PAIRS_RIGHT.name}"
            yield Fault(problem, ("data.minimal_pairs",))
        if uses_pairs and not has_pairs:
            yield Fault(
                f"metric {PAIRS_RIGHT.name} needs data.minimal_pairs, a file of sentence pairs"
            )

    # Data

    @abstractmethod
    def evaluation(self, config: RowConfig) -> str:
        """Describe a row's evaluation contexts for signatures, such as `ctx:64|stride:64`."""

    def evaluation_contexts(self, corpus: Corpus, split: str, config: RowConfig) -> Contexts:
        """The contexts of a split for a row's evaluation, in which each token is scored once."""
        return cut_contexts(corpus, split, *evaluated(config), score_once=True)

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The contexts of `train` or `dev` for training. In `dev`, each token is scored once."""
        context = config.context
        is_train = split == "train"
        assert context is not None
        stride = (is_train and config.stride) or context
        return cut_contexts(corpus, split, context, stride, score_once=not is_train).as_split()

    def n_targets(self, split: Split, items: Indices) -> int:
        """Number of target tokens in these contexts."""
        return contexts_in(split).count_targets(items)

    def collate(self, split: Split, items: Indices) -> ContextBatch:
        """Make the padded batch of these contexts."""
        return contexts_in(split).collate(items)

    # Model

    def output_terms(self, model: Transformer, batch: ContextBatch) -> OutputTerms:
        """Run the model, and select the states that predict target tokens."""
        states = batch.select_targets(model.read(batch.inputs))
        return _terms(model, states, batch.targets)

    def training_terms(self, model: Transformer, batch: ContextBatch) -> list[OutputTerms]:
        """The terms for the next token, then for each later token that is within the context."""
        if not model.config.future_tokens:
            return super().training_terms(model, batch)
        states, *future_states = model.read_ahead(batch.inputs)
        terms = [_terms(model, batch.select_targets(states), batch.targets)]
        for distance, states in enumerate(future_states, 1):
            targets = batch.future_tokens(distance)
            terms.append(_terms(model, states[targets != 0], targets[targets != 0]))
        return terms

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Measure the perplexity of the dev split in a row's evaluation contexts."""
        contexts = self.evaluation_contexts(corpus, "dev", config)
        value = self.perplexity(model, contexts.as_split(), device)
        count = contexts.count_targets(range(len(contexts)))
        V = corpus.tokenizer.vocab_size
        scored = f"{self.counted}:{count}|split:{corpus.manifest.data['dev']}|V:{V}"
        return {PPL.name: Score(value=value, signature=f"{self.evaluation(config)}|{scored}")}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Score the test split: a line for each block."""
        contexts = self.evaluation_contexts(corpus, "test", config)
        scores = self.token_scores(model, contexts, device, after_batch)
        return self.lines(scores, self.blocks(corpus), self.evaluation(config))

    def token_scores(
        self,
        model: Transformer,
        contexts: Contexts,
        device: torch.device,
        after_batch: Callable[[], None],
    ) -> TokenScores:
        """Score the target tokens of contexts."""
        from ablate.data.batches import eval_batches
        from ablate.metrics.token_scores import score_text

        split = contexts.as_split()

        def batches(tokens: int) -> Iterator[tuple[NDArray[np.int64], ContextBatch]]:
            for items in eval_batches(split, tokens):
                batch = contexts.collate(items)
                yield batch.indices, batch

        return score_text(model, batches, self.output_terms, device, after_batch)

    # Scores

    @abstractmethod
    def lines(self, scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
        """A line for each block."""

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """Loss or accuracy of each block of the test split; see `Task.statistics`."""
        from ablate.metrics.token_scores import block_statistics

        return block_statistics(metric, predictions, str(corpus.manifest.data["test"]))

    def n_predictions(self, corpus: Corpus) -> int:
        """Number of blocks of the test split."""
        return len(self.blocks(corpus))

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Yield the beginnings of some blocks of the test split."""
        blocks = self.blocks(corpus)
        test = corpus.split("test")[FIELD]
        for i in items:
            (text,) = corpus.tokenizer.decode([test.ids[blocks.token_blocks == i].tolist()])
            yield Sample(i + 1, (("text", text[:_SHOWN_CHARACTERS]),))

    def blocks(self, corpus: Corpus) -> Blocks:
        """The blocks of the test split."""
        from ablate.metrics.token_scores import divide_into_blocks

        return divide_into_blocks(corpus.split("test")[FIELD], corpus.tokenizer)


def _terms(model: Transformer, states: Tensor, targets: Tensor) -> OutputTerms:
    return OutputTerms(model.output_states(states), model.output_matrix, targets)


def evaluated(config: RowConfig) -> tuple[int, int]:
    """Length and stride of a row's evaluation contexts."""
    context = config.eval_context or config.context
    assert context is not None
    return context, config.eval_stride or context


def cut_contexts(
    corpus: Corpus, split: str, context: int, stride: int, *, score_once: bool
) -> Contexts:
    """Cut a split into contexts; see `ablate.data.contexts.cut`."""
    from ablate.data.contexts import cut

    joined = corpus.manifest.data["documents"] == "joined"
    return cut(corpus.split(split)[FIELD], context, stride, joined, score_once)


def contexts_in(split: Split) -> Contexts:
    """The contexts of a split that `TextTask.items` has returned."""
    contexts: Contexts = split[FIELD]  # type: ignore[assignment]
    return contexts


def defaults_of(architecture: str) -> Mapping[str, Any]:
    """Default values of fields for language models of an architecture."""
    return {"architecture": architecture, "label_smoothing": 0.0, "context": 256}
