"""Power of a study for `ablate plan`: detectable differences, from the spread of finished runs, a
stated one, or that of the published studies.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ablate.analysis.results import RunResult, read_runs
from ablate.config.metrics import Metric
from ablate.formatting import plural
from ablate.plan.typical import PublishedSpread, published_differences, typical_spreads
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.looks import Look, looks_of
from ablate.stats.noise import seed_noise
from ablate.stats.power import detectable, seeds_to_see
from ablate.stats.significance import LEVEL, POWER
from ablate.store import Results
from ablate.study import Row, Study

OTHER_SEEDS = (2, 3, 5, 8)  # numbers of seeds that are shown beside the study's
ENOUGH_SEEDS = 5  # for half of the published differences; advised in place of too few
RARE = 0.25  # a study is hopeless if a smaller share of the published differences is as large

Source = Literal["stated", "runs", "typical", "unknown"]


@dataclass(frozen=True)
class Power:
    """Power of a study in one metric.

    sd: of a score over seeds; 0 if the runs show no spread. If it is unknown, it is 1, and the unit
        of `metric` is a standard deviation.
    sentences: of a difference over test sentences, 0 if unknown.
    source: of the sd: given, the study's runs, the published studies, or none.
    seeds, rows: of the study; rows without base.
    looks: of the study.
    published: the studies whose spread is taken as typical.
    further: number of seeds that only base has.
    share: part of the level at which the metric is tested.
    """

    metric: Metric
    sd: float
    sentences: float
    source: Source
    seeds: int
    rows: int
    looks: tuple[Look, ...] = ()
    published: tuple[PublishedSpread, ...] = ()
    further: int = 0
    share: float = 1.0

    def detectable(
        self, seeds: int, level: float = LEVEL, *, further: int | None = None
    ) -> float | None:
        """Smallest difference that is found with 80 % probability at this level; None with a single
        seed, or without a spread.

        Args:
            seeds: of every row.
            level: of the verdicts in all metrics.
            further: seeds that only base has; None for those of the study, with its own number of
                seeds, and for none with another number.
        """
        if seeds < 2 or not self.sd:
            return None
        if further is None:
            further = self.further if seeds == self.seeds else 0
        level *= self.share
        return detectable(seeds, self.rows, self.sd, self.sentences, level, further)

    @property
    def detectable_sds(self) -> float | None:
        """Smallest difference that all seeds find with 80 % probability, in standard deviations of
        a score over seeds, without the noise of sentences; None with a single seed.
        """
        if self.seeds < 2:
            return None
        level = (self.looks[-1].level if self.looks else LEVEL) * self.share
        return detectable(self.seeds, self.rows, 1.0, level=level, further=self.further)

    def seeds_to_see(self, difference: float) -> int | None:
        """Number of seeds that find this difference with 80 % probability; None if 1000 are not
        enough.

        In a study with looks, the seeds of the first look that finds it; None if none does.
        """
        for look in self.looks:
            found = self.detectable(look.seeds, look.level)
            if found is not None and found <= difference:
                return look.seeds
        if self.looks:
            return None
        level = LEVEL * self.share
        return seeds_to_see(difference, self.rows, self.sd, self.sentences, level)

    def as_json(self) -> dict[str, Any]:
        """For scripts; `detectable` by number of seeds. With an unknown spread, sd and differences
        are None.
        """
        is_known = self.source != "unknown"
        content: dict[str, Any] = {
            "sd": self.sd if is_known else None,
            "sentences": self.sentences,
            "stated": self.source == "stated",
            "source": self.source,
            "published": [spread.study for spread in self.published],
            "detectable": {
                str(seeds): self.detectable(seeds) if is_known else None
                for seeds in sorted({self.seeds, *OTHER_SEEDS})
            },
            "detectable_sds": self.detectable_sds,
            "warning": self.warning,
        }
        if self.looks:
            content["looks"] = [
                {
                    "seeds": look.seeds,
                    "level": look.level,
                    "spent": look.spent,
                    "detectable": self.detectable(look.seeds, look.level) if is_known else None,
                }
                for look in self.looks
            ]
        return content

    @property
    def warning(self) -> str | None:
        """A line with the remedy if the seeds are too few to find most of what the rows of the
        published studies show; None if they are enough.
        """
        if self.detectable_sds is None:
            reason = "one seed gives no verdict, because it shows no spread"
        else:
            larger, rows = published_differences(self.detectable_sds)
            if larger >= RARE * rows:
                return None
            reason = (
                f"a row must differ from base by {self.detectable_sds:.0f} standard deviations "
                f"over seeds, as {larger} of the {rows} rows of the published studies do"
            )
        remedy = f"`seeds: {list(range(1, ENOUGH_SEEDS + 1))}`"
        found = self.detectable(ENOUGH_SEEDS)
        would = "shows more" if found is None else f"would find {self._amount(found)}"
        return f"Too few seeds: {reason}. {remedy} {would}."

    @property
    def text(self) -> str:
        """One sentence: the difference that the study's seeds find, and the ones that other numbers
        of seeds would.
        """
        title = self.metric.title
        if not self.sd:
            return (
                f"The runs that exist show no spread of {title} over seeds: the difference in "
                f"{title} that the study finds is unknown; --spread SD states one."
            )
        rows = plural(self.rows, "row")
        if self.looks:
            found = "; ".join(
                f"look {look.number} ({look.seeds} seeds, level {look.level:.3g}) "
                f"{self._amount(self.detectable(look.seeds, look.level))}"
                for look in self.looks
            )
            return f"With {rows}, found with {POWER:.0%} probability: {found}; {self._noise}."
        others = [
            f"{seeds} seeds {self._number(self.detectable(seeds, further=0))}"
            for seeds in OTHER_SEEDS
            if seeds != self.seeds or self.further
        ]
        seeds = plural(self.seeds, "seed")
        if self.further:
            seeds += f", {self.seeds + self.further} of base,"
        elif self.seeds > 1:
            more = self._number(self.detectable(self.seeds, further=self.seeds))
            others.append(f"{self.seeds} seeds and {2 * self.seeds} of base {more}")
        found = self._amount(self.detectable(self.seeds))
        return (
            f"With {seeds} and {rows} the study finds {found} with {POWER:.0%} probability "
            f"({', '.join(others)}); {self._noise}."
        )

    def _number(self, difference: float | None) -> str:
        if difference is None:
            return "nothing (one seed shows no spread)"
        return self.metric.size_text(difference)

    def _stated(self, difference: float) -> str:
        return self.metric.size_text(difference) if self.metric.is_log else f"{difference:g}"

    def _amount(self, difference: float | None) -> str:
        unit = "" if difference is None else f" {self.metric.title}"
        return f"{self._number(difference)}{unit}"

    @property
    def _noise(self) -> str:
        if self.source == "unknown":
            return "the spread of the main metric is unknown, and --spread SD states it"
        origin = "stated" if self.source == "stated" else "in the runs that exist"
        if self.published:
            names = ", ".join(spread.study for spread in self.published)
            low = min(spread.sd for spread in self.published)
            high = max(spread.sd for spread in self.published)
            between = f" ({self._number(low)} to {self._number(high)})" if low < high else ""
            origin = f"typical of the published studies {names}{between}"
        sentences = f", over test {self.metric.item}s {self._number(self.sentences)}" * bool(
            self.sentences
        )
        return f"sd over seeds {self._number(self.sd)}{sentences}, {origin}"

    def seeds_text(self, difference: float) -> str:
        """Number of seeds needed to find a difference."""
        what = f"A difference of {self._stated(difference)} {self.metric.title}"
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
    """Power in the metrics of the study's verdicts, and in perplexity if runs show its spread; the
    main metric is first.

    The spread is the stated one, that of the study's runs, that of the published studies, or
    unknown, in this order. The main metric has the sd 0 if its scores show no spread.

    Args:
        study: to plan.
        results: with the runs that exist.
        spread: a stated sd over seeds of the main metric; None to estimate it from runs.

    Raises:
        StoreError: a result is damaged.
    """
    rows = study.family(study.base)
    judged = [study.task.metrics[name] for name in study.judged]
    main = judged[0]
    if not rows:
        return []
    looks = looks_of(study.looks.plan) if study.looks else ()
    size = len(study.seeds), rows, looks
    further = len(study.further_seeds)
    shares = {metric: study.share_of_level(metric.name) for metric in study.task.metrics.values()}
    if spread is not None:
        share = shares[main]
        return [Power(main, spread, 0.0, "stated", *size, further=further, share=share)]
    found = power_of_runs(study, read_runs(study, results))
    return found or [_typical_power(study, metric, *size, shares[metric]) for metric in judged]


def power_of_runs(study: Study, runs: Sequence[RunResult]) -> list[Power]:
    """Power with the spread of the study's runs, as `power_of`; none if no row has two seeds."""
    judged = [study.task.metrics[name] for name in study.judged]
    shares = {metric: study.share_of_level(metric.name) for metric in study.task.metrics.values()}
    looks = looks_of(study.looks.plan) if study.looks else ()
    size = len(study.seeds), study.family(study.base), looks
    further = len(study.further_seeds)
    metrics = dict.fromkeys((*judged, *study.task.model_metrics[:1]))
    sds = {metric: _sd_over_seeds(study, runs, metric) for metric in metrics}
    if all(sd is None for sd in sds.values()):
        return []
    return [
        Power(
            metric,
            sd or 0.0,
            _sd_over_sentences(study, runs, metric),
            "runs",
            *size,
            further=further,
            share=shares[metric],
        )
        for metric, sd in sds.items()
        if sd or metric in judged
    ]


