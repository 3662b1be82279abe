"""Where the numbers of a table come from: corpora, code, machines and the weights of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ablate.analysis.outcome import Outcome
from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.config.data import CorpusConfig
from ablate.store import Results, none_if_unreadable
from ablate.store.records import Provenance, Result


class PublishedRun(NamedTuple):
    """A run of a table; `made_with` is the index of its provenance."""

    seed: int
    made_with: int
    result: Result


@dataclass(frozen=True)
class TableProvenance:
    """Data settings, corpora and runs of a table, with their provenance.

    corpora: ids of the corpora.
    provenances: distinct provenances of the runs; None for a record that cannot be read.
    runs: runs by id.
    """

    data: CorpusConfig
    corpora: tuple[str, ...]
    provenances: tuple[Provenance | None, ...]
    runs: Mapping[str, PublishedRun]

    def as_json(self) -> dict[str, Any]:
        """The content of provenance.json; each run has the index of its `carried_out`."""
        runs = {}
        for id, (seed, made_with, result) in self.runs.items():
            runs[id] = {
                "seed": seed,
                "carried_out": made_with,
                "steps": result.steps,
                "seconds": result.seconds,
                "weights": result.weights and result.weights.model_dump(),
            }
        return {
            "data": self.data.model_dump(exclude={"folder"}),
            "corpora": list(self.corpora),
            "carried_out": [made.model_dump() if made else {} for made in self.provenances],
            "runs": runs,
        }


def provenance_of(outcome: Outcome, results: Results) -> TableProvenance:
    """The provenance of a table, from the records of every run with a result. The records of runs
    that the table does not have, such as tuning runs, are read.
    """
    in_table = {run.run.id: run for run in outcome.runs if run.result is not None}
    provenances: list[Provenance | None] = []
    runs = {}
    for run in with_tuning_runs(outcome.planned):
        if run.id in in_table:
            result = in_table[run.id].result
            record = in_table[run.id].provenance
        else:
            folder = results.run(run.id)
            result = none_if_unreadable(folder.read_result)
            record = none_if_unreadable(folder.read_provenance)
        if result is None:
            continue
        if record not in provenances:
            provenances.append(record)
        runs[run.id] = PublishedRun(run.seed, provenances.index(record), result)
    data, corpora = outcome.study.data, outcome.experiment.corpora
    return TableProvenance(data, corpora, tuple(provenances), runs)
