"""Sample translations: some sentences of the test side as the rows translate them, each with the first seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.report.table import Table
from ablate.store import Results
from ablate.store.score_cache import translations


@dataclass(frozen=True)
class Sample:
    """A sentence, its reference, and what each row made of it, by label."""

    number: int
    source: str
    reference: str
    translations: tuple[tuple[str, str], ...]


def samples(
    table: Table, results: Results, sources: Sequence[str], references: Sequence[str], count: int
) -> list[Sample]:
    """So many sentences, evenly spread over the test side, so that nobody picks them."""
    texts = {}
    for row in table.rows:
        run = table.study.runs_of(row.row)[0]
        lines = translations(results.run(run.id), row.row.decoding) if row.states[run.seed] == "done" else []
        if len(lines) == len(references):
            texts[row.row.label] = lines
    picked = sorted({len(references) * i // count for i in range(count)}) if references and texts else []
    return [
        Sample(i + 1, sources[i], references[i], tuple((label, lines[i]) for label, lines in texts.items()))
        for i in picked
    ]
