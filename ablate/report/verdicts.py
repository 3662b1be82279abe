"""Every row of a table against base: what the verdicts are made from, and the verdicts for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.config.metrics import Metric
from ablate.report.scores import Scores
from ablate.stats.verdict import PairedScores, Verdict, verdicts


@dataclass(frozen=True)
class Measurements:
    """A row's scores by metric, its scores on the resampled test sets by metric and seed, and its diverged seeds."""

    scores: Mapping[str, Scores]
    resamples: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    diverged: int = 0


def against_base(
    metrics: Mapping[str, Metric], base: Measurements, others: Sequence[Measurements]
) -> list[dict[str, Verdict]]:
    """For each other row its verdict in every metric, corrected over these rows."""
    found: list[dict[str, Verdict]] = [{} for _ in others]
    for name in base.scores:
        compared = [_compared(name, row, base) for row in others]
        for row, verdict in zip(found, verdicts(metrics[name], compared), strict=True):
            row[name] = verdict
    return found


def _compared(name: str, row: Measurements, base: Measurements) -> PairedScores:
    differences = row.scores[name].minus(base.scores[name]).by_seed
    ours, theirs = row.resamples.get(name, {}), base.resamples.get(name, {})
    both = {seed: (ours[seed], theirs[seed]) for seed in differences if seed in ours and seed in theirs}
    return PairedScores(differences, both, row.diverged)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """For scripts; a part that there is not is null."""
    seeds, test = verdict.seed_test, verdict.bootstrap
    return {
        "verdict": verdict.word,
        "text": verdict.text,
        "n": verdict.n,
        "mean": verdict.mean,
        "std": seeds.std if seeds else None,
        "low": seeds.low if seeds else None,
        "high": seeds.high if seeds else None,
        "p": seeds.p if seeds else None,
        "p_holm": verdict.p_seeds,
        "least_told": verdict.minimum_detectable,
        "test_set": {"low": test.low, "high": test.high, "p": test.p, "p_holm": verdict.p_bootstrap} if test else None,
    }
