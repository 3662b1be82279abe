"""Why predictions are shorter than their references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ablate.analysis.results import RunResult
from ablate.config import RowConfig


class Cause(NamedTuple):
    """A cause and its remedy, of which the surest has order 0, and what shows it in a row."""

    order: int
    text: str
    evidence: str


def cause_of(runs: Sequence[RunResult], config: RowConfig, share: float) -> Cause:
    """The surest cause for which translations are too short.

    Args:
        runs: of a row.
        config: of the row.
        share: of translations; if a limit of length ended more of them, it is the cause.
    """
    cut, total = Counter[str](), 0
    for run in runs:
        if run.decoding is not None and run.decoding.cut is not None:
            cut.update(run.decoding.cut)
            total += run.decoding.n_predictions or 0
    count = ""
    if cut.total():
        count = f", {cut.total():,} of {total:,} translations at a limit of length"
    if cut.total() > share * total:
        setting, _ = cut.most_common(1)[0]
        limit = f"{setting}={getattr(config, setting)}"
        return Cause(0, f"{limit} ends translations; raise it", count)
    if config.early_stopping and config.beam > 1:
        ends = "early_stopping ends a search before longer translations are finished"
        return Cause(1, f"{ends}; set it to false", count)
    remedy = "`tune: {decoding: {alpha: [...]}}` chooses one on dev"
    return Cause(2, f"A larger alpha makes them longer; {remedy}", count)
