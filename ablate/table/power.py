"""Power of an experiment in words: the differences that it detects at the spread of its scores."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ablate.formatting import plural
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.comparison import PairedScores
from ablate.stats.looks import Look, planned_looks
from ablate.stats.metrics import Metric
from ablate.stats.noise import seed_noise
from ablate.stats.power import detectable_difference, seeds_needed
from ablate.stats.significance import LEVEL, POWER
from ablate.table.experiment import Experiment
from ablate.table.verdicts import paired_scores, repeated, resamples_of, scores_of

OTHER_SEEDS = (2, 3, 5, 8)  # numbers of seeds that are shown beside the study's

Source = Literal["stated", "runs", "typical", "unknown"]


@dataclass(frozen=True)
class Power:
    """Power of a study in one metric.

    sd: of a score over seeds; 0 if the runs show no spread. If it is unknown, it is 1, and the unit
        of `metric` is a standard deviation.
    sentences: of a difference over test sentences, 0 if unknown.
    source: of the sd: given, the study's runs, the published studies, or none.
    published: spread over seeds of the studies whose spread is taken as typical, by their names.
    rows_open: number of rows that may show a spread and have no two scores yet.
    """

    experiment: Experiment
    metric: Metric
    sd: float
    sentences: float
    source: Source
    published: Mapping[str, float] = field(default_factory=dict)
    rows_open: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that are compared with the first base, and share the noise of seeds."""
        return self.experiment.totals[self.experiment.rows[0].label]

    @property
    def looks(self) -> tuple[Look, ...]:
        """The looks of the experiment; empty for a single one."""
        standing = self.experiment.standing
        return planned_looks(standing.plan) if standing.has_looks else ()

    def detectable_difference(
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
            further = 0
            if seeds == len(self.experiment.seeds):
                further = len(self.experiment.further_seeds)
        level *= self.experiment.share_of_level(self.metric.name)
        return detectable_difference(
            seeds, self.rows, self.sd, self.sentences, level, further, tests=self.experiment.tests
        )

    @property
    def detectable_sds(self) -> float | None:
        """Smallest difference that all seeds find with 80 % probability, in standard deviations of
        a score over seeds, without the noise of sentences; None with a single seed.
        """
        level = planned_looks(self.experiment.standing.plan)[-1].level
        in_sds = replace(self, sd=1.0, sentences=0.0)
        return in_sds.detectable_difference(len(self.experiment.seeds), level)

    def seeds_needed(self, difference: float) -> int | None:
        """Number of seeds that find this difference with 80 % probability; None if 1000 are not
        enough.

        In a study with looks, the seeds of the first look that finds it; None if none does.
        """
        for look in self.looks:
            smallest = self.detectable_difference(look.seeds, look.level)
            if smallest is not None and smallest <= difference:
                return look.seeds
        if self.looks:
            return None
        level = LEVEL * self.experiment.share_of_level(self.metric.name)
        return seeds_needed(
            difference, self.rows, self.sd, self.sentences, level, tests=self.experiment.tests
        )

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
        rows = plural(self.experiment.tests, "row")
        if self.looks:
            at_looks = []
            for look in self.looks:
                amount = self.amount(self.detectable_difference(look.seeds, look.level))
                at = f"look {look.number} ({look.seeds} seeds, level {look.level:.3g})"
                at_looks.append(f"{at} {amount}")
            known = f"{'; '.join(at_looks)}; {self._noise}"
            return f"With {rows}, found with {POWER:.0%} probability: {known}."
        own, further = len(self.experiment.seeds), len(self.experiment.further_seeds)
        others = []
        for number in OTHER_SEEDS:
            if number != own or further:
                smallest = self._number(self.detectable_difference(number, further=0))
                others.append(f"{number} seeds {smallest}")
        seeds = plural(own, "seed")
        if further:
            seeds += f", {own + further} of base,"
        elif own > 1:
            more = self._number(self.detectable_difference(own, further=own))
            others.append(f"{own} seeds and {2 * own} of base {more}")
        amount = self.amount(self.detectable_difference(own))
        return (
            f"With {seeds} and {rows} the study finds {amount} with {POWER:.0%} probability "
            f"({', '.join(others)}); {self._noise}."
        )

    def _number(self, difference: float | None) -> str:
        if difference is None:
            return "nothing (one seed shows no spread)"
        return self.metric.size_text(difference)

    def amount(self, difference: float | None) -> str:
        """A difference with the metric."""
        if difference is None:
            return self._number(difference)
        return f"{self._number(difference)} {self.metric.title}"

    @property
    def _noise(self) -> str:
        if self.source == "unknown":
            return "the spread of the main metric is unknown, and --spread SD states it"
        noise = f"sd over seeds {self._number(self.sd)}"
        if self.sentences:
            noise += f", over test {self.metric.item}s {self._number(self.sentences)}"
        if self.source == "stated":
            return f"{noise}, stated"
        if self.source == "runs":
            noise += ", in the runs that exist"
            if self.rows_open:  # the others may be quieter than these
                noise += f", without {self.rows_open} of {plural(self.rows, 'row')}"
            return noise
        low, high = min(self.published.values()), max(self.published.values())
        noun = "study" if len(self.published) == 1 else "studies"
        noise += f", typical of the published {noun} {', '.join(self.published)}"
        if low < high:
            noise += f" ({self._number(low)} to {self._number(high)})"
        return noise

    def seeds_text(self, difference: float) -> str:
        """Number of seeds needed to find a difference."""
        stated = f"{difference:g}"
        if self.metric.is_log:
            stated = self.metric.size_text(difference)
        what = f"A difference of {stated} {self.metric.title}"
        needed = self.seeds_needed(difference)
        if self.looks and needed is None:
            return f"{what}: no look finds it with {POWER:.0%} probability."
        if self.looks:
            return f"{what}: found at the look with {needed} seeds with {POWER:.0%} probability."
        if needed is None and self.sentences:
            return f"{what}: 1000 seeds are not enough, because of the test {self.metric.item}s."
        if needed is None:
            return f"{what}: 1000 seeds are not enough."
        return f"{what} takes {plural(needed, 'seed')}."


def power_of_scores(experiment: Experiment, metrics: Iterable[Metric]) -> list[Power]:
    """Power with the spread of the scores; none if no row has two seeds.

    Args:
        experiment: with the scores that there are.
        metrics: those of the verdicts, and others, which are left out without a spread.
    """
    base, powers, is_known = experiment.rows[0], [], False
    rows = [row for row in experiment.rows if row.base == base.label and not row.is_base]
    repeats = repeated(rows)
    for metric in dict.fromkeys(metrics):
        pairs = []
        for row in rows:
            pair = paired_scores(metric, row, base, experiment.seeds)
            # Rows of the same trainings have almost no noise against each other, so they say
            # nothing about that of others.
            if row.label not in repeats and not pair.same_training:
                pairs.append(pair)
        sd = scores_of(base.runs, metric).std
        # Around the layout row x seed, which rows share
        if noisy := [pair.differences for pair in pairs if pair.shows_noise]:
            sd = math.sqrt(seed_noise(noisy).pooled.value)
        is_known |= sd is not None
        if sd or metric in experiment.judged:
            sentences = _sd_over_sentences(pairs, resamples_of(base.runs, metric))
            rows_open = sum(len(pair.differences) < 2 for pair in pairs)
            power = Power(experiment, metric, sd or 0.0, sentences, "runs", rows_open=rows_open)
            powers.append(power)
    return powers if is_known else []


def _sd_over_sentences(
    pairs: Sequence[PairedScores], of_base: Mapping[int, Sequence[float]]
) -> float:
    """Standard deviation of a difference from base over test sentences: the median over rows; 0 if
    unknown.

    Until a row has scores, it is that of a row without an effect, which differs from base as base's
    seeds from each other: the root mean square over pairs of seeds, divided by the root of the
    number of seeds.
    """
    sds = []
    for pair in pairs:
        if pair.resamples:
            sds.append(paired_bootstrap(0.0, list(pair.resamples.values())).std)
    if sds:
        return statistics.median(sds)
    variances = []
    for two_seeds in itertools.combinations(of_base.values(), 2):
        variances.append(paired_bootstrap(0.0, [two_seeds]).std ** 2)
    return math.sqrt(statistics.fmean(variances) / len(of_base)) if variances else 0.0
