"""The content of a study's table: every row with its scores over seeds, read from its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.config import cost
from ablate.config.metrics import PPL, PPL_CHAR, Metric
from ablate.paper import PaperRow, PaperTable
from ablate.report.costs import Cost, cost_of
from ablate.report.provenance_diff import ProvenanceDiff
from ablate.report.scores import Scores
from ablate.report.verdicts import Measurements, against_base
from ablate.report.verdicts import as_json as verdict_json
from ablate.stats.verdict import Verdict
from ablate.store import Results, State, state_of
from ablate.store.records import Decoding, Progress, Result
from ablate.store.score_cache import read_scores
from ablate.store.status import damage_of, read_progress, read_provenance
from ablate.study import Row, Run, Study


@dataclass(frozen=True)
class TableRow:
    """A row with its cost, its scores, and its differences from base.

    params: trained parameters.
    steps: optimizer steps made, or planned while no run has ended.
    states: of its runs, by seed.
    note: why the row is not finished; empty if it is.
    measured: scores by metric and seed, also on resampled test sets.
    paper: the row of the paper's table with the same change, if there is one.
    deltas: differences from base by metric, paired by seed.
    verdicts: by metric; empty for base.
    """

    row: Row
    params: int
    steps: int | None
    states: dict[int, State]
    note: str
    measured: Measurements
    cost: Cost
    paper: PaperRow | None
    deltas: Mapping[str, Scores] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def scores(self) -> Mapping[str, Scores]:
        """Scores by metric."""
        return self.measured.scores

    @property
    def state(self) -> State:
        """State shown for a row with mixed runs; the first match wins."""
        order: tuple[State, ...] = ("failed", "diverged", "running", "interrupted", "pending", "done")
        return min(self.states.values(), key=order.index)


@dataclass(frozen=True)
class Table:
    """A study's table.

    signatures: how each metric was computed; one for each metric if all runs agree.
    corpora: the corpora behind the results; one if all runs agree.
    remarks: differences in how the runs were made.
    """

    study: Study
    rows: tuple[TableRow, ...]
    signatures: dict[str, list[str]]
    corpora: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """Sizes of the rows' vocabularies. Perplexities per subword can only be compared if there is one size."""
        return vocabularies_of(self.study)

    @property
    def perplexity(self) -> Metric:
        """The perplexity that rows are compared by: per character if vocabularies differ and the task measures it."""
        return PPL if len(self.vocabularies) == 1 else self.study.task.metrics.get(PPL_CHAR.name, PPL)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The columns: perplexity per subword, the perplexity to compare, and the metrics of the study."""
        names = dict.fromkeys((PPL.name, self.perplexity.name, *self.study.metrics))
        return tuple(self.study.task.metrics[name] for name in names)

    @property
    def main(self) -> Metric:
        """The metric of the verdicts: the first one of the study."""
        return self.study.task.metrics[self.study.metrics[0]]

    def best(self, metric: str) -> float | None:
        """The best mean over the rows with a score for every seed; None if rows cannot be compared by this metric."""
        if metric == PPL.name != self.perplexity.name:
            return None
        means = [scores.mean for row in self.rows if (scores := row.scores[metric]).n == len(self.study.seeds)]
        values = [mean for mean in means if mean is not None]
        if len(values) < 2:
            return None
        return max(values) if self.study.task.metrics[metric].more_is_better else min(values)

    def as_json(self, timed: bool = True) -> dict[str, Any]:
        """The table for scripts; `timed` adds measured times, which differ each time a study is repeated."""
        return {
            "study": self.study.name,
            "metrics": [metric.name for metric in self.metrics],
            "rows": [_row_json(row, self.study, timed) for row in self.rows],
            "signatures": self.signatures,
            "corpora": list(self.corpora),
            "remarks": list(self.remarks),
        }


def table_of(study: Study, results: Results) -> Table:
    """Read the results that a study has so far.

    Raises:
        StoreError: a result cannot be read, or another version wrote it.
    """
    reader = _Reader(study, results)
    base, *others = (reader.row(row) for row in study.rows)
    verdicts = against_base(study.task.metrics, base.measured, [row.measured for row in others])
    rows = [base]
    for row, verdict in zip(others, verdicts, strict=True):
        deltas = {name: scores.minus(base.scores[name]) for name, scores in row.scores.items()}
        rows.append(replace(row, deltas=deltas, verdicts=verdict))
    signatures = {name: sorted(found) for name, found in reader.signatures.items()}
    return Table(study, tuple(rows), signatures, tuple(sorted(reader.corpora)), tuple(reader.provenance.remarks()))


def vocabularies_of(study: Study) -> tuple[int, ...]:
    """Sizes of the vocabularies of a study's rows, sorted."""
    return tuple(sorted({study.data_of(row).vocab_size for row in study.rows}))


def measured_metrics(study: Study) -> tuple[str, ...]:
    """Names of the metrics that a study's runs are measured in: the task's own, then those that the study adds."""
    task = study.task
    return tuple(
        dict.fromkeys((*(metric.name for metric in task.model_metrics), *task.default_metrics, *study.metrics))
    )


