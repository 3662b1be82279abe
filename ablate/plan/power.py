"""Power of a study for `ablate plan`: detectable differences, from the spread of finished runs, a
stated one, or that of the published studies.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
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
            further = (seeds == self.seeds) * self.further
        level *= self.share
        return detectable(seeds, self.rows, self.sd, self.sentences, level, further)

    @property
    def detectable_sds(self) -> float | None:
        """Smallest difference that all seeds find with 80 % probability, in standard deviations of
        a score over seeds, without the noise of sentences; None with a single seed.
        """
        if self.seeds < 2:
            return None
        level = LEVEL
        if self.looks:
            level = self.looks[-1].level
        return detectable(
            self.seeds, self.rows, 1.0, level=level * self.share, further=self.further
        )

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
        level = LEVEL * self.share
        return seeds_to_see(difference, self.rows, self.sd, self.sentences, level)

    def as_json(self) -> dict[str, Any]:
        """For scripts; `detectable` by number of seeds. With an unknown spread, sd and differences
        are None.
        """
        is_known = self.source != "unknown"
        by_seeds = {}
        for seeds in sorted({self.seeds, *OTHER_SEEDS}):
            by_seeds[str(seeds)] = self.detectable(seeds) if is_known else None
        content: dict[str, Any] = {
            "sd": self.sd if is_known else None,
            "sentences": self.sentences,
            "stated": self.source == "stated",
            "source": self.source,
            "published": [spread.study for spread in self.published],
            "detectable": by_seeds,
            "detectable_sds": self.detectable_sds,
            "warning": self.warning,
        }
        for look in self.looks:
            smallest = self.detectable(look.seeds, look.level) if is_known else None
            of_look = {"seeds": look.seeds, "level": look.level, "spent": look.spent}
            content.setdefault("looks", []).append({**of_look, "detectable": smallest})
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
        rows = plural(self.rows, "row")
        if self.looks:
            at_looks = []
            for look in self.looks:
                amount = self._amount(self.detectable(look.seeds, look.level))
                at = f"look {look.number} ({look.seeds} seeds, level {look.level:.3g})"
                at_looks.append(f"{at} {amount}")
            known = f"{'; '.join(at_looks)}; {self._noise}"
            return f"With {rows}, found with {POWER:.0%} probability: {known}."
        others = []
        for number in OTHER_SEEDS:
            if number != self.seeds or self.further:
                smallest = self._number(self.detectable(number, further=0))
                others.append(f"{number} seeds {smallest}")
        seeds = plural(self.seeds, "seed")
        if self.further:
            seeds += f", {self.seeds + self.further} of base,"
        elif self.seeds > 1:
            more = self._number(self.detectable(self.seeds, further=self.seeds))
            others.append(f"{self.seeds} seeds and {2 * self.seeds} of base {more}")
        amount = self._amount(self.detectable(self.seeds))
        return (
            f"With {seeds} and {rows} the study finds {amount} with {POWER:.0%} probability "
            f"({', '.join(others)}); {self._noise}."
        )

    def _number(self, difference: float | None) -> str:
        if difference is None:
            return "nothing (one seed shows no spread)"
        return self.metric.size_text(difference)

    def _stated(self, difference: float) -> str:
        return self.metric.size_text(difference) if self.metric.is_log else f"{difference:g}"

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
        if not self.published:
            origins = {"stated": "stated", "runs": "in the runs that exist"}
            return f"{noise}, {origins[self.source]}"
        names = ", ".join(spread.study for spread in self.published)
        sds = [spread.sd for spread in self.published]
        low, high = min(sds), max(sds)
        noun = "study" if len(sds) == 1 else "studies"
        noise += f", typical of the published {noun} {names}"
        if low < high:
            noise += f" ({self._number(low)} to {self._number(high)})"
        return noise

    def seeds_text(self, difference: float) -> str:
        """Number of seeds needed to find a difference."""
        what = f"A difference of {self._stated(difference)} {self.metric.title}"
        needed = self.seeds_to_see(difference)
        if self.looks and needed is None:
            return f"{what}: no look finds it with {POWER:.0%} probability."
        if self.looks:
            seen = f"found at the look with {needed} seeds"
            return f"{what}: {seen} with {POWER:.0%} probability."
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
    judged = [study.task.metrics[name] for name in study.judged]
    if not study.family(study.base):
        return []
    if spread is not None:
        return [_power(study, judged[0], spread, 0.0, "stated")]
    of_runs = power_of_runs(study, read_runs(study, results))
    return of_runs or [_typical_power(study, metric) for metric in judged]


def power_of_runs(study: Study, runs: Sequence[RunResult]) -> list[Power]:
    """Power with the spread of the study's runs, as `power_of`; none if no row has two seeds."""
    judged = [study.task.metrics[name] for name in study.judged]
    powers = []
    is_known = False
    for metric in dict.fromkeys((*judged, *study.task.model_metrics[:1])):
        sd = _sd_over_seeds(study, runs, metric)
        is_known |= sd is not None
        if sd or metric in judged:
            sentences = _sd_over_sentences(study, runs, metric)
            powers.append(_power(study, metric, sd or 0.0, sentences, "runs"))
    return powers if is_known else []


