"""Check a user's task before training: its loss for two items of the corpus, in a model of one
layer, and its metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ablate.checks.properties import Comparison, PropertyCheck
from ablate.config import RowConfig
from ablate.custom.faults import ClassFault, faults_of
from ablate.custom.reference import Reference
from ablate.data.corpus import Corpus, Split
from ablate.formatting import plural
from ablate.model import Transformer, build
from ablate.stats.metrics import Metric
from ablate.store.records import Measurement
from ablate.tasks.base import Task
from ablate.tasks.sequence_to_sequence import SequenceToSequence

_SEARCHED = 1000  # number of training items among which the two items are searched
_ROUNDING = 0.01  # excess of a percentage that may be a rounding error


def check_task(
    task: Task, reference: Reference, corpus: Corpus, config: RowConfig, sources: Path
) -> None:
    """Check that the loss of two items is the sum of their losses, and that the metrics score
    texts.

    The batch of a step may be split into micro-batches, so the loss and the number of targets must
    be sums over the items.

    Raises:
        StudyError: a method fails, or the task lacks a property; with file and line number.
    """
    with faults_of([reference], sources):
        split = task.at_step(task.items(corpus, "train", config), seed=1, step=1)
        vocab_size = corpus.tokenizer.vocab_size
        model = build(config.single_layer(), vocab_size, seed=1, sources=sources).eval()
        TaskCheck(task, model, split, config.label_smoothing).run()
        _check_scores(task, corpus)


class _Measured(NamedTuple):
    """Loss of some items, summed over their targets, and their number of targets."""

    loss: float
    targets: int


class TaskCheck(PropertyCheck):
    """A task with a pair of items: the shortest and the longest of some training items."""

    def __init__(
        self, task: Task, model: Transformer, split: Split, label_smoothing: float
    ) -> None:
        self.task = task
        self.model = model
        self.split = split
        self.label_smoothing = label_smoothing
        self.pair = two_items(split)

    def check_results(self) -> None:
        """Refuse results of a wrong type, and wrong numbers of targets.

        `output_terms` is checked too: perplexity is computed from it, also if the task defines
        another loss.
        """
        with torch.no_grad():
            loss = self._measure(self.pair).loss
            batch = self.task.collate(self.split, np.array(self.pair))
            terms = self.task.output_terms(self.model, batch)
        if not len(terms.states) == len(terms.targets) == batch.tokens:
            raise ClassFault(
                f"output_terms has {len(terms.states)} states and {len(terms.targets)} targets for "
                f"{batch.tokens} target tokens",
                "output_terms",
                "collate",
            )
        if not math.isfinite(loss):
            raise ClassFault(f"the loss of two items is {loss}", "loss_terms")

    def compare_padding(self) -> Iterator[Comparison]:
        """Compare the loss of two items with the sum of the losses of each item alone, and refuse
        numbers of targets that do not add up.
        """
        both = self._measure(self.pair)
        first, second = (self._measure([item]) for item in self.pair)
        if both.targets != first.targets + second.targets:
            raise ClassFault(
                f"n_targets counts {both.targets} targets of two items, and {first.targets} + "
                f"{second.targets} of each item alone: padding must not count as a target",
                "n_targets",
            )
        yield Comparison(
            torch.tensor(both.loss),
            torch.tensor(first.loss + second.loss),
            f"the loss of two items is {both.loss:.4g}, and {first.loss:.4g} + {second.loss:.4g} "
            "of each item alone: it must be the sum over the targets, not a mean, and without "
            "padding",
            ("loss_terms", "output_terms", "collate"),
        )

    def compare_repetitions(self) -> Iterator[Comparison]:
        """Compare the loss of two items, computed twice."""
        again = torch.tensor(self._measure(self.pair).loss)
        loss = torch.tensor(self._measure(self.pair).loss)
        fault = "gives another loss for the same items when asked again: nothing may be random"
        yield Comparison(again, loss, fault, ("loss_terms", "collate"))

    def _measure(self, items: list[int]) -> _Measured:
        targets = self.task.n_targets(self.split, np.array(items))
        batch = self.task.collate(self.split, np.array(items))
        result: object = self.task.loss_terms(self.model, batch, self.label_smoothing)
        if not isinstance(result, tuple) or len(result) != 2:
            hint = "; is a return missing?" if result is None else ""
            raise ClassFault(
                f"loss_terms returns {type(result).__name__}, not (loss, number of targets){hint}",
                "loss_terms",
            )
        for count, method in ((batch.tokens, "collate"), (result[1], "loss_terms")):
            if count != targets:
                raise ClassFault(
                    f"n_targets counts {targets} targets, and {method} counts {count}: padding "
                    "must not count as a target",
                    "n_targets",
                    method,
                )
        return _Measured(float(result[0]), targets)


def _check_scores(task: Task, corpus: Corpus) -> None:
    """Check that all metrics can score empty texts, which beam search may return, and that no text
    has a better score than the references.
    """
    if not isinstance(task, SequenceToSequence):  # its predictions may be in a format of their own
        return
    empty = [""] * task.n_predictions(corpus)
    tried = {"empty predictions": empty}
    references = corpus.text("test", task.target)
    # Predictions of another `predict` may be in a format of their own.
    has_references = type(task).predict is SequenceToSequence.predict and len(references) == len(
        empty
    )
    if has_references:
        tried["the references"] = references
    for metric in task.prediction_metrics:
        for name, texts in tried.items():
            _check_items(task, metric, texts, corpus)
            score = _score(task, metric, texts, corpus)
            if metric.has_known_chance and (score < -_ROUNDING or score > 100.0 + _ROUNDING):
                raise ClassFault(
                    f"measure gives {name} {score:.6g} {metric.name}, which is a percentage: "
                    "return a number from 0 to 100, or set is_percentage=False for the metric",
                    "measure",
                )
        if has_references and metric.has_known_chance and metric.chance:
            _check_best(task, metric, references, corpus)


def _check_items(task: Task, metric: Metric, texts: list[str], corpus: Corpus) -> None:
    """Refuse anything but a list with a score for each prediction."""
    items: object = task.measure_items(metric.name, texts, corpus)
    if isinstance(items, list) and len(items) == len(texts):
        return
    returned = plural(len(items), "score") if isinstance(items, list) else type(items).__name__
    raise ClassFault(
        f"measure_items returns {returned} for {plural(len(texts), 'prediction')} in "
        f"{metric.name}, not a list with one score for each",
        "measure_items",
    )


def _score(task: Task, metric: Metric, texts: list[str], corpus: Corpus) -> float:
    whole: object = task.measure(metric.name, texts, corpus)
    if not isinstance(whole, Measurement):
        raise ClassFault(
            f"measure returns {type(whole).__name__} in {metric.name}, not a Measurement", "measure"
        )
    return whole.value


def _check_best(
    task: SequenceToSequence, metric: Metric, references: list[str], corpus: Corpus
) -> None:
    """Check that the references have the best score of a metric with a level of chance, such as
    accuracy. Other metrics may not compare with references: a share of words that the source does
    not have is higher for the references in another order.
    """
    best = _score(task, metric, references, corpus)
    empty = [""] * len(references)
    others = {
        "empty predictions": empty,
        "the references in reversed order": references[::-1],
        "the references shifted by one": references[1:] + references[:1],
        "the references of dev": [*corpus.text("dev", task.target), *empty][: len(empty)],
    }
    scores = {}
    for name, texts in others.items():
        if texts != references:
            scores[name] = _score(task, metric, texts, corpus)
    name = max(scores, key=lambda name: scores[name], default="")
    # An empty prediction may not be as good as the reference either.
    if scores and (scores[name] > best or scores.get("empty predictions") == best):
        raise ClassFault(
            f"gives {name} {scores[name]:.6g} {metric.name}, and the references of the test split "
            f"{best:.6g}: compare each prediction with the reference of the same item",
            "measure_items",
            "measure",
        )


def two_items(split: Split) -> list[int]:
    """Indices of the shortest and the longest item among the first items of a split."""
    lengths = split.lengths(np.arange(min(len(split), _SEARCHED))).sum(0)
    return [int(lengths.argmin()), int(lengths.argmax())]
