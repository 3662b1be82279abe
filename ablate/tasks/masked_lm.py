"""Masked language models: predict masked tokens of a text from all other tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.config.language_data import (
    FIELD,
    ContextSettings,
    EvaluationContextSettings,
    EvaluationMaskSettings,
    MaskSettings,
)
from ablate.stats.metrics import CHANCE_SCORE, MASKED_ACCURACY, MASKED_LOSS
from ablate.store.records import Measurement
from ablate.tasks.text import TextTask, contexts_in, defaults_of, evaluated

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus, Split
    from ablate.data.masking import MaskedContexts, Masking
    from ablate.metrics.token_scores import Blocks, TokenScores

# Masks of the dev split during training. All rows have the same, so that early stopping is
# comparable.
DEV_MASK_RATE = 0.15
DEV_MASK_SEED = 1


class MaskedLanguageModel(TextTask):
    """Predict masked tokens; scored by loss and accuracy, with the same masks for all rows.

    In training, the masks change with every step (RoBERTa; Liu et al., 2019). In evaluation, every
    chosen token is replaced by the mask token.
    """

    name = "masked-lm"
    architectures = ("encoder-only",)
    prediction_metrics = (MASKED_LOSS, MASKED_ACCURACY)
    default_metrics = (MASKED_LOSS.name, MASKED_ACCURACY.name)
    defaults = defaults_of("encoder-only")
    settings = (ContextSettings, EvaluationContextSettings, MaskSettings, EvaluationMaskSettings)
    shown_fields = (*TextTask.shown_fields, "mask_rate", "mask_split")
    counted = "masked"
    predicts = "masks"
    exported_as = "masked"

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """Contexts with masks. The masks of dev are fixed; for train, `at_step` draws the masks of
        each step.
        """
        from ablate.data.masking import MaskedContexts, Masking

        contexts = contexts_in(super().items(corpus, split, config))
        key: tuple[int, ...]
        if split == "train":
            masking = Masking.parse(config.mask_rate, config.mask_split, config.whole_word)
            key = ()
        else:
            masking = _evaluation_masking(DEV_MASK_RATE)
            key = (DEV_MASK_SEED,)
        return MaskedContexts.mask(contexts, masking, key, corpus.tokenizer).as_split()

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """Replace the masks by the masks of a step."""
        from ablate.data.masking import MaskedContexts

        contexts = contexts_in(split)
        assert isinstance(contexts, MaskedContexts)
        return contexts.replace_key(seed, step).as_split()

    def evaluation(self, config: RowConfig) -> str:
        """Length and masks of a row's evaluation contexts, such as
        `ctx:64|rate:0.15|of:tokens|seed:1`.
        """
        unit = "words" if config.eval_whole_word else "tokens"
        context, _ = evaluated(config)
        rate = f"{config.eval_mask_rate:g}"
        return f"ctx:{context}|rate:{rate}|of:{unit}|seed:{config.eval_mask_seed}"

    def evaluation_contexts(self, corpus: Corpus, split: str, config: RowConfig) -> MaskedContexts:
        """The contexts of a split with the masks of a row's evaluation."""
        from ablate.data.masking import MaskedContexts

        contexts = super().evaluation_contexts(corpus, split, config)
        masking = _evaluation_masking(config.eval_mask_rate, whole_word=config.eval_whole_word)
        return MaskedContexts.mask(contexts, masking, (config.eval_mask_seed,), corpus.tokenizer)

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score the masked tokens. The accuracy has the score of a lucky guess, which always
        predicts the most frequent token.
        """
        from ablate.metrics.chance import lucky_accuracy, share_of_most_frequent

        measurement = super().measure(metric, predictions, corpus)
        if metric != MASKED_ACCURACY.name:
            return measurement
        share = share_of_most_frequent(corpus.split("test")[FIELD].ids)
        n_masked = self.statistics(metric, predictions, corpus).values[:, -1].sum()
        parts = {CHANCE_SCORE.name: lucky_accuracy(share, int(n_masked))}
        return measurement.model_copy(update={"parts": parts})

    def lines(self, scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
        """A line with the scores of the masked tokens of each block."""
        from ablate.metrics.token_scores import masked_lines

        return masked_lines(scores, blocks, evaluation)


def _evaluation_masking(rate: float, *, whole_word: bool = False) -> Masking:
    """The masking of evaluations, which replaces every chosen token by the mask token."""
    from ablate.data.masking import Masking

    return Masking(rate, 1.0, 0.0, whole_word)
