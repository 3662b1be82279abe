"""Check a user's own task on two items of its corpus, and its metrics, before training."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ablate.config import RowConfig
from ablate.data.corpus import Corpus, Split
from ablate.formatting import plural
from ablate.model import Transformer, build
from ablate.own.faults import OwnClassFault, faults_of
from ablate.own.reference import Reference
from ablate.store.records import Measurement
from ablate.tasks.base import Task
from ablate.tasks.sequence_to_sequence import SequenceToSequence

_AMONG = 1000  # items of the training split, from which the two are taken
_TOLERANCE = 1e-3  # relative; padding changes the last digits of a sum


def check_task(
    task: Task, plugin: Reference, corpus: Corpus, config: RowConfig, sources: Path
) -> None:
    """Compare a batch of two items with each item alone, in a model of one layer; score texts.

    A step may be split into micro-batches, so the loss and the number of targets must be sums over
    the items.

    Raises:
        StudyError: the loss is no sum, padding is counted, or a method fails; with file and line.
    """
    with faults_of([plugin], sources):
        split = task.at_step(task.items(corpus, "train", config), seed=1, step=1)
        small = config.with_one_layer()
        V = corpus.tokenizer.vocab_size
        model = build(small, V, seed=1, sources=sources).eval()
        with torch.no_grad():
            _check(task, model, split, config.label_smoothing)
        _check_scores(task, corpus)


def _check(task: Task, model: Transformer, split: Split, label_smoothing: float) -> None:
    pair = _two_items(split)
    together = _measure(task, model, split, pair, label_smoothing)
    first, second = (_measure(task, model, split, [item], label_smoothing) for item in pair)
    if together.targets != first.targets + second.targets:
        raise OwnClassFault(
            f"n_targets counts {together.targets} targets of two items, and {first.targets} + "
            f"{second.targets} of each alone: padding is no target",
            "n_targets",
        )
    total = first.loss + second.loss
    if not abs(together.loss - total) <= _TOLERANCE * max(1.0, abs(total)):  # NaN is a fault too
        raise OwnClassFault(
            f"the loss of two items is {together.loss:.4g}, and {first.loss:.4g} + "
            f"{second.loss:.4g} of each alone: it must be the sum over the targets, without "
            "padding and without a mean",
            "loss_terms", "output_terms", "collate",
        )  # fmt: skip
    _check_outputs(task, model, split, pair)


class _Measured(NamedTuple):
    """The loss of some items, and their number of targets."""

    loss: float
    targets: int


def _measure(
    task: Task, model: Transformer, split: Split, items: list[int], label_smoothing: float
) -> _Measured:
    targets = task.n_targets(split, np.array(items))
    batch = task.collate(split, np.array(items))
    result: object = task.loss_terms(model, batch, label_smoothing)
    if not isinstance(result, tuple) or len(result) != 2:
        hint = "; is a return missing?" if result is None else ""
        raise OwnClassFault(
            f"loss_terms returns {type(result).__name__}, not (loss, number of targets){hint}",
            "loss_terms",
        )
    for given, method in ((batch.tokens, "collate"), (result[1], "loss_terms")):
        if given != targets:
            raise OwnClassFault(
                f"n_targets counts {targets} targets, and {method} {given}: padding is no target",
                "n_targets",
                method,
            )
    return _Measured(float(result[0]), targets)


def _check_outputs(task: Task, model: Transformer, split: Split, pair: list[int]) -> None:
    """Perplexity is measured from `output_terms`, whatever the loss is."""
    batch = task.collate(split, np.array(pair))
    terms = task.output_terms(model, batch)
    counts = len(terms.states), len(terms.targets), batch.tokens
    if len(set(counts)) > 1:
        text = "output_terms has {} states and {} targets for {} target tokens".format(*counts)
        raise OwnClassFault(text, "output_terms", "collate")


def _check_scores(task: Task, corpus: Corpus) -> None:
    """Score empty texts, which beam search may return; other predictions have their own format."""
    if not isinstance(task, SequenceToSequence):
        return
    texts = [""] * task.n_predictions(corpus)
    for metric in task.prediction_metrics:
        items: object = task.measure_items(metric.name, texts, corpus)
        if not isinstance(items, list) or len(items) != len(texts):
            given = plural(len(items), "score") if isinstance(items, list) else type(items).__name__
            raise OwnClassFault(
                f"measure_items returns {given} for {plural(len(texts), 'prediction')} in "
                f"{metric.name}, not a list with one score for each",
                "measure_items",
            )
        whole: object = task.measure(metric.name, texts, corpus)
        if not isinstance(whole, Measurement):
            raise OwnClassFault(
                f"measure returns {type(whole).__name__} in {metric.name}, not a Measurement",
                "measure",
            )


def _two_items(split: Split) -> list[int]:
    """The shortest and the longest of the first items."""
    lengths = split.lengths(np.arange(min(len(split), _AMONG))).sum(0)
    return [int(lengths.argmin()), int(lengths.argmax())]