def _typical_power(
    study: Study, metric: Metric, seeds: int, rows: int, looks: tuple[Look, ...], share: float
) -> Power:
    """Power with the median spread of the published studies, or in standard deviations."""
    further = len(study.further_seeds)
    published = tuple(typical_spreads(study.task_name, metric.name, study.data.corpus))
    if not published:
        title = f"standard deviations of {metric.title} over seeds"
        if len(study.judged) == 1:
            title = "standard deviations over seeds"
        in_sds = replace(metric, title=title, digits=1, of_100=False, scale="linear")
        return Power(in_sds, 1.0, 0.0, "unknown", seeds, rows, looks, (), further, share)
    sd = statistics.median(spread.sd for spread in published)
    sentences = statistics.median(spread.sentences for spread in published)
    return Power(metric, sd, sentences, "typical", seeds, rows, looks, published, further, share)


def _sd_over_seeds(study: Study, runs: Sequence[RunResult], metric: Metric) -> float | None:
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


def _sd_over_sentences(study: Study, runs: Sequence[RunResult], metric: Metric) -> float:
    """Standard deviation of a difference from base over test sentences: the median over rows; 0 if
    unknown.

    Until a row has scores, it is that of a row without an effect, which differs from base as base's
    seeds from each
    other: the root mean square over pairs of seeds, divided by the root of the number of seeds.
    """
    resamples = {
        (run.row.label, run.run.seed): list(map(metric.on_scale, run.resamples[metric.name]))
        for run in runs
        if run.resamples.get(metric.name)
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
    return [row for row in rows if not {run.id for run in study.runs_of(row)} <= of_base]


def _scores(study: Study, runs: Sequence[RunResult], metric: Metric) -> dict[str, dict[int, float]]:
    """Scores on the metric's scale, by row and seed."""
    scores: dict[str, dict[int, float]] = {row.label: {} for row in study.rows}
    for run in runs:
        if metric.name in run.scores:
            score = metric.on_scale(run.scores[metric.name].value)
            scores[run.row.label][run.run.seed] = score
    return scores
