"""Typical spreads: standard deviations over seeds in the published studies, for a study that has no
finished runs.

benchmarks/spreads.py computes `spreads.json` from the records in `results/`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# A generated corpus. Its spreads say nothing about natural text, and the reverse.
GENERATED = "toy"
# A task whose items are made so that rows differ by hundreds of standard deviations.
SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class PublishedSpread:
    """The noise and the differences of a published study in one metric.

    study: name of the study.
    is_main: whether the metric is the study's main metric; else it is perplexity.
    sd: standard deviation of a score over seeds, pooled over the rows.
    sentences: standard deviation of a difference over resampled test sentences.
    text: number of tokens of the training text.
    trained: number of tokens that a run of base trains on, repetitions included.
    differences: absolute mean difference of each row from its base.
    """

    study: str
    task: str
    corpus: str
    metric: str
    is_main: bool
    sd: float
    sentences: float
    text: int
    trained: int
    differences: Sequence[float]

    def times_larger(self, text: float | None, trained: float | None) -> float:
        """The factor by which the published study has more training text than another study, or
        trains on more tokens, whichever is larger; numbers that are None are not compared.
        """
        return max(self.text / (text or math.inf), self.trained / (trained or math.inf))


@cache
def published_spreads() -> tuple[PublishedSpread, ...]:
    """The spreads of all published studies."""
    text = Path(__file__).with_name("spreads.json").read_text(encoding="utf-8")
    return tuple(PublishedSpread(**spread) for spread in json.loads(text))


def typical_spreads(task: str, metric: str, corpus: str) -> list[PublishedSpread]:
    """The spreads of the published studies with this task and metric on the same corpus. If there
    are none and the corpus is natural text, the spreads on other natural text.
    """
    on_same_corpus = []
    on_natural_text = []
    for spread in published_spreads():
        if (spread.task, spread.metric) != (task, metric):
            continue
        if spread.corpus == corpus:
            on_same_corpus.append(spread)
        if GENERATED not in (corpus, spread.corpus):
            on_natural_text.append(spread)
    return on_same_corpus or on_natural_text


def published_differences(sds: float) -> tuple[int, int]:
    """Count the rows of the published studies, without synthetic tasks, in their main metrics.

    Returns:
        The number of rows that differ from base by at least `sds` standard deviations over seeds,
        and the number of all rows.
    """
    larger = rows = 0
    for spread in published_spreads():
        if spread.task == SYNTHETIC or not spread.is_main:
            continue
        rows += len(spread.differences)
        larger += sum(difference / spread.sd >= sds for difference in spread.differences)
    return larger, rows
