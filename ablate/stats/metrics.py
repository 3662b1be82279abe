"""Definitions of metrics: name, direction and digits. The `metrics` package measures them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ablate.formatting import interval_text, number, ratio, signed

LARGEST = 1e100  # a score: squares must not overflow


@dataclass(frozen=True)
class ScorePart:
    """A number that a metric's score is made with, shown beside it with its `meaning`.

    least: a row with a smaller mean gets the remark.
    is_in_legend: whether the legend of the table has its range over the rows.
    """

    name: str
    meaning: str
    least: float = -math.inf
    remark: str = ""
    is_in_legend: bool = False


@dataclass(frozen=True)
class Metric:
    """A metric of a model's likelihood or of its predictions.

    name: as written in studies, JSON and CSV.
    title: as shown in the head of a table.
    more_is_better: whether a higher value is better.
    digits: number of decimals in tables.
    side: the split that it is measured on, `dev` or `test`; empty if unknown.
    of_100: whether scores range from 0 to about 100, so that larger differences are impossible.
    scorer: the library that computes it and signs its scores; empty for metrics of ablate.
    item: what the test split is a sequence of, and resampled in, for legends.
    chance: of a metric up to 100, the highest score without learning, such as the share of the most
        frequent label. If no score is above it, the conclusion says that nothing is learned.
    parts: stored and shown with each score.
    scale: `log` for a metric such as perplexity, of which a change is a factor. Its logarithm is
        averaged, compared and judged: means are geometric, and differences are logarithms of
        ratios, which texts print as ratios.
    is_probe: whether it needs more of a model than the predictions for the test split: a study that
        names it evaluates with `probes`.
    is_not_negative: whether no score is below 0 on the scale, and none is too large, as of a loss,
        or of a perplexity, whose logarithm is one.
    """

    name: str
    title: str
    more_is_better: bool = True
    digits: int = 1
    side: str = "test"
    of_100: bool = True
    scorer: str = ""
    item: str = "sentence"
    chance: float = 0.0
    parts: tuple[ScorePart, ...] = ()
    scale: Literal["linear", "log"] = "linear"
    is_probe: bool = False
    is_not_negative: bool = False

    @property
    def full_title(self) -> str:
        """The title with the split, where it is known: `BLEU (test)`."""
        return f"{self.title} ({self.side})" if self.side else self.title

    def is_better(self, difference: float) -> bool:
        """Whether a difference from base is an improvement."""
        return (difference > 0) == self.more_is_better

    @property
    def is_log(self) -> bool:
        """Whether it is averaged and compared by its logarithm."""
        return self.scale == "log"

    @property
    def reach(self) -> float:
        """The largest difference that scores can have; for a ratio, a factor of a million."""
        if self.is_log:
            return math.log(1e6)
        return 100.0 if self.of_100 else math.inf

    def least_from(self, mean: float) -> float:
        """The smallest difference that scores can have from a mean on the scale."""
        return -mean if self.is_not_negative else -math.inf

    def bounded(self, low: float, high: float, least: float) -> tuple[float, float]:
        """An interval of a difference as far as scores can differ. `least`: of `least_from`."""
        return max(low, -self.reach, least), min(high, self.reach)

    def telling(
        self, low: float, high: float, least: float, mean: float
    ) -> tuple[float, float] | None:
        """The interval of a difference, bounded; None if it holds every difference, so that it
        tells nothing.

        Of losses, which have a least one and no largest, it then reaches below 0 and to twice the
        larger mean; of ratios, over a factor of a million to each side. `mean`: the difference.
        """
        room = self.reach
        if math.isfinite(least) and not self.is_log:
            room = max(-least, mean - least)
        return None if high - low >= 2 * room else self.bounded(low, high, least)

    def on_scale(self, score: float) -> float:
        """A score as it is averaged and compared."""
        return math.log(score) if self.is_log else score

    def all_on_scale(self, scores: Sequence[float]) -> Sequence[float]:
        """Scores as they are averaged and compared."""
        return list(map(math.log, scores)) if self.is_log else scores

    def difference_text(self, value: float | None, more: int = 0) -> str:
        """A difference on the scale: `-1.2`, or `×0.950` for a ratio; empty where there is none."""
        if value is None:
            return ""
        return f"×{ratio(value)}" if self.is_log else signed(value, self.digits + more)

    def interval_text(self, low: float, high: float, more: int = 0) -> str:
        """An interval of a difference: `[-9.1, +0.1]`, or `[0.910, 1.013]` for a ratio."""
        if self.is_log:
            return f"[{ratio(low)}, {ratio(high)}]"
        return interval_text(low, high, self.digits + more)

    def size_text(self, size: float) -> str:
        """A size on the scale, of a difference or a spread: `1.2`, or `×1.050` for a ratio."""
        if self.is_log:
            return f"×{ratio(size)}"
        if self.of_100 and size > 100:
            return ">100"
        text = number(size, self.digits)
        return text if float(text) else f"{size:.1g}"


PPL = Metric(
    "ppl", "PPL", False, digits=2, side="dev", of_100=False, scale="log", is_not_negative=True
)
# Perplexities per token cannot be compared between vocabularies; perplexities per character can.
PPL_CHAR = replace(PPL, name="ppl_char", title="PPL/char", digits=3)

# The likelihood of a text per byte of UTF-8, which vocabularies and contexts leave comparable.
BITS_PER_BYTE = Metric(
    "bpb", "bits/byte", False, digits=4, of_100=False, item="block", is_not_negative=True
)


def _probe_loss(name: str, title: str, item: str = "block") -> Metric:
    return replace(BITS_PER_BYTE, name=name, title=title, item=item, is_probe=True)


# Mean losses in nats of some tokens of the test text: of those predicted from n to 4n - 1 tokens;
# of those that end a pair of tokens which their context had before, and of all others (Arora et
# al., 2023, split tokens so).
LOSS_AFTER = {f"loss_after_{n}": n for n in (1, 4, 16, 64, 256, 1024, 4096, 16384)}
TEXT_PROBES = (
    *(_probe_loss(name, f"loss after {n}") for name, n in LOSS_AFTER.items()),
    _probe_loss("repeated_loss", "repeated loss"),
    _probe_loss("new_loss", "new loss"),
)
# On the second of two equal random sequences (Olsson et al., 2022).
INDUCTION_LOSS = _probe_loss("induction_loss", "induction loss", "sequence")
# The share of pairs of sentences whose good one is more likely (BLiMP; Warstadt et al., 2020).
PAIRS_RIGHT = Metric("minimal_pairs", "pairs %", item="pair", chance=50.0, is_probe=True)
PROBES = (*TEXT_PROBES, INDUCTION_LOSS, PAIRS_RIGHT)

# Of tokens that a model cannot read: mean loss in nats, and the share that it ranks first.
MASKED_LOSS = replace(BITS_PER_BYTE, name="masked_loss", title="loss")
MASKED_ACCURACY = Metric("masked_accuracy", "accuracy", digits=2, item="block")

# Of the tokens that a generator asks for, the answers: the share that a model ranks first, the
# share of items with every answer right, and the mean negative log-likelihood in nats.
ANSWER_METRICS = (
    Metric("accuracy", "accuracy", item="item"),
    Metric("items_right", "items right", item="item"),
    replace(BITS_PER_BYTE, name="answer_loss", title="loss", item="item"),
)

# exp(1 - reference length / length) of too short translations (Papineni et al., 2002).
BREVITY_PENALTY = ScorePart(
    "brevity_penalty",
    "a factor of BLEU; 1: the translations are not shorter than the references",
    least=0.98,
    remark="translations are shorter than the references, which lowers BLEU",
    is_in_legend=True,
)
EXACT = ScorePart("exact", "the share of translations that equal their references")
# A model that ignores its sources scores no better against their references.
BY_CHANCE = ScorePart(
    "by_chance", "the score of the translations against references of other sentences"
)
OF_TRANSLATIONS = (EXACT, BY_CHANCE)
# sacreBLEU's metrics with its own defaults, and chrF++ with word bigrams.
TRANSLATION_METRICS = (
    Metric("bleu", "BLEU", scorer="sacreBLEU", parts=(BREVITY_PENALTY, *OF_TRANSLATIONS)),
    Metric("chrf", "chrF", scorer="sacreBLEU", parts=OF_TRANSLATIONS),
    Metric("chrf++", "chrF++", scorer="sacreBLEU", parts=OF_TRANSLATIONS),
    Metric("ter", "TER", more_is_better=False, scorer="sacreBLEU", parts=OF_TRANSLATIONS),
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
