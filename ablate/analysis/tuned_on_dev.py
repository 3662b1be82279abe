"""Remark on rows that are tuned and judged on the same split."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.formatting import enumeration, first_few
from ablate.study import Runs


def tuned_on_dev_remarks(planned: Runs) -> Iterator[str]:
    """Yield a line if settings of some rows were tuned by dev loss, and rows are judged by a metric
    of dev: a tuned row then has an advantage over rows without tuning of their own.
    """
    study = planned.study
    titles = []
    for metric in study.task.metrics.values():
        if metric.side == "dev" and metric.name in study.metrics.judged:
            titles.append(metric.title)
    if not titles or not any(row.own_choice for row in planned.rows):
        return
    names = enumeration(titles)
    verb, pronoun = ("is", "it is") if len(titles) == 1 else ("are", "they are")
    line = (
        f"{names} {verb} measured on dev, by whose loss the settings of tuned rows were chosen, so "
        f"{pronoun} better than on new text."
    )
    untuned = [row.label for row in planned.rows if row.own_choice is None]
    if untuned:
        line += f" Tuned rows have an advantage in {names} over {first_few(untuned)}."
    yield line
