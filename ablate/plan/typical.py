"""Typical spreads: those of the published studies, for a study without runs of its own.

`spreads.json` holds them; benchmarks/spreads.py computes it from the records in `results/`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GENERATED = "toy"  # its noise is no guide to that of natural text, nor the reverse
SYNTHETIC = "synthetic"  # its items are made so that parts differ by hundreds of deviations


@dataclass(frozen=True)
class PublishedSpread:
    """Noise and effects of a published study in a metric.

    is_main: whether it is the study's main metric; the other is perplexity.
    sd: standard deviation of a score over seeds, which its rows share.
    sentences: standard deviation of a difference over test sentences.
    differences: absolute mean difference of each row from its base.
    """

    study: str
    task: str
    corpus: str
    metric: str
    is_main: bool
    sd: float
    sentences: float
    differences: Sequence[float]


@cache
def published_spreads() -> tuple[PublishedSpread, ...]:
    """The spreads of all published studies."""
    text = Path(__file__).with_name("spreads.json").read_text(encoding="utf-8")
    return tuple(PublishedSpread(**spread) for spread in json.loads(text))


def typical_spreads(task: str, metric: str, corpus: str) -> list[PublishedSpread]:
    """The spreads of the published studies with this task and metric: those on the same corpus, or
    else, for natural text, those on other natural text.
    """
    on_same_corpus, on_natural_text = [], []
    for spread in published_spreads():
        if (spread.task, spread.metric) != (task, metric):
            continue
        if spread.corpus == corpus:
            on_same_corpus.append(spread)
        if GENERATED not in (corpus, spread.corpus):
            on_natural_text.append(spread)
    return on_same_corpus or on_natural_text


def published_differences(sds: float) -> tuple[int, int]:
    """How many rows of the published studies of real tasks differ from base by at least this many
    standard deviations over seeds, and the number of all these rows.
    """
    larger = rows = 0
    for spread in published_spreads():
        if spread.task == SYNTHETIC or not spread.is_main:
            continue
        rows += len(spread.differences)
        larger += sum(difference / spread.sd >= sds for difference in spread.differences)
    return larger, rows
