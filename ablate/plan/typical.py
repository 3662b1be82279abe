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


@dataclass(frozen=True)
class PublishedSpread:
    """Noise and effects of a published study in its first metric.

    sd: standard deviation of a score over seeds, which its rows share.
    sentences: standard deviation of a difference over test sentences.
    differences: absolute mean difference of each row from its base.
    """

    study: str
    task: str
    corpus: str
    metric: str
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
    alike = [one for one in published_spreads() if (one.task, one.metric) == (task, metric)]
    on_same_corpus = [one for one in alike if one.corpus == corpus]
    if on_same_corpus or corpus == GENERATED:
        return on_same_corpus
    return [one for one in alike if one.corpus != GENERATED]


def published_differences(sds: float) -> tuple[int, int]:
    """How many rows of the published studies differ from base by at least this many standard
    deviations over seeds, and the number of all these rows.
    """
    in_sds = [value / one.sd for one in published_spreads() for value in one.differences]
    return sum(value >= sds for value in in_sds), len(in_sds)
