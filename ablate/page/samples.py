"""Samples: some items of the test set with what each row predicts for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.report.table import Table
from ablate.store import Results
from ablate.store.score_cache import translations


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


def samples(
    table: Table, results: Results, sources: Sequence[str], references: Sequence[str], count: int
) -> list[Sample]:
    """Return `count` sentences of the test set, spread evenly over it, with the translations of each row's first seed.

    Rows without a translation of every sentence are left out.
    """
    texts = {}
    for row in table.rows:
        run = table.study.runs_of(row.row)[0]
        lines = translations(results.run(run.id), row.row.decoding) if row.states[run.seed] == "done" else []
        if len(lines) == len(references):
            texts[row.row.label] = lines
    picked = sorted({len(references) * i // count for i in range(count)}) if references and texts else []
    return [
        Sample(
            number=i + 1,
            given=(("source", sources[i]), ("reference", references[i])),
            predictions=tuple((label, lines[i]) for label, lines in texts.items()),
        )
        for i in picked
    ]
