"""What a row's training took: time, tokens a second and FLOPs, beside its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablate.config import cost
from ablate.config.cost import Lengths
from ablate.formatting import plural
from ablate.report.scores import Scores
from ablate.store import Results, RunFolder
from ablate.store.corpora import lengths_in
from ablate.store.records import Result
from ablate.store.status import read_provenance
from ablate.study import Row, Study


@dataclass(frozen=True)
class Cost:
    """A row's training, over its finished seeds.

    seconds: of a training with its evaluations, on the machine that it ran on.
    tokens_per_second: of the longer sides, over those seconds.
    flops: of one training, in closed form; None while its steps are not known.
    places: what carried it out.
    """

    seconds: Scores
    tokens_per_second: Scores
    flops: float | None
    places: tuple[str, ...]

    def as_json(self, timed: bool = True) -> dict[str, Any]:
        """For scripts; `timed`: with what a clock has measured, never the same again."""
        times = {"seconds": self.seconds.as_json(), "tokens_per_second": self.tokens_per_second.as_json()}
        return {**(times if timed else {}), "flops": self.flops}


def cost_of(study: Study, row: Row, finished: dict[int, Result], results: Results) -> Cost:
    """The cost of a row from its finished runs' results, by seed."""
    seconds = {seed: result.seconds for seed, result in finished.items() if result.seconds}
    rates = {seed: tokens / took for seed, took in seconds.items() if (tokens := finished[seed].tokens) is not None}
    places = {_place(results.run(result.id)) for result in finished.values()} - {""}
    return Cost(Scores(seconds), Scores(rates), _flops(study, row, finished, results), tuple(sorted(places)))


def _flops(study: Study, row: Row, finished: dict[int, Result], results: Results) -> float | None:
    """FLOPs of the steps made where training has ended, else of those planned."""
    corpus = next((result.corpus for result in finished.values()), None)
    lengths = lengths_in(results.corpora, corpus) if corpus else None
    made = [result.steps for result in finished.values()]
    steps = sum(made) / len(made) if made else cost.steps(row.config, lengths)
    each = cost.flops_per_step(row.config, study.data_of(row).vocab_size, lengths or Lengths.assumed())
    return None if steps is None else each * steps


def _place(folder: RunFolder) -> str:
    """`cpu (1 thread), Some Processor`, or the GPU's name."""
    provenance = read_provenance(folder)
    if provenance is None:
        return ""
    if provenance.device != "cpu":
        return provenance.device
    return f"cpu ({plural(provenance.threads, 'thread')}), {provenance.machine.processor}"
