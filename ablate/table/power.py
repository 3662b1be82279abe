"""Power of an experiment in words: its detectable differences, given the spread of its scores."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ablate.formatting import number, percent, plural
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.comparison import PairedScores
from ablate.stats.looks import Look
from ablate.stats.metrics import Metric
from ablate.stats.noise import seed_noise
from ablate.stats.power import detectable_difference, fewest_seeds
from ablate.stats.significance import LEVEL, POWER
from ablate.stats.verdict import Verdict
from ablate.table.chance import unlearned_text
from ablate.table.experiment import Experiment
from ablate.table.table import TableRow
from ablate.table.verdicts import (
    duplicates,
    paired_scores,
    resamples_of,
    scores_of,
    verdicts_on,
)

SIMILAR = 1.5  # a study with at most this factor less text or training has a similar noise

Source = Literal["stated", "runs", "typical", "unknown"]


@dataclass(frozen=True)
class Power:
    """Power of a study in one metric.

    sd: standard deviation of a score over seeds; 0 if the runs show no spread. If it is unknown, it
        is 1, and the unit of `metric` is a standard deviation.
    sentences: standard deviation of a difference over test sentences; 0 if unknown.
    source: source of `sd`: stated by the user, estimated from the runs of the study, typical of
        published studies, or unknown.
    published: standard deviations of published studies, by name of the study, if `source` is
        `typical`.
    excess: the factor by which the published studies have more text or more training than this
        study. Above SIMILAR, this study has more noise than `sd`.
    rows_open: number of rows with fewer than two scores, which may still show a spread.
    verdicts: the verdicts on the rows, if every row has one. Detectable differences are then the
        median over the rows, by the noise of each row, as in the table; otherwise, they are
        expected of a row whose noise is `sd` and `sentences`.
    unlearned: why the runs do not show the noise of trained models: base has learned nothing;
        empty if it has learned. Then there is no detectable difference.
    """

    experiment: Experiment
    metric: Metric
    sd: float
    sentences: float
    source: Source
    published: Mapping[str, float] = field(default_factory=dict)
    excess: float = 1.0
    rows_open: int = 0
    verdicts: Sequence[Verdict] = ()
    unlearned: str = ""

    @property
    def rows(self) -> int:
        """Number of rows that are compared with the first base."""
        return self.experiment.totals[self.experiment.rows[0].label]

    @property
    def looks(self) -> tuple[Look, ...]:
        """The looks of the experiment; empty if it has a single look."""
        looks = self.experiment.looks
        return looks.planned if looks.has_several else ()

    def detectable_difference(
        self, seeds: int, level: float = LEVEL, *, further: int | None = None
    ) -> float | None:
        """The detectable difference at a power of 80 %; None with a single seed, without a spread,
        and while base has learned nothing.

        Args:
            seeds: number of seeds of every row.
            level: level of the verdicts, for all metrics together.
            further: number of seeds that only base has. None means the study's number if `seeds`
                is the study's number, else 0.
        """
        if seeds < 2 or not self.sd or self.unlearned:
            return None
        if further is None:
            further = 0
            if seeds == len(self.experiment.seeds):
                further = len(self.experiment.further_seeds)
        if self.verdicts:
            sizes = []
            for verdict in self.verdicts:
                assert verdict.comparison is not None
                assert verdict.seed_test is not None
                row_level = verdict.seed_test.level * level / self.experiment.level
                sizes.append(verdict.comparison.detectable_difference(row_level, seeds))
            return statistics.median(sizes)
        level *= self.experiment.share_of_level(self.metric.name)
        return detectable_difference(
            seeds,
            self.rows,
            self.sd,
            self.sentences,
            level,
            further,
            n_tests=self.experiment.n_tests,
        )

    @property
    def detectable_sds(self) -> float | None:
        """The detectable difference with all seeds, in standard deviations of a score over seeds,
        without the noise of sentences; None with a single seed.
        """
        level = self.experiment.looks.planned[-1].level
        in_sds = replace(self, sd=1.0, sentences=0.0, verdicts=(), unlearned="")
        return in_sds.detectable_difference(len(self.experiment.seeds), level)

    def seeds_needed(self, difference: float) -> int | None:
        """Number of seeds that detect a difference with a power of 80 %; None if 1000 are not
        enough.

        In a study with looks: the seeds of the first look that detects it; None if no look does.
        """
        for look in self.looks:
            smallest = self.detectable_difference(look.seeds, look.level)
            if smallest is not None and smallest <= difference:
                return look.seeds
        if self.looks:
            return None

        def is_enough(seeds: int) -> bool:
            smallest = self.detectable_difference(seeds, further=0)
            return smallest is not None and smallest <= difference

        return fewest_seeds(1, is_enough)

    @property
    def text(self) -> str:
        """Sentences: the detectable difference of a row with the study's seeds and with twice as
        many, and the noise that it follows from.
        """
        title = self.metric.title
        if self.unlearned:
            return (
                f"The detectable difference in {title} is unknown: {self.unlearned}. The noise of "
                f"trained models is another one; state it by --spread SD."
            )
        if not self.sd:
            return (
                f"The seeds of the finished runs have equal {title}, so the detectable difference "
                f"is unknown; state the standard deviation over seeds by --spread SD."
            )
        subject = "Expected detectable difference of a row with typical noise"
        if self.verdicts:
            row = "the row" if len(self.verdicts) == 1 else "the median row"
            subject = f"Detectable difference of {row}"
        conditions = f"{plural(self.experiment.n_tests, 'row')} and {percent(POWER)} power"
        if self.looks:
            sizes = "; ".join(map(self._look_text, self.looks))
            return f"{subject}, with {conditions}: {sizes}. {self._noise}."
        n_seeds = len(self.experiment.seeds)
        has_one_seed = n_seeds == 1
        if has_one_seed:
            n_seeds = 3  # with 2 seeds, hardly anything is detected
        further = len(self.experiment.further_seeds)
        seeds = plural(n_seeds, "seed")
        more = self.detectable_difference(2 * n_seeds, further=0)
        alternatives = f"{self._size(more)} with {2 * n_seeds} seeds"
        if further:
            seeds += f" ({n_seeds + further} of base)"
        elif not self.verdicts:
            more_of_base = self.detectable_difference(n_seeds, further=n_seeds)
            alternatives += f", {self._size(more_of_base)} if only base has {2 * n_seeds} seeds"
        size = self.amount(self.detectable_difference(n_seeds))
        if has_one_seed:
            return (
                f"One seed detects no difference. If the study had {seeds}, the "
                f"{subject[:1].lower()}{subject[1:]}, with {conditions}, would be {size} "
                f"({alternatives}). {self._noise}."
            )
        return f"{subject}, with {seeds}, {conditions}: {size} ({alternatives}). {self._noise}."

    def _look_text(self, look: Look) -> str:
        """`look 1 (3 seeds, level 0.0187) 2.1 BLEU`."""
        size = self.amount(self.detectable_difference(look.seeds, look.level))
        return f"look {look.number} ({look.seeds} seeds, level {look.level:.3g}) {size}"

    @property
    def is_lower_bound(self) -> bool:
        """Whether detectable differences are lower bounds, because published studies are larger."""
        return self.excess > SIMILAR

    def _size(self, difference: float | None) -> str:
        if difference is None:
            return "none (one seed shows no spread)"
        return self.metric.size_text(difference)

    def amount(self, difference: float | None) -> str:
        """A difference with the title of the metric."""
        if difference is None:
            return self._size(difference)
        bound = "at least " if self.is_lower_bound else ""
        return f"{bound}{self._size(difference)} {self.metric.title}"

    @property
    def _noise(self) -> str:
        """The standard deviations with their source, as text."""
        if self.source == "unknown":
            return (
                "The standard deviation of the main metric over seeds is unknown; state it by "
                "--spread SD"
            )
        noise = f"Standard deviation: {self._size(self.sd)} over seeds"
        if self.sentences:
            noise += f", {self._size(self.sentences)} over test {self.metric.item}s"
        if self.source == "stated":
            return f"{noise}, as stated"
        if self.source == "runs":
            if self.rows == self.rows_open:
                return f"{noise}, estimated from the runs of base"
            noise += ", estimated from the "
            noise += "differences between rows and base" if self.experiment.is_paired else "scores"
            if self.rows_open:  # the other rows may have less noise
                noise += f", without {self.rows_open} of {plural(self.rows, 'row')}"
            return noise
        low = min(self.published.values())
        high = max(self.published.values())
        noun = "study" if len(self.published) == 1 else "studies"
        noise += f", typical of the published {noun} {', '.join(self.published)}"
        if low < high:
            noise += f" ({self._size(low)} to {self._size(high)})"
        if self.is_lower_bound:
            times = number(self.excess, 0 if self.excess >= 10 else 1)
            noise += f"; with {times} times less text or training, this study has more noise"
        return noise

    def seeds_text(self, difference: float) -> str:
        """A sentence: the number of seeds that detects a difference."""
        size = f"{difference:g}"
        if self.metric.is_log:
            size = self.metric.size_text(difference)
        subject = f"A difference of {size} {self.metric.title}"
        needed = self.seeds_needed(difference)
        if self.looks and needed is None:
            return f"{subject} is detected by no look."
        if self.looks:
            return f"{subject} is detected by the look with {needed} seeds."
        if needed is None and self.sentences:
            return f"{subject}: 1000 seeds are not enough; it takes more test {self.metric.item}s."
        if needed is None:
            return f"{subject}: 1000 seeds are not enough."
        bound = "at least " if self.is_lower_bound else ""
        return f"{subject} takes {bound}{plural(needed, 'seed')}."


def power_of_scores(experiment: Experiment, metrics: Iterable[Metric]) -> list[Power]:
    """The power of an experiment in each metric, with the spread of its scores; empty if no row has
    two seeds.

    Args:
        experiment: the experiment, which may be unfinished.
        metrics: the metrics. Without a spread, a metric is left out unless it is judged.
    """
    base = experiment.rows[0]
    trained_base = TableRow.of(base, experiment.measured)
    powers = []
    is_known = False
    rows = [row for row in experiment.rows if row.base == base.label and not row.is_base]
    duplicate_labels = duplicates(rows)
    is_paired = experiment.is_paired
    further = () if is_paired else experiment.further_seeds
    for metric in dict.fromkeys(metrics):
        pairs = []
        for row in rows:
            pair = paired_scores(metric, row, base, experiment.seeds, further, is_paired)
            # A row of base's trainings has almost no noise against base, unlike other rows.
            if row.label not in duplicate_labels and not pair.same_training:
                pairs.append(pair)
        sd = scores_of(base.runs, metric).std
        # The pooled estimate is better than the standard deviation of base's scores.
        if noisy := [pair for pair in pairs if pair.shows_noise]:
            differences = [pair.differences for pair in noisy]
            sd = math.sqrt(seed_noise(differences, noisy[0].base_scores).pooled.value)
        is_known |= sd is not None
        if sd or metric in experiment.judged:
            sentences = _sd_over_sentences(pairs, resamples_of(base.runs, metric))
            rows_open = sum(len(pair.differences) < 2 for pair in pairs)
            power = Power(experiment, metric, sd or 0.0, sentences, "runs", rows_open=rows_open)
            power = replace(power, unlearned=unlearned_text(trained_base, metric))
            tested = [(base, row) for row in rows if row.label not in duplicate_labels]
            verdicts = verdicts_on(experiment, metric, tested, experiment.n_tests)
            if all(verdict.seed_test for verdict in verdicts):
                power = replace(power, verdicts=verdicts)
            powers.append(power)
    return powers if is_known else []


def _sd_over_sentences(
    pairs: Sequence[PairedScores], base_resamples: Mapping[int, Sequence[float]]
) -> float:
    """Standard deviation of a difference from base over test sentences: the median over rows; 0 if
    unknown.

    Until a row has scores, two seeds of base take the place of a row and base. The result is then
    the root mean square over pairs of seeds, divided by the square root of the number of seeds.
    """
    sds = []
    for pair in pairs:
        if pair.resamples:
            sds.append(paired_bootstrap(0.0, list(pair.resamples.values())).std)
    if sds:
        return statistics.median(sds)
    variances = []
    for seed_pair in itertools.combinations(base_resamples.values(), 2):
        variances.append(paired_bootstrap(0.0, [seed_pair]).std ** 2)
    if not variances:
        return 0.0
    return math.sqrt(statistics.fmean(variances) / len(base_resamples))
