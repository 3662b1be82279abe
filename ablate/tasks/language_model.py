"""Language models: a text as a stream of tokens, each predicted from those before it; bits per
byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import (
    ContextSettings,
    EvaluationContextSettings,
    GenerationSettings,
)
from ablate.config.metrics import BITS_PER_BYTE, PPL
from ablate.store.records import Measurement, Score
from ablate.tasks.base import OutputTerms
from ablate.tasks.text import FIELD, TextTask, contexts_of

if TYPE_CHECKING:
    import torch

    from ablate.data.contexts import ContextBatch, Contexts
    from ablate.data.corpus import Corpus, Split
    from ablate.model import Transformer
    from ablate.tasks.base import Indices

GENERATED = 3  # texts for the report


class LanguageModel(TextTask):
    """Predict each token of a text from those before it; scored in bits per byte."""

    name = "language-model"
    architectures = ("decoder-only",)
    model_metrics = (PPL,)
    prediction_metrics = (BITS_PER_BYTE,)
    default_metrics = (BITS_PER_BYTE.name,)
    defaults: ClassVar[Mapping[str, Any]] = {
        "architecture": "decoder-only",
        "label_smoothing": 0.0,
        "context": 256,
    }
    settings = (ContextSettings, EvaluationContextSettings, GenerationSettings)

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[str]:
        """Yield a message for each reason why a row cannot be trained on this data."""
        yield from super().check(data, config)
        if config.context is None:
            return
        context, stride = evaluation_of(config)
        if stride > context:
            yield (
                f"eval_stride={stride} leaves out tokens: it must be at most eval_context={context}"
            )

    # Data

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The contexts that are trained on; of dev, those that score each token once."""
        from ablate.data.contexts import split_of

        return split_of(FIELD, self.training_contexts(corpus, split, config))

    def n_targets(self, split: Split, items: Indices) -> int:
        """Tokens that count in these contexts."""
        contexts: Contexts = split[FIELD]  # type: ignore[assignment]
        return int(contexts.targets[items].sum())

    def collate(self, split: Split, items: Indices) -> ContextBatch:
        """Pad the contexts at their ends."""
        from ablate.data.contexts import collate

        return collate(split[FIELD], items)  # type: ignore[arg-type]

    # Model

    def output_terms(self, model: Transformer, batch: ContextBatch) -> OutputTerms:
        """Run the stack; keep the states that predict the tokens that count."""
        states = batch.at_targets(model.read(batch.inputs))
        return OutputTerms(model.output_states(states), model.output_matrix, batch.targets)

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Perplexity per token of the dev split, in the contexts of the evaluation."""
        from ablate.data.contexts import split_of

        context, stride = evaluation_of(config)
        contexts = contexts_of(corpus, "dev", context, stride, score_once=True)
        value = self.perplexity(model, split_of(FIELD, contexts), device)
        split, V = corpus.manifest.data["dev"], corpus.tokenizer.vocab_size
        signature = f"ctx:{context}|stride:{stride}|tokens:{len(contexts.ids)}|split:{split}|V:{V}"
        return {PPL.name: Score(value=value, signature=signature)}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """The negative log-likelihood of each block of the test split, as a line of text."""
        import numpy as np

        from ablate.data.batches import eval_batches
        from ablate.data.contexts import collate, split_of
        from ablate.metrics.bits_per_byte import collect_nats, lines_of, nats_of_tokens

        context, stride = evaluation_of(config)
        contexts = contexts_of(corpus, "test", context, stride, score_once=True)

        def batches(tokens: int) -> Iterator[tuple[Any, ContextBatch]]:
            for items in eval_batches(split_of(FIELD, contexts), tokens):
                spans = zip(contexts.scored[items], contexts.ends[items], strict=True)
                yield np.concatenate([np.arange(*span) for span in spans]), collate(contexts, items)

        model.eval()
        nats = collect_nats(
            len(contexts.ids),
            batches,
            lambda batch: nats_of_tokens(*self.output_terms(model, batch), model.config.logit_cap),
            device,
            after_batch,
        )
        return lines_of(nats, self.blocks(corpus), context, stride)

    def generate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> tuple[str, ...]:
        """Texts that begin as a document does, with seeds 1, 2 and 3."""
        from ablate.decoding.generate import generate_text

        return tuple(
            generate_text(model, corpus.tokenizer, "", config, seed)
            for seed in range(1, GENERATED + 1)
        )

    # Scores

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Bits per byte of the test split, also on resampled blocks."""
        from ablate.metrics.bits_per_byte import measure

        return measure(predictions, str(corpus.manifest.data["test"]))

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Bits per byte of each block."""
        from ablate.metrics.bits_per_byte import block_scores

        return block_scores(predictions)


def evaluation_of(config: RowConfig) -> tuple[int, int]:
    """Tokens that predict a token of an evaluation, and tokens scored in each context."""
    context = config.eval_context or config.context
    assert context is not None
    return context, config.eval_stride or context
