"""Masked language models: tokens of a context that the model cannot read, predicted from all others
(BERT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import RowConfig
from ablate.config.language_data import (
    ContextSettings,
    EvaluationContextSettings,
    EvaluationMaskSettings,
    MaskSettings,
)
from ablate.config.metrics import MASKED_ACCURACY, MASKED_LOSS, PPL
from ablate.store.records import Measurement, Score
from ablate.tasks.base import OutputTerms
from ablate.tasks.text import FIELD, TextTask, contexts_of

if TYPE_CHECKING:
    import torch

    from ablate.data.contexts import ContextBatch, Contexts
    from ablate.data.corpus import Corpus, Split
    from ablate.data.masking import MaskedContexts, Masking
    from ablate.model import Transformer
    from ablate.tasks.base import Indices

# Of the dev split during training, whatever a row's evaluation is: early stopping must not depend
# on it.
DEV_MASK_RATE, DEV_MASK_SEED = 0.15, 1


class MaskedLanguageModel(TextTask):
    """Predict masked tokens; scored by their loss and accuracy under masks that are the same for
    all rows.

    The masks of training change with every step (RoBERTa; Liu et al., 2019). In evaluation every
    chosen token is read as the mask.
    """

    name = "masked-lm"
    architectures = ("encoder-only",)
    model_metrics = (PPL,)
    prediction_metrics = (MASKED_LOSS, MASKED_ACCURACY)
    default_metrics = (MASKED_LOSS.name, MASKED_ACCURACY.name)
    defaults: ClassVar[Mapping[str, Any]] = {
        "architecture": "encoder-only",
        "label_smoothing": 0.0,
        "context": 256,
    }
    settings = (ContextSettings, EvaluationContextSettings, MaskSettings, EvaluationMaskSettings)
    shown_fields = (*TextTask.shown_fields, "mask_rate", "mask_split")

    # Data

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The contexts that are trained on, whose masks `at_step` sets; of dev, all contexts with
        fixed masks.
        """
        from ablate.data.contexts import split_of
        from ablate.data.masking import Masking

        contexts = self.training_contexts(corpus, split, config)
        if split == "train":
            masking = Masking.of(config.mask_rate, config.mask_split, config.whole_word)
            return split_of(FIELD, _masked(contexts, masking, (), corpus))
        return split_of(
            FIELD, _masked(contexts, _evaluated(DEV_MASK_RATE), (DEV_MASK_SEED,), corpus)
        )

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """The contexts with the masks of a step."""
        from ablate.data.contexts import split_of

        return split_of(FIELD, _contexts(split).with_key(seed, step))

    def n_targets(self, split: Split, items: Indices) -> int:
        """Predicted tokens of these contexts."""
        return _contexts(split).counts(items)

    def collate(self, split: Split, items: Indices) -> ContextBatch:
        """Mask the contexts, and pad them at their ends."""
        from ablate.data.masking import collate_masked

        return collate_masked(_contexts(split), items)

    # Model

    def output_terms(self, model: Transformer, batch: ContextBatch) -> OutputTerms:
        """Run the stack; keep the states of the predicted tokens."""
        from ablate.model.encoder_only import EncoderOnly

        assert isinstance(model, EncoderOnly)
        states = model.output_states(batch.at_targets(model.read(batch.inputs)))
        return OutputTerms(states, model.output_matrix, batch.targets)

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Perplexity of the masked tokens of the dev split, under the masks of the evaluation."""
        from ablate.data.contexts import split_of

        contexts = evaluation_contexts(corpus, "dev", config)
        value = self.perplexity(model, split_of(FIELD, contexts), device)
        masked, name = contexts.counts(range(len(contexts))), corpus.manifest.data["dev"]
        V = corpus.tokenizer.vocab_size
        signature = f"{evaluation_text(config)}|masked:{masked}|split:{name}|V:{V}"
        return {PPL.name: Score(value=value, signature=signature)}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """The scores of the masked tokens of each block of the test split, as a line of text."""
        from ablate.data.batches import eval_batches
        from ablate.data.contexts import split_of
        from ablate.data.masking import collate_with_places
        from ablate.metrics.masked_tokens import collect_scores, lines_of, score_tokens

        contexts = evaluation_contexts(corpus, "test", config)

        def batches(tokens: int) -> Iterator[tuple[Any, ContextBatch]]:
            for items in eval_batches(split_of(FIELD, contexts), tokens):
                batch, places = collate_with_places(contexts, items)
                yield places, batch

        model.eval()
        scores = collect_scores(
            batches,
            lambda batch: score_tokens(*self.output_terms(model, batch), model.config.logit_cap),
            device,
            after_batch,
        )
        return lines_of(scores, self.blocks(corpus), evaluation_text(config))

    # Scores

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Loss or accuracy on the test split, also on resampled blocks."""
        from ablate.metrics.masked_tokens import measure

        return measure(metric, predictions, str(corpus.manifest.data["test"]))

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Loss or accuracy in each block."""
        from ablate.metrics.masked_tokens import block_scores

        return block_scores(metric, predictions)


def evaluation_text(config: RowConfig) -> str:
    """The masks of a row's evaluation, as signatures name them:
    `ctx:64|rate:0.15|of:tokens|seed:1`.
    """
    of = "words" if config.eval_whole_word else "tokens"
    context = config.eval_context or config.context
    return f"ctx:{context}|rate:{config.eval_mask_rate:g}|of:{of}|seed:{config.eval_mask_seed}"


def evaluation_contexts(corpus: Corpus, split: str, config: RowConfig) -> MaskedContexts:
    """The contexts of a split under the masks of a row's evaluation."""
    context = config.eval_context or config.context
    assert context is not None
    contexts = contexts_of(corpus, split, context, context, score_once=True)
    masking = _evaluated(config.eval_mask_rate, whole_word=config.eval_whole_word)
    return _masked(contexts, masking, (config.eval_mask_seed,), corpus)


def _evaluated(rate: float, *, whole_word: bool = False) -> Masking:
    """The masking of an evaluation, in which the model reads no chosen token."""
    from ablate.data.masking import Masking

    return Masking(rate, 1.0, 0.0, whole_word)


def _masked(
    contexts: Contexts, masking: Masking, key: tuple[int, ...], corpus: Corpus
) -> MaskedContexts:
    from ablate.data.masking import MaskedContexts

    return MaskedContexts.over(contexts, masking, key, corpus.tokenizer)


def _contexts(split: Split) -> MaskedContexts:
    contexts: MaskedContexts = split[FIELD]  # type: ignore[assignment]
    return contexts
