"""Find the cause of predictions that are shorter than their references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ablate.analysis.results import RunResult
from ablate.study import Row


class Cause(NamedTuple):
    """A probable cause.

    order: rank of the cause; 0 for the surest.
    remedy: a sentence that says what to change.
    evidence: what shows the cause in a row, as a text after the row's value; may be empty.
    """

    order: int
    remedy: str
    evidence: str = ""


def cause_of(runs: Sequence[RunResult], row: Row, share: float) -> Cause:
    """The surest cause of translations of a row that are too short. A length limit is the cause if
    it has ended more than `share` of the translations.
    """
    config = row.config
    cut = Counter[str]()  # setting that limits the length -> number of translations
    total = 0
    for run in runs:
        if run.decoding is not None and run.decoding.cut is not None:
            cut.update(run.decoding.cut)
            total += run.decoding.n_predictions or 0
    if cut.total() > share * total:
        ((setting, _),) = cut.most_common(1)
        limit = f"{setting}={getattr(config, setting)}"
        evidence = f", {cut.total():,} of {total:,} translations cut"
        # Translations of a model that has learned little are often cut in a loop, which a higher
        # limit makes longer and no better.
        remedy = f"{limit} has cut translations: raise it, unless they repeat the same words."
        return Cause(0, remedy, evidence)
    if config.early_stopping and config.beam > 1:
        return Cause(1, "Set early_stopping to false, so that longer translations can be finished.")
    if row.decoding_choice is not None and "alpha" in row.decoding_choice.fields:
        return Cause(2, f"alpha={config.alpha:g} is the best value of the grid on dev.")
    remedy = "A larger alpha makes translations longer; `tune: {decoding: {alpha: [...]}}` chooses"
    return Cause(2, f"{remedy} alpha on dev.")
