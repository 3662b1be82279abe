"""The metrics of a study: what each is called, and which way is better. Data, no code that measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric of translations or of the model.

    name: as a study writes it, and as JSON and CSV have it.
    title: as a table's head has it.
    more_is_better: whether a higher value is the better one.
    digits: after the point, in a table.
    side: of the corpus that it is measured on.
    of_100: whether no difference between two scores is more than 100, or hardly any.
    """

    name: str
    title: str
    more_is_better: bool
    digits: int
    side: str
    of_100: bool = True

    def is_better(self, difference: float) -> bool:
        """Whether a difference from base is in the direction of better."""
        return (difference > 0) == self.more_is_better


PPL = Metric("ppl", "PPL", more_is_better=False, digits=2, side="dev", of_100=False)

# What sacreBLEU measures on translations, and a study chooses from; its own defaults, and chrF++ with word bigrams.
ON_TRANSLATIONS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", more_is_better=True, digits=1, side="test"),
        Metric("chrf", "chrF", more_is_better=True, digits=1, side="test"),
        Metric("chrf++", "chrF++", more_is_better=True, digits=1, side="test"),
        Metric("ter", "TER", more_is_better=False, digits=1, side="test"),
    )
}
# In the place of PPL where rows have different vocabularies.
PPL_CHAR = Metric("ppl_char", "PPL/char", more_is_better=False, digits=3, side="dev", of_100=False)
METRICS = {PPL.name: PPL, PPL_CHAR.name: PPL_CHAR, **ON_TRANSLATIONS}
DEFAULT_METRICS = ("bleu",)
