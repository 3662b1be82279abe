"""Definitions of metrics: name, direction, decimals. The `metrics` package computes the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ablate.formatting import interval_text, number, ratio, signed

Interval = tuple[float, float]  # of a difference: (low, high)
LARGEST_SCORE = 1e100  # the square of a larger score could overflow
# A model with a perplexity within 20 % of chance has learned little more than token frequencies.
MIN_GAIN = 0.2


class CannotJudge(str):
    """A note on references that a metric cannot judge, so that more training changes no score."""

    __slots__ = ()


@dataclass(frozen=True)
class ScorePart:
    """A number that is stored beside a score and explains it, such as BLEU's brevity penalty.

    meaning: explanation for the legend of a table.
    least: smallest mean over seeds for which `remark` is not printed.
    remark: sentence below a table, for rows with a smaller mean.
    is_in_legend: whether the legend of a table shows the range over the rows.
    """

    name: str
    meaning: str
    least: float = -math.inf
    remark: str = ""
    is_in_legend: bool = False


@dataclass(frozen=True)
class Metric:
    """A metric of a model's likelihood or of its predictions.

    name: name in studies, JSON and CSV.
    title: head of the column in a table.
    more_is_better: whether a higher value is better.
    digits: number of decimals in tables.
    side: split on which the metric is measured, `dev` or `test`; empty if unknown.
    is_percentage: whether scores range from 0 to about 100, so that no difference exceeds 100.
    scorer: library that computes the scores and signs them; empty for metrics of ablate.
    item: unit of the test split that the bootstrap draws, such as `sentence`.
    chance: for a percentage: highest score of a model that has learned nothing, such as the share
        of the most frequent label. If no score is higher, the conclusion says so.
    parts: numbers that are stored and shown with each score.
    scale: `log` for a metric that changes by factors, such as perplexity. Its logarithm is
        averaged, compared and judged: means are geometric, and differences are logarithms of
        ratios, which are printed as ratios.
    is_probe: whether the metric needs the model, and not only the predictions for the test split.
        A study that names such a metric sets `probes`.
    is_not_negative: whether scores, on the scale, are bounded by 0 from below and unbounded from
        above, as losses and logarithms of perplexities are.
    is_per_token: whether a score is a mean over tokens, so that it cannot compare models with
        different vocabularies.
    """

    name: str
    title: str
    more_is_better: bool = True
    digits: int = 1
    side: str = "test"
    is_percentage: bool = True
    scorer: str = ""
    item: str = "sentence"
    chance: float = 0.0
    parts: tuple[ScorePart, ...] = ()
    scale: Literal["linear", "log"] = "linear"
    is_probe: bool = False
    is_not_negative: bool = False
    is_per_token: bool = False

    @property
    def full_title(self) -> str:
        """The title with the split, if the split is known: `BLEU (test)`."""
        return f"{self.title} ({self.side})" if self.side else self.title

    def is_better(self, difference: float) -> bool:
        """Whether a difference from base is an improvement."""
        return (difference > 0) == self.more_is_better

    @property
    def is_log(self) -> bool:
        """Whether logarithms of scores are averaged and compared."""
        return self.scale == "log"

    @property
    def has_known_chance(self) -> bool:
        """Whether `chance` is the level of chance of this metric. The level of other metrics may be
        among the parts of their scores (CHANCE_SCORE), or unknown.
        """
        return self.is_percentage and self.more_is_better

    @property
    def largest_difference(self) -> float:
        """The largest possible difference of two scores; log(1e6) for logarithms of ratios."""
        if self.is_log:
            return math.log(1e6)
        return 100.0 if self.is_percentage else math.inf

    def possible_differences(self, mean: float) -> Interval:
        """The smallest and the largest possible difference of a score from this mean, both on the
        scale.
        """
        limit = self.largest_difference
        if self.is_not_negative:
            return max(-mean, -limit), limit
        if self.is_percentage and self.more_is_better:  # an error rate may exceed 100 %
            return 0.0 - mean, 100.0 - mean
        return -limit, limit

    def without_excess(self, score: float) -> float:
        """A score without a rounding error above 100: sacreBLEU gives 100.00000000000004 for a
        perfect text. Larger excesses of other code stay.
        """
        if self.is_percentage and self.more_is_better and 100.0 < score < 100.0 + 1e-9:
            return 100.0
        return score

    def clipped(self, low: float, high: float, possible: Interval, mean: float) -> Interval:
        """Clip an interval of a difference to the possible differences, but not beyond its mean:
        scores of other code may be outside of the range of their metric.
        """
        return max(low, min(possible[0], mean)), min(high, max(possible[1], mean))

    def beats(self, score: float, chance: float) -> bool:
        """Whether a score is better than chance: by a printed decimal, or a perplexity by 20 %."""
        if self.is_log:
            return score < chance * (1 - MIN_GAIN)
        gain = round(score, self.digits) - round(chance, self.digits)
        return gain != 0 and self.is_better(gain)

    def transform(self, score: float) -> float:
        """A score on the scale of the metric: its logarithm if the scale is `log`."""
        return math.log(score) if self.is_log else score

    def transform_all(self, scores: Sequence[float]) -> Sequence[float]:
        """Scores on the scale of the metric: their logarithms if the scale is `log`."""
        return list(map(math.log, scores)) if self.is_log else scores

    def difference_text(
        self, value: float | None, interval: Interval | None = None, extra_digits: int = 0
    ) -> str:
        """A difference on the scale: `-1.2 [-2.3, -0.1]`, or `×0.950` for a ratio without an
        interval; empty for None.
        """
        if value is None:
            return ""
        text = f"×{ratio(value)}" if self.is_log else signed(value, self.digits + extra_digits)
        return f"{text} {self.interval_text(*interval, extra_digits)}" if interval else text

    def interval_text(self, low: float, high: float, extra_digits: int = 0) -> str:
        """An interval of a difference: `[-9.1, +0.1]`, or `[0.910, 1.013]` for a ratio."""
        if self.is_log:
            return f"[{ratio(low)}, {ratio(high)}]"
        return interval_text(low, high, self.digits + extra_digits)

    def size_text(self, size: float) -> str:
        """The size of a difference or a spread: `1.2`, or `×1.050` for a ratio; `>100` for a size
        above the largest possible difference.
        """
        limit = self.largest_difference
        if self.is_log:
            return f">×{ratio(limit)}" if size > limit else f"×{ratio(size)}"
        if size > limit:
            return f">{limit:g}"
        return number(size, self.digits) if round(size, self.digits) else f"{size:.1g}"


# The score of a model that has learned nothing of its task.
CHANCE_SCORE = ScorePart(
    "by_chance",
    "the score without learning: of translations, against references of other sentences; of "
    "perplexity, by the frequencies of the tokens; of accuracy, of the most frequent answer",
)

PPL = Metric(
    "ppl",
    "PPL",
    False,
    digits=2,
    side="dev",
    is_percentage=False,
    parts=(CHANCE_SCORE,),
    scale="log",
    is_not_negative=True,
    is_per_token=True,
)
PPL_CHAR = replace(PPL, name="ppl_char", title="PPL/char", digits=3, parts=(), is_per_token=False)

# Negative log-likelihood per byte of UTF-8, which is comparable between vocabularies and contexts.
BITS_PER_BYTE = Metric(
    "bpb", "bits/byte", False, digits=4, is_percentage=False, item="block", is_not_negative=True
)


def _probe_loss(name: str, title: str, item: str = "block") -> Metric:
    return replace(
        BITS_PER_BYTE, name=name, title=title, item=item, is_probe=True, is_per_token=True
    )


# Mean losses, in nats, over groups of the test tokens: by the number of context tokens, from n to
# 4n - 1; and by whether the pair of the token and the one before it has occurred in the context
# (`repeated_loss`) or not (`new_loss`), as in Arora et al. (2023).
LOSS_AFTER = {f"loss_after_{n}": n for n in (1, 4, 16, 64, 256, 1024, 4096, 16384)}
TEXT_PROBES = (
    *(_probe_loss(name, f"loss after {n}") for name, n in LOSS_AFTER.items()),
    _probe_loss("repeated_loss", "repeated loss"),
    _probe_loss("new_loss", "new loss"),
)
# On the second of two equal random sequences (Olsson et al., 2022).
INDUCTION_LOSS = _probe_loss("induction_loss", "induction loss", "sequence")
# Share of sentence pairs with a higher likelihood of the acceptable sentence (BLiMP; Warstadt et
# al., 2020).
PAIRS_RIGHT = Metric(
    "minimal_pairs", "pairs %", item="pair", chance=50.0, parts=(CHANCE_SCORE,), is_probe=True
)
PROBES = (*TEXT_PROBES, INDUCTION_LOSS, PAIRS_RIGHT)

# Of masked tokens: mean loss in nats, and the share that the model ranks first.
MASKED_LOSS = replace(BITS_PER_BYTE, name="masked_loss", title="loss", is_per_token=True)
MASKED_ACCURACY = Metric(
    "masked_accuracy",
    "accuracy",
    digits=2,
    item="block",
    parts=(CHANCE_SCORE,),
    is_per_token=True,
)

# Of the answer tokens of generated items: the share that the model ranks first, the share of items
# with every answer right, and the mean negative log-likelihood in nats.
ACCURACY = Metric("accuracy", "accuracy", item="item", parts=(CHANCE_SCORE,))
ITEMS_RIGHT = Metric("items_right", "items right", item="item", parts=(CHANCE_SCORE,))
ANSWER_METRICS = (
    ACCURACY,
    ITEMS_RIGHT,
    replace(BITS_PER_BYTE, name="answer_loss", title="loss", item="item"),
)

# exp(1 - reference length / length) if translations are too short (Papineni et al., 2002).
BREVITY_PENALTY = ScorePart(
    "brevity_penalty",
    "a factor of BLEU, below 1 if translations are shorter than their references",
    least=0.98,
    remark="Short translations lower BLEU",
    is_in_legend=True,
)
EXACT = ScorePart("exact", "the share of translations that equal their references")
TRANSLATION_PARTS = (EXACT, CHANCE_SCORE)
# sacreBLEU's metrics with its own defaults, and chrF++ with word bigrams.
TRANSLATION_METRICS = (
    Metric("bleu", "BLEU", scorer="sacreBLEU", parts=(BREVITY_PENALTY, *TRANSLATION_PARTS)),
    Metric("chrf", "chrF", scorer="sacreBLEU", parts=TRANSLATION_PARTS),
    Metric("chrf++", "chrF++", scorer="sacreBLEU", parts=TRANSLATION_PARTS),
    Metric("ter", "TER", more_is_better=False, scorer="sacreBLEU", parts=TRANSLATION_PARTS),
)

# EVALB's labeled bracket F1 and complete matches; the share of predictions that are trees.
TREE_METRICS = (
    Metric("f1", "F1"),
    Metric("exact_match", "exact %"),
    Metric("well_formed", "well-formed %"),
)

# Every metric of the built-in tasks.
METRICS = {
    metric.name: metric
    for metric in (
        PPL,
        PPL_CHAR,
        *TRANSLATION_METRICS,
        *TREE_METRICS,
        BITS_PER_BYTE,
        *PROBES,
        MASKED_LOSS,
        MASKED_ACCURACY,
        *ANSWER_METRICS,
    )
}