def paper_metrics(table: Table) -> list[str]:
    """Names of the metrics in the paper's table for this task."""
    paper = table.study.task.paper
    return list(dict.fromkeys(name for row in paper.rows for name in row.scores)) if paper else []


class _Reader:
    """Reads the results of rows, and collects how they were measured."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.corpora: set[str] = set()
        self.provenance = ProvenanceDiff()
        self.metrics = measured_metrics(study)
        self.signatures: dict[str, set[str]] = {name: set() for name in self.metrics}
        for name in self.metrics:
            described = study.task.describe(study.task.metrics[name], study.data, vocabularies_of(study))
            if described is not None:
                self.signatures[name].add(described)

    def row(self, row: Row) -> TableRow:
        """Read the runs of a row."""
        scores: dict[str, dict[int, float]] = {name: {} for name in self.metrics}
        resamples: dict[str, dict[int, Sequence[float]]] = {name: {} for name in self.metrics}
        states: dict[int, State] = {}
        finished: dict[int, Result] = {}
        params = cost.parameters(row.config, self.study.data_of(row).vocab_size)
        notes = []
        for run in self.study.runs_of(row):
            folder = self.results.run(run.id)
            states[run.seed] = state = state_of(folder, row.decoding)
            result = folder.read_result() if state in ("done", "diverged") else None
            if result is None:
                if state != "pending":
                    notes.append(damage_of(folder) or _at_step(state, read_progress(folder)))
                continue
            self.provenance.add(row.label, result, read_provenance(folder))
            params = result.params  # counted, since the closed form does not know plug-ins
            if state == "diverged":
                notes.append(f"diverged at step {result.steps}: {result.reason}")
                continue
            finished[run.seed] = result
            decoding = result.decodings[row.decoding]
            self.corpora.add(decoding.corpus)
            if decoding.averaged < row.config.average_checkpoints:
                self.provenance.averaged[row.label] = decoding.averaged
            self._add_scores(row, run, decoding, scores, resamples)
        steps = [result.steps for result in finished.values()]
        self.provenance.updates(row.label, set(steps))
        by_metric = {name: Scores(values) for name, values in scores.items()}
        diverged = sum(state == "diverged" for state in states.values())
        return TableRow(
            row=row,
            params=params,
            steps=steps[-1] if steps else row.config.train_steps,
            states=states,
            note=_note(states, notes),
            measured=Measurements(by_metric, resamples, diverged),
            cost=cost_of(self.study, row, finished, self.results),
            paper=paper_row(self.study.task.paper, row, self.study.base),
        )

    def _add_scores(
        self,
        row: Row,
        run: Run,
        decoding: Decoding,
        scores: dict[str, dict[int, float]],
        resamples: dict[str, dict[int, Sequence[float]]],
    ) -> None:
        """Add the scores of a run: those of its result, and cached ones in further metrics."""
        cached = read_scores(self.results.run(run.id), row.decoding, decoding.corpus)
        for name in self.metrics:
            score = decoding.scores.get(name) or cached.get(name)
            if score is not None:
                scores[name][run.seed] = score.value
                if score.signature:
                    self.signatures[name].add(score.signature)
            if name in cached:
                resamples[name][run.seed] = cached[name].resamples


def _at_step(state: State, progress: Progress | None) -> str:
    return f"{state} at step {progress.step}" if progress and progress.step else state


def _note(states: dict[int, State], notes: list[str]) -> str:
    counts = Counter(states.values())
    if counts["done"] == len(states):
        return ""
    reason = notes[0] if notes else "pending"
    return reason if len(states) == 1 else f"{counts['done']} of {len(states)} seeds done; {reason}"


def paper_row(paper: PaperTable | None, row: Row, base: Row) -> PaperRow | None:
    """The row of the paper's table with the same change: the same fields, from the paper's values to the paper's."""
    if paper is None:
        return None
    changed = _changed_paper_fields(paper, row)
    if not changed and row.changed:
        return None
    if any(getattr(base.config, name) != paper.base[name] for name in changed):
        return None  # a d_ff of 1024 is smaller than 2048, and larger than 256
    match = next((each for each in paper.rows if each.changed == changed), None)
    comparable = {*paper.base, *paper.recipe} if match and match.group == "big" else set(paper.base)
    return match if set(row.changed) <= comparable else None


def _changed_paper_fields(paper: PaperTable, row: Row) -> dict[str, Any]:
    """The fields of the paper's table that a row changes. A head size of d_model / h is no change of its own."""
    return {
        name: value
        for name, value in row.changed.items()
        if name in paper.base and not (name in ("d_k", "d_v") and value * row.config.n_heads == row.config.d_model)
    }


def _row_json(row: TableRow, study: Study, timed: bool) -> dict[str, Any]:
    main = study.task.default_metrics[0]
    return {
        "row": row.row.label,
        "group": row.row.group,
        "changed": row.row.changed,
        "params": row.params,
        "steps": row.steps,
        "state": row.state,
        "note": row.note,
        **{name: scores.as_json() for name, scores in row.scores.items()},
        f"delta_{main}": row.deltas.get(main, Scores()).as_json(),
        "against_base": {name: verdict_json(verdict) for name, verdict in row.verdicts.items()},
        "cost": row.cost.as_json(timed),
        "paper": row.paper.scores if row.paper else None,
    }
