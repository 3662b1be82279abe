"""Power of a study for `ablate plan`: detectable differences, from the spread of finished runs, a
stated one, or that of the published studies.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ablate.analysis.results import (
    RunResult,
    by_row,
    paired_scores,
    read_runs,
    resamples_of,
    scores_of,
)
from ablate.formatting import plural
from ablate.plan.typical import PublishedSpread, published_differences, typical_spreads
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.comparison import PairedScores
from ablate.stats.looks import Look, looks_of
from ablate.stats.metrics import Metric
from ablate.stats.noise import seed_noise
from ablate.stats.power import detectable, seeds_to_see
from ablate.stats.significance import LEVEL, POWER
from ablate.store import Results
from ablate.study import Study

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
    published: the studies whose spread is taken as typical.
    rows_open: number of rows that may show a spread and have no two scores yet.
    """

    study: Study
    metric: Metric
    sd: float
    sentences: float
    source: Source
    published: Sequence[PublishedSpread] = ()
    rows_open: int = 0

    @property
    def rows(self) -> int:
        """Number of rows that are compared with the first base, and share the noise of seeds."""
        return self.study.families[0].total

    @property
    def looks(self) -> tuple[Look, ...]:
        """The looks of the study, if it states some."""
        return looks_of(self.study.judged_at)

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
            further = 0
            if seeds == len(self.study.seeds):
                further = len(self.study.further_seeds)
        level *= self.study.share_of_level(self.metric.name)
        return detectable(
            seeds, self.rows, self.sd, self.sentences, level, further, tests=self.study.tests
        )

    @property
    def detectable_sds(self) -> float | None:
        """Smallest difference that all seeds find with 80 % probability, in standard deviations of
        a score over seeds, without the noise of sentences; None with a single seed.
        """
        level = looks_of(self.study.plan)[-1].level
        return replace(self, sd=1.0, sentences=0.0).detectable(len(self.study.seeds), level)

    def seeds_to_see(self, difference: float) -> int | None:
        """Number of seeds that find this difference with 80 % probability; None if 1000 are not
        enough.

        In a study with looks, the seeds of the first look that finds it; None if none does.
        """
        for look in self.looks:
            smallest = self.detectable(look.seeds, look.level)
            if smallest is not None and smallest <= difference:
                return look.seeds
        if self.looks:
            return None
        level = LEVEL * self.study.share_of_level(self.metric.name)
        return seeds_to_see(
            difference, self.rows, self.sd, self.sentences, level, tests=self.study.tests
        )

    def as_json(self) -> dict[str, Any]:
        """For scripts; `detectable` by number of seeds. With an unknown spread, sd and differences
        are None.
        """

        def known(difference: float | None) -> float | None:
            return None if self.source == "unknown" else difference

        by_seeds = {}
        for seeds in sorted({len(self.study.seeds), *OTHER_SEEDS}):
            by_seeds[str(seeds)] = known(self.detectable(seeds))
        content: dict[str, Any] = {
            "sd": known(self.sd),
            "sentences": self.sentences,
            "stated": self.source == "stated",
            "source": self.source,
            "published": [spread.study for spread in self.published],
            "detectable": by_seeds,
            "detectable_sds": self.detectable_sds,
            "warning": self.warning,
        }
        for look in self.looks:
            smallest = known(self.detectable(look.seeds, look.level))
            content.setdefault("looks", []).append({**look.as_json(), "detectable": smallest})
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
                f"over seeds, as {larger} of {rows} rows of published studies do"
            )
        remedy = f"`seeds: {list(range(1, ENOUGH_SEEDS + 1))}`"
        smallest, would = self.detectable(ENOUGH_SEEDS), "shows more"
        if smallest is not None:
            would = f"would find {self._amount(smallest)}"
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
        rows = plural(self.study.tests, "row")
        if self.looks:
            at_looks = []
            for look in self.looks:
                amount = self._amount(self.detectable(look.seeds, look.level))
                at = f"look {look.number} ({look.seeds} seeds, level {look.level:.3g})"
                at_looks.append(f"{at} {amount}")
            known = f"{'; '.join(at_looks)}; {self._noise}"
            return f"With {rows}, found with {POWER:.0%} probability: {known}."
        own, further = len(self.study.seeds), len(self.study.further_seeds)
        others = []
        for number in OTHER_SEEDS:
            if number != own or further:
                smallest = self._number(self.detectable(number, further=0))
                others.append(f"{number} seeds {smallest}")
        seeds = plural(own, "seed")
        if further:
            seeds += f", {own + further} of base,"
        elif own > 1:
            more = self._number(self.detectable(own, further=own))
            others.append(f"{own} seeds and {2 * own} of base {more}")
        amount = self._amount(self.detectable(own))
        return (
            f"With {seeds} and {rows} the study finds {amount} with {POWER:.0%} probability "
            f"({', '.join(others)}); {self._noise}."
        )

    def _number(self, difference: float | None) -> str:
        if difference is None:
            return "nothing (one seed shows no spread)"
        return self.metric.size_text(difference)

    def _amount(self, difference: float | None) -> str:
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
        names, sds = [], []
        for spread in self.published:
            names.append(spread.study)
            sds.append(spread.sd)
        low, high = min(sds), max(sds)
        noun = "study" if len(sds) == 1 else "studies"
        noise += f", typical of the published {noun} {', '.join(names)}"
        if low < high:
            noise += f" ({self._number(low)} to {self._number(high)})"
        return noise

    def seeds_text(self, difference: float) -> str:
        """Number of seeds needed to find a difference."""
        stated = f"{difference:g}"
        if self.metric.is_log:
            stated = self.metric.size_text(difference)
        what = f"A difference of {stated} {self.metric.title}"
        needed = self.seeds_to_see(difference)
        if self.looks and needed is None:
            return f"{what}: no look finds it with {POWER:.0%} probability."
        if self.looks:
            return f"{what}: found at the look with {needed} seeds with {POWER:.0%} probability."
        if needed is None and self.sentences:
            return f"{what}: 1000 seeds are not enough, because of the test {self.metric.item}s."
        if needed is None:
            return f"{what}: 1000 seeds are not enough."
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
    if not study.families[0].total:
        return []
    judged = [study.task.metrics[name] for name in study.judged]
    if spread is not None:
        return [Power(study, judged[0], spread, 0.0, "stated")]
    of_runs = power_of_runs(study, read_runs(study, results))
    return of_runs or [_typical_power(study, metric) for metric in judged]


