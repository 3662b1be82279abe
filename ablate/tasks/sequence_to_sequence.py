"""Base of the tasks that read a text and predict another text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ablate.config import DataConfig, DecodingConfig, RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.reach import Reach
from ablate.errors import Fault
from ablate.tasks.base import OutputTerms, Sample, Task

if TYPE_CHECKING:
    import torch

    from ablate.data.batches import PairBatch
    from ablate.data.corpus import Corpus, Split
    from ablate.decoding.constraint import Constrain
    from ablate.model import Transformer
    from ablate.tasks.base import Indices


class SequenceToSequence(Task):
    """Read the source field of an item and predict its target field: by default, the first and the
    second text field of the data.

    `ablate predict` and `ablate attention` work with all subclasses.
    """

    architectures = ("encoder-decoder", "decoder-only")
    predicts = "lines"

    def class_fault(self) -> str:
        """The first fault of the class attributes; empty without a fault."""
        fault = super().class_fault()
        if not fault and len(self.data_config.fields) < 2:
            return (
                "data_config has one text field; a SequenceToSequence task needs two, one to read "
                "and one to predict"
            )
        return fault

    @property
    def source(self) -> str:
        """The text field that the model reads."""
        return self.data_config.fields[0]

    @property
    def target(self) -> str:
        """The text field that the model predicts."""
        return self.data_config.fields[1]

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data."""
        if isinstance(data, DataConfig):
            positions = config.positions_needed(data.max_length, data.max_length)
            if positions > config.max_positions:
                yield Fault(
                    f"data.max_length={data.max_length} needs {positions} positions with begin "
                    f"and end tokens, more than max_positions={config.max_positions}",
                    ("data.max_length", "max_positions"),
                )
        yield from super().check(data, config)

    def longest_sequences(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The positions of the longest pair in training, of the longest pair of all splits, and of
        the longest source with the longest target that decoding may produce.
        """
        if not isinstance(data, DataConfig):
            return None
        longest_trained = data.longest_trained
        longest = data.max_length
        return Reach(
            config.positions_needed(longest_trained, longest_trained),
            config.positions_needed(longest, longest),
            config.positions_needed(longest, longest + config.max_extra_length),
        )

    def n_targets(self, split: Split, items: Indices) -> int:
        """Number of target tokens of these items, with end marks."""
        return int(split[self.target].lengths[items].sum())

    def collate(self, split: Split, items: Indices) -> PairBatch:
        """Make the padded batch of source and target."""
        from ablate.data.batches import collate

        return collate(split, items, self.source, self.target)

    def output_terms(self, model: Transformer, batch: PairBatch) -> OutputTerms:
        """Run the model, and select the states that predict target tokens."""
        states = batch.select_targets(model(batch.source, batch.target_in))
        return OutputTerms(model.output_states(states), model.output_matrix, batch.targets)

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Predict the target of each item of the test split by beam search."""
        from ablate.decoding import translate

        test = corpus.split("test")[self.source]
        sources = [test[i].tolist() for i in range(len(test))]
        tokenizer = corpus.tokenizer_of(self.target)
        constrain = self.constrain(corpus, config)
        return translate(model, tokenizer, sources, config, device, after_batch, constrain)

    def constrain(self, corpus: Corpus, decoding: DecodingConfig) -> Constrain | None:
        """A function that makes the constraint of beam search for a batch; None if the search is
        not constrained.
        """
        return None

    def as_read(self, text: str) -> str:
        """Convert a user's text to the form of the corpus."""
        return text.strip()

    def readable(self, prediction: str, text: str) -> str | None:
        """Convert a prediction to the form that `ablate predict` prints; None if it is not valid.

        Args:
            prediction: the decoded text.
            text: the source text, as returned by `as_read`.
        """
        return prediction

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Yield the source and the reference of some items of the test split."""
        sources = corpus.text("test", self.source)
        references = corpus.text("test", self.target)
        for i in items:
            yield Sample(i + 1, ((self.source, sources[i]), ("reference", references[i])))
