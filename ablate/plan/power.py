"""Power of a study for `ablate plan`: detectable differences, from the spread of finished runs or a
stated one.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ablate.analysis.results import RunResult, read_runs
from ablate.config.metrics import Metric
from ablate.formatting import plural
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.looks import Look, looks_of
from ablate.stats.noise import seed_noise
from ablate.stats.power import POWER, detectable, seeds_to_see
from ablate.store import Results
from ablate.study import Row, Study

OTHER_SEEDS = (2, 3, 5, 8)  # numbers of seeds that are shown beside the study's


@dataclass(frozen=True)
class Power:
    """Power of a study in one metric.

    sd: of a score over seeds, 0 if no spread is known; `sentences`: of a difference over test
        sentences, 0 if unknown.
    is_stated: whether the sd was given, and not estimated from runs.
    seeds, rows: of the study; rows without base.
    looks: of the study.
    """

    metric: Metric
    sd: float
    sentences: float
    is_stated: bool
    seeds: int
    rows: int
    looks: tuple[Look, ...] = ()

    def detectable(self, seeds: int) -> float | None:
        """Smallest difference that is found with 80 % probability; None with a single seed, or
        without a spread.
        """
        return (
            detectable(seeds, self.rows, self.sd, self.sentences) if seeds > 1 and self.sd else None
        )

    def detectable_at(self, look: Look) -> float:
        """Smallest difference that this look alone finds with 80 % probability."""
        return detectable(look.seeds, self.rows, self.sd, self.sentences, look.level)

    def seeds_to_see(self, difference: float) -> int | None:
        """Number of seeds that find this difference with 80 % probability; None if 1000 are not
        enough.

        In a study with looks, the seeds of the first look that finds it; None if none does.
        """
        if self.looks:
            return next(
                (look.seeds for look in self.looks if self.detectable_at(look) <= difference), None
            )
        return seeds_to_see(difference, self.rows, self.sd, self.sentences)

    def as_json(self) -> dict[str, Any]:
        """For scripts; `detectable` by number of seeds."""
        numbers = sorted({self.seeds, *OTHER_SEEDS})
        return {
            "sd": self.sd,
            "sentences": self.sentences,
            "stated": self.is_stated,
            "detectable": {str(n): self.detectable(n) for n in numbers},
            **({"looks": [self._look_json(look) for look in self.looks]} if self.looks else {}),
        }

    def _look_json(self, look: Look) -> dict[str, Any]:
        detectable = self.detectable_at(look) if self.sd else None
        return {
            "seeds": look.seeds,
            "level": look.level,
            "spent": look.spent,
            "detectable": detectable,
        }

    @property
    def text(self) -> str:
        """One sentence: the difference that the study's seeds find, and the ones that other numbers
        of seeds would.
        """
        digits, title = self.metric.digits, self.metric.title
        if not self.sd:
            return (
                f"The runs that exist show no spread of {title} over seeds: the difference in "
                f"{title} that the study "
                "finds is unknown; --spread SD states one."
            )
        if self.looks:
            return self._text_of_looks()
        ours = self.detectable(self.seeds)
        found = (
            "nothing (one seed shows no spread)" if ours is None else f"{ours:.{digits}f} {title}"
        )
        others = ", ".join(
            f"{n} seeds {value:.{digits}f}"
            for n in OTHER_SEEDS
            if n != self.seeds and (value := self.detectable(n)) is not None
        )
        return (
            f"With {plural(self.seeds, 'seed')} and {plural(self.rows, 'row')} the study finds "
            f"{found} "
            f"with {POWER:.0%} probability ({others}); {self._noise}."
        )

    @property
    def _noise(self) -> str:
        digits = self.metric.digits
        origin = "stated" if self.is_stated else "in the runs that exist"
        sentences = (
            f", over test {self.metric.item}s {self.sentences:.{digits}f}" if self.sentences else ""
        )
        return f"sd over seeds {self.sd:.{digits}f}{sentences}, {origin}"

    def _text_of_looks(self) -> str:
        """Difference that each look finds by itself, and the error that it spends."""
        found = "; ".join(
            f"look {look.number} ({look.seeds} seeds, level {look.level:.3g}) "
            f"{self.detectable_at(look):.{self.metric.digits}f} {self.metric.title}"
            for look in self.looks
        )
        return (
            f"With {plural(self.rows, 'row')}, found with {POWER:.0%} probability: {found}; "
            f"{self._noise}."
        )

    def seeds_text(self, difference: float) -> str:
        """Number of seeds needed to find a difference."""
        what = f"A difference of {difference:g} {self.metric.title}"
        needed = self.seeds_to_see(difference)
        if self.looks:
            seen = (
                "no look finds it" if needed is None else f"found at the look with {needed} seeds"
            )
            return f"{what}: {seen} with {POWER:.0%} probability."
        if needed is None:
            why = f", because of the test {self.metric.item}s" if self.sentences else ""
            return f"{what}: 1000 seeds are not enough{why}."
        return f"{what} takes {plural(needed, 'seed')}."


def power_of(study: Study, results: Results, spread: float | None = None) -> list[Power]:
    """Power in the study's main metric and in perplexity, where a spread is known; the main metric
    is first.

    The main metric has the sd 0 if its scores show no spread.

    Args:
        study: to plan.
        results: with the runs that exist.
        spread: a stated sd over seeds of the main metric; None to estimate it from runs.

    Raises:
        StoreError: a result is damaged.
    """
    rows = study.family(study.base)
    main = study.task.metrics[study.metrics[0]]
    if not rows:
        return []
    looks = looks_of(study.looks.plan) if study.looks else ()
    if spread is not None:
        return [Power(main, spread, 0.0, True, len(study.seeds), rows, looks)]
    runs = read_runs(study, results)
    metrics = dict.fromkeys((main, study.task.model_metrics[0]))
    sds = {metric: _sd_over_seeds(study, runs, metric.name) for metric in metrics}
    if all(sd is None for sd in sds.values()):
        return []
    return [
        Power(
            metric,
            sd or 0.0,
            _sd_over_sentences(study, runs, metric.name),
            False,
            len(study.seeds),
            rows,
            looks,
        )
        for metric, sd in sds.items()
        if sd or metric == main
    ]


def _sd_over_seeds(study: Study, runs: Sequence[RunResult], metric: str) -> float | None:
    """Standard deviation that rows share over seeds: around the layout row x seed, or of base
    alone.
    """
    scores = _scores(study, runs, metric)
    base = scores[study.base.label]
    compared = [scores[row.label] for row in _compared(study)]
    differences = [
        {s: value - base[s] for s, value in row.items() if s in base} for row in compared
    ]
    several = [row for row in differences if len(row) > 1 and any(row.values())]
    if several:
        return math.sqrt(seed_noise(several).pooled.value)
    return statistics.stdev(base.values()) if len(base) > 1 else None


def _sd_over_sentences(study: Study, runs: Sequence[RunResult], metric: str) -> float:
    """Standard deviation of a difference from base over test sentences: the median over rows; 0 if
    unknown.

    Until a row has scores, it is that of a row without an effect, which differs from base as base's
    seeds from each
    other: the root mean square over pairs of seeds, divided by the root of the number of seeds.
    """
    resamples = {
        (run.row.label, run.run.seed): run.resamples[metric]
        for run in runs
        if run.resamples.get(metric)
    }
    of_base = {
        seed: resamples[label, seed] for label, seed in resamples if label == study.base.label
    }
    found = []
    for row in _compared(study):
        pairs = [
            (ours, theirs)
            for seed, theirs in of_base.items()
            if (ours := resamples.get((row.label, seed)))
        ]
        if pairs:
            found.append(paired_bootstrap(0.0, pairs).std)
    if found:
        return statistics.median(found)
    variances = [
        paired_bootstrap(0.0, [pair]).std ** 2
        for pair in itertools.combinations(of_base.values(), 2)
    ]
    return math.sqrt(statistics.fmean(variances) / len(of_base)) if variances else 0.0


def _compared(study: Study) -> list[Row]:
    """The rows that are compared with the first base, without those that only decode its trainings
    in another way.

    Rows of the same trainings have almost no noise against each other, so they say nothing about
    that of others.
    """
    of_base = {run.id for run in study.runs_of(study.base)}
    rows = [row for row in study.rows if row.base == study.base.label and not row.is_base]
    return [row for row in rows if {run.id for run in study.runs_of(row)} != of_base]


def _scores(study: Study, runs: Sequence[RunResult], metric: str) -> dict[str, dict[int, float]]:
    """Scores by row and seed."""
    scores: dict[str, dict[int, float]] = {row.label: {} for row in study.rows}
    for run in runs:
        if metric in run.scores:
            scores[run.row.label][run.run.seed] = run.scores[metric].value
    return scores