def power_of_runs(study: Study, runs: Sequence[RunResult]) -> list[Power]:
    """Power with the spread of the study's runs, as `power_of`; none if no row has two seeds."""
    of_rows, powers, is_known = by_row(runs), [], False
    base = of_rows[study.base.label]
    judged = [study.task.metrics[name] for name in study.judged]
    rows = study.families[0].rows
    repeated = study.repeated(rows)
    different = [row for row in rows if row.label not in repeated]
    for metric in dict.fromkeys((*judged, *study.task.model_metrics[:1])):
        pairs = []
        for row in different:
            pair = paired_scores(metric, of_rows[row.label], base, study.seeds)
            # Rows of the same trainings have almost no noise against each other, so they say
            # nothing about that of others.
            if not pair.same_training:
                pairs.append(pair)
        sd = scores_of(base, metric).std
        # Around the layout row x seed, which rows share
        if noisy := [pair.differences for pair in pairs if pair.shows_noise]:
            sd = math.sqrt(seed_noise(noisy).pooled.value)
        is_known |= sd is not None
        if sd or metric in judged:
            sentences = _sd_over_sentences(pairs, resamples_of(base, metric))
            rows_open = sum(len(pair.differences) < 2 for pair in pairs)
            power = Power(study, metric, sd or 0.0, sentences, "runs", rows_open=rows_open)
            powers.append(power)
    return powers if is_known else []


def _typical_power(study: Study, metric: Metric) -> Power:
    """Power with the median spread of the published studies, or in standard deviations."""
    published = typical_spreads(study.task_name, metric.name, study.data.corpus)
    if published:
        sd = statistics.median(spread.sd for spread in published)
        sentences = statistics.median(spread.sentences for spread in published)
        return Power(study, metric, sd, sentences, "typical", published)
    title = "standard deviations over seeds"
    if len(study.judged) > 1:
        title = f"standard deviations of {metric.title} over seeds"
    in_sds = replace(metric, title=title, digits=1, of_100=False, scale="linear")
    return Power(study, in_sds, 1.0, 0.0, "unknown")


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
