"""Language models: a text as a stream of tokens, each predicted from those before it; bits per
byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import (
    ContextSettings,
    EvaluationContextSettings,
    GenerationSettings,
)
from ablate.config.metrics import BITS_PER_BYTE
from ablate.tasks.text import TextTask, contexts_of, defaults_of

if TYPE_CHECKING:
    import torch

    from ablate.data.contexts import Contexts
    from ablate.data.corpus import Corpus, Split
    from ablate.metrics.blocks import Blocks, TokenScores
    from ablate.model import Transformer

GENERATED = 3  # texts for the report


class LanguageModel(TextTask):
    """Predict each token of a text from those before it; scored in bits per byte."""

    name = "language-model"
    architectures = ("decoder-only",)
    prediction_metrics = (BITS_PER_BYTE,)
    default_metrics = (BITS_PER_BYTE.name,)
    defaults = defaults_of("decoder-only")
    settings = (ContextSettings, EvaluationContextSettings, GenerationSettings)
    counted = "tokens"
    used_by = "generate"
    exported_as = "causal"

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[str]:
        """Yield a message for each reason why a row cannot be trained on this data."""
        yield from super().check(data, config)
        if config.context is None:
            return
        context, stride = _evaluation(config)
        if stride > context:
            yield (
                f"eval_stride={stride} leaves out tokens: it must be at most eval_context={context}"
            )

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The contexts that are trained on; of dev, those that score each token once."""
        return self.training_contexts(corpus, split, config).as_split()

    def evaluation(self, config: RowConfig) -> str:
        """Tokens that predict a token, and tokens scored in each context."""
        context, stride = _evaluation(config)
        return f"ctx:{context}|stride:{stride}"

    def evaluation_contexts(self, corpus: Corpus, split: str, config: RowConfig) -> Contexts:
        """Contexts that score each token of a split once."""
        return contexts_of(corpus, split, *_evaluation(config), score_once=True)

    def lines(self, scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
        """The negative log-likelihood of each block."""
        from ablate.metrics.blocks import text_lines

        return text_lines(scores, blocks, evaluation)

    def generate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> tuple[str, ...]:
        """Texts that begin as a document does, with seeds 1, 2 and 3."""
        from ablate.decoding.generate import generate_text

        return tuple(
            generate_text(model, corpus.tokenizer, "", config, seed)
            for seed in range(1, GENERATED + 1)
        )


def _evaluation(config: RowConfig) -> tuple[int, int]:
    """Tokens that predict a token of an evaluation, and tokens scored in each context."""
    context = config.eval_context or config.context
    assert context is not None
    return context, config.eval_stride or context
