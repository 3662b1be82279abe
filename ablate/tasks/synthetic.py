"""Synthetic tasks: generated items that show in minutes what a part of a model is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.reach import Reach
from ablate.config.synthetic_data import DRAWN, EvaluationSizeSettings, SyntheticData
from ablate.errors import Fault, faults_in
from ablate.stats.metrics import ACCURACY, ANSWER_METRICS, CHANCE_SCORE, ITEMS_RIGHT, PPL
from ablate.store.records import Measurement, Score
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

_GUESSED = 2000  # test items whose answers a guess is measured on


class Synthetic(Task):
    """Predict the answers in generated items; loss and scores count nothing else.

    A task of one's own derives from this class, and names a data section with its generator.
    """

    name = "synthetic"
    data_config = SyntheticData
    architectures = ("decoder-only", "encoder-decoder")
    prediction_metrics = ANSWER_METRICS
    predicts_texts = False
    units: ClassVar[Mapping[str, str]] = {}  # signatures name the generator and its settings
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
        from ablate.data.items import items_of

        assert isinstance(data, SyntheticData)
        yield from super().check(data, config)
        if config.vocab_size is not None:
            what = f"vocab_size={config.vocab_size} has no effect: it follows from the generator"
            yield Fault(what, ("vocab_size",))
        if data.train == DRAWN and config.train_fraction != 1:
            what = f"train_fraction={config.train_fraction:g} has no effect: data.train is drawn"
            yield Fault(what, ("train_fraction", "data.train"))
        if data.train == DRAWN and config.epochs is not None:
            what = f"epochs={config.epochs} has no effect: data.train is drawn"
            yield Fault(what, ("epochs", "data.train"), remedy="set train_steps")
        for field, size in (("eval_length", "length"), ("eval_pairs", "pairs")):
            if getattr(config, field) is not None and data.generator.size != size:
                what = f"{field} has no effect on corpus {data.corpus}: its items have no {size}"
                yield Fault(what, (field, "data.corpus"))
                return
        train = items_of(data, "train")
        test = items_of(data, "test", _evaluated(config))
        try:
            longest = max(int(split.lengths.max()) for split in (train, test))
        except ValueError as error:
            if data.generator.draw is not None:  # of the user's own: with its file and line
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

    def reach(self, data: CorpusConfig, config: RowConfig) -> Reach | None:
        """The longest item; those of the row's own test items count as read."""
        from ablate.data.items import items_of

        assert isinstance(data, SyntheticData)
        splits = [items_of(data, name) for name in ("train", "dev", "test")]
        try:
            trained, *evaluated = (int(split.lengths.max()) for split in splits)
            tested = int(items_of(data, "test", _evaluated(config)).lengths.max())
        except (Exception, SystemExit):  # perhaps of a user's generator; `check` reports it
            return None
        of_data = max(trained, *evaluated)
        return Reach(trained, of_data, max(of_data, tested))

    def test_size(self, data: CorpusConfig, config: RowConfig) -> tuple[str, int] | None:
        """`length` or `pairs`, and that of the test items; None where they have several."""
        assert isinstance(data, SyntheticData)
        size = _evaluated(config)
        if size is None and data.shortest in (None, data.largest):
            size = data.largest
        return (data.generator.size, size) if size and data.generator.size else None

    # Data

    def items(self, corpus: Corpus, split: str, config: RowConfig) -> Split:
        """The items of a split, as one sequence or as two."""
        from ablate.data.items import items_of

        return items_of(self.data_of(corpus), split, has_source=config.has_encoder).as_split()

    def data_of(self, corpus: Corpus) -> SyntheticData:
        """The settings that a corpus was prepared with."""
        assert issubclass(self.data_config, SyntheticData)
        return self.data_config(**corpus.manifest.data)  # type: ignore[arg-type]

    def at_step(self, split: Split, seed: int, step: int) -> Split:
        """New items of the same sizes, unless training has a number of them."""
        return _items(split).at_step(seed, step).as_split()

    def n_targets(self, split: Split, items: Indices) -> int:
        """Answers of these items."""
        return int(_items(split).answers(items).sum())

    def collate(self, split: Split, items: Indices) -> Batch:
        """Pad the items at their ends. An encoder reads an item up to the place of the first
        answer; the decoder begins with the token there.
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
        before = []
        after = []
        for read, answers in zip(inputs, targets, strict=True):
            first = int(np.flatnonzero(answers)[0])
            sources.append(read[: first + 1])
            before.append(read[first:])
            after.append(answers[first:])
        target_out = pad(after)
        positions = target_out.flatten().nonzero()[:, 0]
        return PairBatch(pad(sources), pad(before), target_out, positions)

    # Model

    def output_terms(self, model: Transformer, batch: Any) -> OutputTerms:
        """Run the model; keep the states that predict the answers."""
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
        data = self.data_of(corpus)
        signature = f"{signature_of(data)}|items:{len(split)}|split:dev"
        return {PPL.name: Score(value=self.perplexity(model, split, device), signature=signature)}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """The scores of the answers of each test item, as a line of text."""
        import numpy as np

        from ablate.data.batches import eval_batches
        from ablate.data.items import items_of
        from ablate.metrics.answers import answer_lines
        from ablate.metrics.blocks import score_text

        data = self.data_of(corpus)
        size = _evaluated(config)
        split = items_of(data, "test", size, has_source=config.has_encoder).as_split()

        def batches(tokens: int) -> Iterator[tuple[NDArray[np.int64], Any]]:
            for items in eval_batches(split, tokens):
                # The answers of an item are one after another in the batch.
                item_of = np.repeat(items, _items(split).answers(items))
                yield item_of, self.collate(split, items)

        scores = score_text(model, batches, self.output_terms, device, after_batch)
        return answer_lines(scores, signature_of(data, size))

    # Scores

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """Loss and accuracy of the answers of each item."""
        from ablate.metrics.answers import answer_statistics

        return answer_statistics(metric, predictions)

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score predictions, also on resampled test sets; accuracies beside those of a guess."""
        import numpy as np

        from ablate.data.items import items_of
        from ablate.metrics.chance import accuracy_of_guess

        measured = super().measure(metric, predictions, corpus)
        if metric not in (ACCURACY.name, ITEMS_RIGHT.name):
            return measured
        # Of the sizes of training: whatever the size, a generator has the same answers.
        test = items_of(self.data_of(corpus), "test")
        answers = test.draw(np.arange(min(len(test), _GUESSED))).targets
        by_chance = accuracy_of_guess(answers[answers > 0] if metric == ACCURACY.name else answers)
        return measured.model_copy(update={"parts": {CHANCE_SCORE.name: by_chance}})

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Some items in words."""
        from ablate.data.items import items_of, texts_of

        texts = texts_of(items_of(self.data_of(corpus), "test"))
        for i in items:
            yield Sample(i + 1, (("text", texts[i]),))


def _evaluated(config: RowConfig) -> int | None:
    """The size of all test items; None: the sizes of training."""
    return config.eval_length or config.eval_pairs


def signature_of(data: SyntheticData, evaluated: int | None = None) -> str:
    """The items, as signatures name them: `recall|pairs:4|symbols:16|gap:0`."""
    parts = [data.corpus]
    for name in data.generator.settings:
        value = getattr(data, name)
        if name == data.generator.size and evaluated is not None:
            value = evaluated
        elif name == data.generator.size and data.shortest not in (None, value):
            value = f"{data.shortest}-{value}"
        parts.append(f"{name}:{value}")
    return "|".join(parts)


def _items(split: Split) -> DrawnItems:
    items: DrawnItems = split["text"]  # type: ignore[assignment]
    return items