def _power(
    study: Study,
    metric: Metric,
    sd: float,
    sentences: float,
    source: Source,
    published: tuple[PublishedSpread, ...] = (),
) -> Power:
    """Power with this spread, and the seeds, rows and looks of the study."""
    looks: tuple[Look, ...] = ()
    if study.looks:
        looks = looks_of(study.looks.plan)
    return Power(
        metric,
        sd,
        sentences,
        source,
        seeds=len(study.seeds),
        rows=study.family(study.base),
        looks=looks,
        published=published,
        further=len(study.further_seeds),
        share=study.share_of_level(metric.name),
    )


def _typical_power(study: Study, metric: Metric) -> Power:
    """Power with the median spread of the published studies, or in standard deviations."""
    published = tuple(typical_spreads(study.task_name, metric.name, study.data.corpus))
    if published:
        sd = statistics.median(spread.sd for spread in published)
        sentences = statistics.median(spread.sentences for spread in published)
        return _power(study, metric, sd, sentences, "typical", published)
    power = _power(study, metric, 1.0, 0.0, "unknown")
    title = "standard deviations over seeds"
    if len(study.judged) > 1:
        title = f"standard deviations of {metric.title} over seeds"
    in_sds = replace(metric, title=title, digits=1, of_100=False, scale="linear")
    return replace(power, metric=in_sds)


def _sd_over_seeds(study: Study, runs: Sequence[RunResult], metric: Metric) -> float | None:
    """Standard deviation that rows share over seeds: around the layout row x seed, or of base
    alone.
    """
    scores = _scores(study, runs, metric)
    base = scores[study.base.label]
    several = []
    for row in _compared(study):
        differences = {}
        for seed, score in scores[row.label].items():
            if seed in base:
                differences[seed] = score - base[seed]
        if len(differences) > 1 and any(differences.values()):
            several.append(differences)
    if several:
        return math.sqrt(seed_noise(several).pooled.value)
    return statistics.stdev(base.values()) if len(base) > 1 else None


def _sd_over_sentences(study: Study, runs: Sequence[RunResult], metric: Metric) -> float:
    """Standard deviation of a difference from base over test sentences: the median over rows; 0 if
    unknown.

    Until a row has scores, it is that of a row without an effect, which differs from base as base's
    seeds from each other: the root mean square over pairs of seeds, divided by the root of the
    number of seeds.
    """
    resamples: dict[str, dict[int, list[float]]] = defaultdict(dict)  # by row and seed
    for run in runs:
        if run.resamples.get(metric.name):
            scores = list(map(metric.on_scale, run.resamples[metric.name]))
            resamples[run.row.label][run.run.seed] = scores
    of_base = resamples[study.base.label]
    of_rows = []
    for row in _compared(study):
        of_row = resamples[row.label]
        pairs = [(of_row[seed], of_base[seed]) for seed in of_base if seed in of_row]
        if pairs:
            of_rows.append(paired_bootstrap(0.0, pairs).std)
    if of_rows:
        return statistics.median(of_rows)
    variances = []
    for pair in itertools.combinations(of_base.values(), 2):
        variances.append(paired_bootstrap(0.0, [pair]).std ** 2)
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
