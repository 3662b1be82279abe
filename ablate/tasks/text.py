"""Base of language models, masked or not: a text as a stream of tokens, its contexts, and its
blocks of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.language_data import BYTES, LanguageData
from ablate.config.metrics import Metric
from ablate.tasks.base import Sample, Task

if TYPE_CHECKING:
    from ablate.data.contexts import Contexts
    from ablate.data.corpus import Corpus
    from ablate.metrics.bits_per_byte import Blocks

FIELD = "text"
_SHOWN_CHARACTERS = 300  # of a block of the test text


class TextTask(Task):
    """A task on a stream of text. Its predictions are a line for each block of the test text."""

    data_config = LanguageData
    shown_fields: ClassVar[tuple[str, ...]] = ("batch_tokens", "warmup_steps", "context")

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[str]:
        """Yield a message for each reason why a row cannot be trained on this data."""
        yield from super().check(data, config)
        assert isinstance(data, LanguageData)
        if config.context is None:
            yield "context must be given: the number of tokens in a training context"
            return
        for name in ("context", "eval_context"):
            length = getattr(config, name)
            if length is not None and length > config.max_positions:
                yield (
                    f"{name}={length} is longer than max_positions={config.max_positions}; "
                    f"increase max_positions"
                )
        if config.context > config.smallest_batch:
            yield f"context={config.context} does not fit in batch_tokens={config.smallest_batch}"
        if config.stride is not None and config.stride > config.context:
            yield (
                f"stride={config.stride} leaves out tokens: it must be at most "
                f"context={config.context}"
            )
        if data.tokenizer == BYTES and config.vocab_size not in (None, data.vocab_size):
            yield (
                f"vocab_size={config.vocab_size} has no effect with data.tokenizer=bytes; "
                f"remove it, or set data.tokenizer to bpe or unigram"
            )

    def describe(
        self, metric: Metric, data: CorpusConfig, vocab_sizes: Sequence[int]
    ) -> str | None:
        """None: each score has its signature, which names the context of the evaluation."""
        return None

    def training_contexts(self, corpus: Corpus, split: str, config: RowConfig) -> Contexts:
        """The contexts that are trained on; of dev, those that score each token once."""
        assert config.context is not None
        stride = config.stride if split == "train" and config.stride is not None else config.context
        return contexts_of(corpus, split, config.context, stride, score_once=split != "train")

    def n_predictions(self, corpus: Corpus) -> int:
        """Number of blocks of the test split."""
        return len(self.blocks(corpus))

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """The beginnings of some blocks."""
        blocks, test = self.blocks(corpus), corpus.split("test")[FIELD]
        for i in items:
            (text,) = corpus.tokenizer.decode([test.ids[blocks.of_token == i].tolist()])
            yield Sample(i + 1, (("text", text[:_SHOWN_CHARACTERS]),))

    def blocks(self, corpus: Corpus) -> Blocks:
        """The blocks of the test split."""
        from ablate.metrics.bits_per_byte import blocks_of

        return blocks_of(corpus.split("test")[FIELD], corpus.tokenizer)


def contexts_of(
    corpus: Corpus, split: str, context: int, stride: int, *, score_once: bool
) -> Contexts:
    """Cut a split into contexts of so many tokens."""
    from ablate.data.contexts import cut

    joined = corpus.manifest.data["documents"] == "joined"
    return cut(corpus.split(split)[FIELD], context, stride, joined, score_once)
