"""Synthetic tasks: generated items that isolate one ability of a model, and train in minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.reach import Reach
from ablate.config.synthetic_data import DRAWN, EvaluationSizeSettings, SyntheticData
from ablate.errors import Fault, faults_in
from ablate.stats.metrics import ACCURACY, ANSWER_METRICS, ITEMS_RIGHT, PPL
from ablate.store.records import Score
from ablate.tasks.base import OutputTerms, Sample, Task

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from ablate.data.corpus import Corpus, Split
    from ablate.data.items import DrawnItems
    from ablate.metrics.resampling import Statistics
    from ablate.model import Transformer
    from ablate.tasks.base import Batch, Indices

_GUESSED = 2000  # number of test items on which the accuracy of a guess is measured


class Synthetic(Task):
    """Predict the answers in generated items. Only answers count in the loss and in scores.

    For a generator of their own, users derive a task from this class, and set `data_config` to a
    section with the generator.
    """

    name = "synthetic"
    data_config = SyntheticData
    architectures = ("decoder-only", "encoder-decoder")
    prediction_metrics = ANSWER_METRICS
    predicts_texts = False
    units: ClassVar[Mapping[str, str]] = {}  # scores have signatures
    default_metrics = ("accuracy", "items_right")
    defaults: ClassVar[Mapping[str, Any]] = {
        "architecture": "decoder-only",
        "label_smoothing": 0.0,
        "dropout": 0.0,
    }
    settings = (EvaluationSizeSettings,)
    shown_fields = ("batch_tokens", "warmup_steps")

    # Settings

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data."""
        from ablate.data.items import make_items

        assert isinstance(data, SyntheticData)
        yield from super().check(data, config)
        if config.vocab_size is not None:
            problem = f"vocab_size={config.vocab_size} has no effect: it follows from the generator"
            yield Fault(problem, ("vocab_size",))
        if data.train == DRAWN and config.train_fraction != 1:
            problem = f"train_fraction={config.train_fraction:g} has no effect: data.train is drawn"
            yield Fault(problem, ("train_fraction", "data.train"))
        if data.train == DRAWN and config.epochs is not None:
            problem = f"epochs={config.epochs} has no effect: data.train is drawn"
            yield Fault(problem, ("epochs", "data.train"), remedy="set train_steps")
        for field, size in (("eval_length", "length"), ("eval_pairs", "pairs")):
            if getattr(config, field) is not None and data.generator.size != size:
                problem = f"{field} has no effect on corpus {data.corpus}: its items have no {size}"
                yield Fault(problem, (field, "data.corpus"))
                return
        train = make_items(data, "train")
        test = make_items(data, "test", _test_size(config))
        try:
            longest = max(int(split.lengths.max()) for split in (train, test))
        except ValueError as error:
            if data.generator.draw is not None:  # a user's generator: keep its file and line
                raise
            yield from faults_in(error)
            return
        if longest > config.max_positions:
            yield Fault(
                f"items have up to {longest} tokens, more than "
                f"max_positions={config.max_positions}",
                ("max_positions", f"data.{data.generator.size}", "eval_length", "eval_pairs"),
                remedy="increase max_positions",
            )
        yield from config.batch_faults("an item", int(train.lengths.max()))

    def longest_sequences(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The lengths of the longest item in training, of the longest item in all splits, and of
        the longest item with the row's test size.
        """
        from ablate.data.items import make_items

        assert isinstance(data, SyntheticData)
        splits = [make_items(data, name) for name in ("train", "dev", "test")]
        try:
            longest_trained, *others = (int(split.lengths.max()) for split in splits)
            longest_test = int(make_items(data, "test", _test_size(config)).lengths.max())
        except (Exception, SystemExit):  # perhaps of a user's generator; `check` reports it
            return None
        longest = max(longest_trained, *others)
        return Reach(longest_trained, longest, max(longest, longest_test))

    def test_size(self, data: CorpusConfig, config: RowConfig) -> tuple[str, int] | None:
        """`length` or `pairs`, with the value for test items; None if they have several sizes."""
        assert isinstance(data, SyntheticData)
        size = _test_size(config)
        if size is None and data.shortest in (None, data.largest):
            size = data.largest
        return (data.generator.size, size) if size and data.generator.size else None

    # Data

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The items of a split: each as one sequence, or as source and target for an encoder."""
        from ablate.data.items import make_items

        data = self.data_settings(corpus)
        return make_items(data, split, has_source=config.has_encoder).as_split()

    def data_settings(self, corpus: Corpus) -> SyntheticData:
        """The settings with which a corpus was prepared."""
        assert issubclass(self.data_config, SyntheticData)
        return self.data_config(**corpus.manifest.data)  # type: ignore[arg-type]

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """Draw new items of the same sizes, unless `data.train` is a fixed number of items."""
        return _items(split).at_step(seed, step).as_split()

    def n_targets(self, split: Split, items: Indices) -> int:
        """Number of answers in these items."""
        return int(_items(split).answers(items).sum())

    def collate(self, split: Split, items: Indices) -> Batch:
        """Make the padded batch of items.

        An encoder reads an item up to the position of the first answer, where the decoder begins.
        """
        import numpy as np

        from ablate.data.batches import PairBatch, pad
        from ablate.data.contexts import ContextBatch

        inputs, targets = _items(split).draw(np.asarray(items))
        if not _items(split).has_source:
            is_answer = targets != 0
            indices = np.repeat(items, is_answer.sum(1))
            return ContextBatch.from_arrays(inputs, targets[is_answer], is_answer, indices)
        sources = []
        targets_in = []
        targets_out = []
        for tokens, answers in zip(inputs, targets, strict=True):
            first = int(np.flatnonzero(answers)[0])
            sources.append(tokens[: first + 1])
            targets_in.append(tokens[first:])
            targets_out.append(answers[first:])
        target_out = pad(targets_out)
        positions = target_out.flatten().nonzero()[:, 0]
        return PairBatch(pad(sources), pad(targets_in), target_out, positions)

    # Model

    def output_terms(self, model: Transformer, batch: Any) -> OutputTerms:
        """Run the model, and select the states that predict answers."""
        if model.config.has_encoder:
            states = model(batch.source, batch.target_in)
        else:
            states = model.read(batch.inputs)
        states = model.output_states(batch.select_targets(states))
        return OutputTerms(states, model.output_matrix, batch.targets)

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Perplexity of the answers of the dev split."""
        split = self.items(corpus, "dev", config)
        signature = f"{signature_of(self.data_settings(corpus))}|items:{len(split)}|split:dev"
        return {PPL.name: Score(value=self.perplexity(model, split, device), signature=signature)}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Score the answers of the test split: a line for each item."""
        import numpy as np

        from ablate.data.batches import eval_batches
        from ablate.data.items import make_items
        from ablate.metrics.token_scores import answer_lines, score_text

        data = self.data_settings(corpus)
        size = _test_size(config)
        split = make_items(data, "test", size, has_source=config.has_encoder).as_split()

        def batches(tokens: int) -> Iterator[tuple[NDArray[np.int64], Any]]:
            for items in eval_batches(split, tokens):
                # The answers of an item are consecutive in the batch.
                indices = np.repeat(items, _items(split).answers(items))
                yield indices, self.collate(split, items)

        scores = score_text(model, batches, self.output_terms, device, after_batch)
        return answer_lines(scores, signature_of(data, size))

    # Scores

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """Loss and accuracy of the answers of each item; see `Task.statistics`."""
        from ablate.metrics.token_scores import answer_statistics

        return answer_statistics(metric, predictions)

    def chance_score(self, metric: str, corpus: Corpus) -> float | None:
        """The accuracy of always predicting the most frequent answer, or for `items_right` the most
        frequent answers of an item.
        """
        import numpy as np

        from ablate.data.items import make_items
        from ablate.metrics.chance import guess_accuracy

        if metric not in (ACCURACY.name, ITEMS_RIGHT.name):
            return None
        # The frequencies of answers do not depend on the size of the items.
        test = make_items(self.data_settings(corpus), "test")
        answers = test.draw(np.arange(min(len(test), _GUESSED))).targets
        return guess_accuracy(answers[answers > 0] if metric == ACCURACY.name else answers)

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Yield some items as text."""
        from ablate.data.items import make_items, texts_of

        texts = texts_of(make_items(self.data_settings(corpus), "test"))
        for i in items:
            yield Sample(i + 1, (("text", texts[i]),))


def _test_size(config: RowConfig) -> int | None:
    """The size that a row sets for all test items; None if they have the sizes of training."""
    return config.eval_length or config.eval_pairs


def signature_of(data: SyntheticData, test_size: int | None = None) -> str:
    """Name of the items in signatures, such as `recall|pairs:4|symbols:16|gap:0`."""
    parts = [data.corpus]
    for name in data.generator.settings:
        value = getattr(data, name)
        if name == data.generator.size and test_size is not None:
            value = test_size
        elif name == data.generator.size and data.shortest not in (None, value):
            value = f"{data.shortest}-{value}"
        parts.append(f"{name}:{value}")
    return "|".join(parts)


def _items(split: Split) -> DrawnItems:
    items: DrawnItems = split["text"]  # type: ignore[assignment]
    return items
