"""Language models: predict each token of a text from the tokens before it; bits per byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import (
    FIELD,
    MINIMAL_PAIRS,
    CausalSettings,
    ContextSettings,
    EvaluationContextSettings,
    GenerationSettings,
    LanguageData,
    ProbeSettings,
)
from ablate.errors import Fault
from ablate.parts import mixers
from ablate.stats.metrics import BITS_PER_BYTE, INDUCTION_LOSS, LOSS_AFTER, PAIRS_RIGHT, PROBES
from ablate.tasks.text import TextTask, defaults_of, evaluated

if TYPE_CHECKING:
    import torch

    from ablate.data.contexts import Contexts
    from ablate.data.corpus import Corpus
    from ablate.metrics.resampling import Statistics
    from ablate.metrics.token_scores import Blocks, TokenScores
    from ablate.model import Transformer

GENERATED = 3  # number of texts for the report


class LanguageModel(TextTask):
    """Predict each token of a text from the tokens before it; scored in bits per byte."""

    name = "language-model"
    architectures = ("decoder-only",)
    prediction_metrics = (BITS_PER_BYTE, *PROBES)
    default_metrics = (BITS_PER_BYTE.name,)
    defaults = defaults_of("decoder-only")
    settings = (
        ContextSettings,
        CausalSettings,
        EvaluationContextSettings,
        GenerationSettings,
        ProbeSettings,
    )
    counted = "tokens"
    predicts = "continuation"
    exported_as = "causal"

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data."""
        yield from super().check(data, config)
        assert isinstance(data, LanguageData)
        if config.context is None:
            return
        context, stride = evaluated(config)
        if stride > context:
            limit = f"it must be at most eval_context={context}"
            problem = f"eval_stride={stride} leaves out tokens: {limit}"
            yield Fault(problem, ("eval_stride", "eval_context", "context"))
        if config.document_masks:
            for layer in config.all_layers:
                yield from mixers.document_mask_faults(layer)
        methods = [name for name in ("loss_terms", "output_terms") if _overrides(type(self), name)]
        if config.future_tokens and methods:
            problem = f"future_tokens has no effect with a task that has its own {methods[0]}"
            yield Fault(problem, ("future_tokens",), remedy="remove it")
        if config.document_masks and data.documents == "separate":
            problem = "document_masks has no effect with data.documents=separate"
            yield Fault(problem, ("document_masks", "data.documents"), remedy="remove it")

    def check_metrics(
        self, metrics: Sequence[str], data: CorpusConfig, config: RowConfig
    ) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be scored by the metrics of a study."""
        yield from super().check_metrics(metrics, data, config)
        if config.context is None:
            return
        context, _ = evaluated(config)
        name = "eval_context" if config.eval_context else "context"
        for metric in metrics:
            # Induction needs a repeated sequence: two tokens, and the same two again. Only the last
            # token can be predicted from the repetition.
            minimum = 4 if metric == INDUCTION_LOSS.name else LOSS_AFTER.get(metric, 0)
            if minimum > context:
                problem = (
                    f"{name}={context} is too short for metric {metric}, which needs {minimum}"
                )
                yield Fault(problem, (name,))

    def evaluation(self, config: RowConfig) -> str:
        """Length and stride of a row's evaluation contexts, such as `ctx:64|stride:64`."""
        context, stride = evaluated(config)
        return f"ctx:{context}|stride:{stride}"

    def lines(self, scores: TokenScores, blocks: Blocks, evaluation: str) -> list[str]:
        """A line with the negative log-likelihood of each block."""
        from ablate.metrics.token_scores import text_lines

        return text_lines(scores, blocks, evaluation)

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Score the test split: a line for each block, then the lines of the probes."""
        from ablate.data.contexts import cut
        from ablate.metrics import probes

        def score(contexts: Contexts) -> TokenScores:
            return self.token_scores(model, contexts, device, after_batch)

        contexts = self.evaluation_contexts(corpus, "test", config)
        scores = score(contexts)
        blocks = self.blocks(corpus)
        evaluation = self.evaluation(config)
        lines = self.lines(scores, blocks, evaluation)
        if not config.probes:
            return lines
        read_contexts = contexts.split_documents() if config.document_masks else contexts
        lines += probes.probe_lines(scores, read_contexts, blocks, evaluation)
        context, stride = evaluated(config)
        V = corpus.tokenizer.vocab_size
        sequences, length = probes.repeated_sequences(V, context)
        if length > 1:
            lines += probes.sequence_lines(score(sequences), length, V)
        if MINIMAL_PAIRS in corpus.manifest.records:
            sentences = corpus.split(MINIMAL_PAIRS)[FIELD]
            pair_contexts = cut(sentences, context, stride, joined=False, score_once=True)
            lines += probes.pair_lines(score(pair_contexts), sentences, evaluation)
        return lines

    def item_predictions(self, predictions: Sequence[str]) -> list[str]:
        """Select the lines of blocks, without the lines of probes."""
        return [line for line in predictions if line.startswith("nats=")]

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """Statistics of each block of the test split, or of each item of a probe; see
        `Task.statistics`.
        """
        if not self.metrics[metric].is_probe:
            return super().statistics(metric, self.item_predictions(predictions), corpus)
        from ablate.metrics.probes import probe_statistics

        split = MINIMAL_PAIRS if metric == PAIRS_RIGHT.name else "test"
        return probe_statistics(metric, predictions, str(corpus.manifest.data[split]))

    def chance_score(self, metric: str, corpus: Corpus) -> float | None:
        """The accuracy of guessing on minimal pairs, plus three standard deviations of luck."""
        from ablate.metrics.chance import lucky_accuracy

        if metric != PAIRS_RIGHT.name:
            return None
        return lucky_accuracy(0.5, len(corpus.split(MINIMAL_PAIRS)) // 2)

    def generate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> tuple[str, ...]:
        """Generate texts from the beginning of a document, with seeds 1, 2 and 3."""
        from ablate.decoding.generate import generate_text

        seeds = range(1, GENERATED + 1)
        return tuple(generate_text(model, corpus.tokenizer, "", config, seed) for seed in seeds)


def _overrides(task: type[TextTask], method: str) -> bool:
    """Whether a user's task overrides a method of `LanguageModel`."""
    return getattr(task, method) is not getattr(LanguageModel, method)
