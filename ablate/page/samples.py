"""Samples: some items of the test set with what each row predicts for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.report.table import Table
from ablate.store import Results
from ablate.store.score_cache import read_predictions

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


@dataclass(frozen=True)
class Sample:
    """One item of the test set.

    number: of the item, from 1.
    given: (name, text) of what the model reads and of what it should predict.
    predictions: (row label, text) of each row.
    """

    number: int
    given: tuple[tuple[str, str], ...]
    predictions: tuple[tuple[str, str], ...]


def samples(table: Table, results: Results, corpus: Corpus, count: int) -> list[Sample]:
    """Return `count` items of the test split, spread evenly over it, with the predictions of each row's first seed.

    Rows without a prediction for every item are left out.
    """
    task, total = table.study.task, table.study.task.n_predictions(corpus)
    texts = {}
    for row in table.rows:
        run = table.study.runs_of(row.row)[0]
        lines = read_predictions(results.run(run.id), row.row.decoding) if row.states[run.seed] == "done" else []
        if len(lines) == total:
            texts[row.row.label] = lines
    picked = sorted({total * i // count for i in range(count)}) if total and texts else []
    return [
        Sample(item.number, item.texts, tuple((label, lines[i]) for label, lines in texts.items()))
        for i, item in zip(picked, task.samples(corpus, picked), strict=True)
    ]
