"""The table's content: every row with its scores over seeds, from what is on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.config import cost
from ablate.config.metrics import METRICS, PPL, PPL_CHAR, Metric
from ablate.paper import BASE, FIELDS, TABLE3, PaperRow
from ablate.report.costs import Cost, cost_of
from ablate.report.provenance_diff import Comparison
from ablate.report.scores import Scores
from ablate.report.verdicts import Measurements, against_base
from ablate.report.verdicts import as_json as verdict_json
from ablate.stats.verdict import Verdict
from ablate.store import Results, State, state_of
from ablate.store.score_cache import read_measured
from ablate.store.status import damage_of, provenance_of, read_progress
from ablate.study import Row, Study


@dataclass(frozen=True)
class TableRow:
    """A row, what it costs, what it scored, and what that is against base.

    scores: by metric; `ppl` and `bleu` are always there.
    verdicts: by metric; none for base.
    """

    row: Row
    params: int
    steps: int | None
    states: dict[int, State]  # by seed
    note: str  # why it is not finished; empty where it is
    measured: Measurements
    cost: Cost
    paper: PaperRow | None
    deltas: Mapping[str, Scores] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def scores(self) -> Mapping[str, Scores]:
        """By metric."""
        return self.measured.scores

    @property
    def ppl(self) -> Scores:
        """Perplexity on the dev side."""
        return self.scores["ppl"]

    @property
    def bleu(self) -> Scores:
        """BLEU on the test side."""
        return self.scores["bleu"]

    @property
    def delta_bleu(self) -> Scores:
        """BLEU less base's, of the seeds that both have."""
        return self.deltas.get("bleu", Scores())

    @property
    def state(self) -> State:
        """`done` if every seed is, else the state most in need of a look."""
        order: tuple[State, ...] = ("failed", "diverged", "running", "interrupted", "pending", "done")
        return min(self.states.values(), key=order.index)


@dataclass(frozen=True)
class Table:
    """A study's table. `corpora`: the corpora that its results were made on; one, if nothing is mixed."""

    study: Study
    rows: tuple[TableRow, ...]
    signatures: dict[str, list[str]]
    corpora: tuple[str, ...]
    remarks: tuple[str, ...] = ()  # how the runs were not made alike

    @property
    def vocabularies(self) -> tuple[int, ...]:
        """The sizes of the rows' vocabularies. Perplexities per subword are only compared where it is one."""
        return tuple(sorted({self.study.data_of(row.row).vocab_size for row in self.rows}))

    @property
    def perplexity(self) -> Metric:
        """The perplexity that rows are compared by: per character where vocabularies differ."""
        return PPL if len(self.vocabularies) == 1 else PPL_CHAR

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Perplexity, then those that the study chose; beside what rows are compared by always that per subword."""
        names = dict.fromkeys((PPL.name, self.perplexity.name, *self.study.metrics))
        return tuple(METRICS[name] for name in names)

    @property
    def main(self) -> Metric:
        """The metric of translations that verdicts go by: the study's first."""
        return METRICS[self.study.metrics[0]]

    def best(self, metric: str) -> float | None:
        """The best mean of a metric over the rows that have one for every seed; None where it cannot be compared."""
        if metric == PPL.name != self.perplexity.name:
            return None
        means = [scores.mean for row in self.rows if (scores := row.scores[metric]).n == len(self.study.seeds)]
        values = [mean for mean in means if mean is not None]
        return (max(values) if METRICS[metric].more_is_better else min(values)) if len(values) > 1 else None

    def as_json(self, timed: bool = True) -> dict[str, Any]:
        """The contract's shape; `timed`: with what a clock has measured."""
        return {
            "study": self.study.name,
            "metrics": [metric.name for metric in self.metrics],
            "rows": [_row_json(row, timed) for row in self.rows],
            "signatures": self.signatures,
            "corpora": list(self.corpora),
            "remarks": list(self.remarks),
        }


def table_of(study: Study, results: Results) -> Table:
    """Read what a study has so far.

    Raises:
        StoreError: a result cannot be read, or is of another version.
    """
    read = _Reader(study, results)
    base, *others = (read.row(row) for row in study.rows)
    verdicts = against_base(base.measured, [row.measured for row in others])
    rows = [base]
    for row, found in zip(others, verdicts, strict=True):
        deltas = {name: scores.minus(base.scores[name]) for name, scores in row.scores.items()}
        rows.append(replace(row, deltas=deltas, verdicts=found))
    signatures = {name: sorted(found) for name, found in read.signatures.items()}
    return Table(study, tuple(rows), signatures, tuple(sorted(read.corpora)), tuple(read.made.remarks()))


class _Reader:
    """Reads rows' results, and collects what they say of how they were measured."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.corpora: set[str] = set()
        self.made = Comparison()
        self.metrics = tuple(dict.fromkeys((PPL.name, PPL_CHAR.name, "bleu", *study.metrics)))
        self.signatures: dict[str, set[str]] = {name: set() for name in self.metrics}
        how = f"dev={study.data.dev}, V={_listed(study)}, plain negative log-likelihood"
        self.signatures[PPL.name].add(f"per subword token, {how}")
        self.signatures[PPL_CHAR.name].add(f"per character, {how}")

    def row(self, row: Row) -> TableRow:
        scores: dict[str, dict[int, float]] = {name: {} for name in self.metrics}
        resamples: dict[str, dict[int, Sequence[float]]] = {name: {} for name in self.metrics}
        states: dict[int, State] = {}
        finished: dict[int, dict[str, Any]] = {}
        params = cost.parameters(row.config, self.study.data_of(row).vocab_size)
        notes = []
        for run in self.study.runs_of(row):
            folder = self.results.run(run.id)
            states[run.seed] = state = state_of(folder, row.decoding)
            result = folder.read_result() if state in ("done", "diverged") else None
            if result is None:
                if state != "pending":
                    notes.append(damage_of(folder) or _where(state, read_progress(folder)))
                continue
            self.made.add(row.label, result, provenance_of(folder))
            params = result["params"]  # counted, which the closed form cannot do for a variant of the user's own
            if state == "diverged":
                notes.append(f"diverged at step {result['steps']}: {result['reason']}")
                continue
            finished[run.seed] = result
            decoding = result["decodings"][row.decoding]
            self.corpora.add(decoding["corpus"])
            averaged = decoding.get("averaged", row.config.average_checkpoints)
            if averaged < row.config.average_checkpoints:
                self.made.fewer[row.label] = averaged
            found = {"ppl": decoding["ppl"], "bleu": decoding["bleu"]}
            if PPL_CHAR.name in decoding:  # results of the first version do not have it
                found[PPL_CHAR.name] = decoding[PPL_CHAR.name]
            self.signatures["bleu"].add(decoding["signature"])
            for name, measured in read_measured(folder, row.decoding, decoding["corpus"]).items():
                if name in scores:
                    found.setdefault(name, measured["value"])
                    resamples[name][run.seed] = measured["resamples"]
                    self.signatures[name].add(decoding["signature"] if name == "bleu" else measured["signature"])
            for name, value in found.items():
                scores[name][run.seed] = value
        steps = [result["steps"] for result in finished.values()]
        self.made.updates(row.label, set(steps))
        by_metric = {name: Scores(values) for name, values in scores.items()}
        return TableRow(
            row=row,
            params=params,
            steps=steps[-1] if steps else row.config.train_steps,
            states=states,
            note=_note(states, notes),
            measured=Measurements(by_metric, resamples, sum(state == "diverged" for state in states.values())),
            cost=cost_of(self.study, row, finished, self.results),
            paper=paper_row(row, self.study.base),
        )


def _listed(study: Study) -> str:
    return ", ".join(str(V) for V in sorted({study.data_of(row).vocab_size for row in study.rows}))


def _where(state: State, progress: dict[str, Any] | None) -> str:
    step = progress.get("step") if progress else None
    return f"{state} at step {step}" if step else state


def _note(states: dict[int, State], notes: list[str]) -> str:
    counts = Counter(states.values())
    if counts["done"] == len(states):
        return ""
    what = notes[0] if notes else "pending"
    return what if len(states) == 1 else f"{counts['done']} of {len(states)} seeds done; {what}"


def paper_row(row: Row, base: Row) -> PaperRow | None:
    """The row of Table 3 that makes the same change: the same fields, from the paper's values to the paper's values."""
    changed = _change(row)
    if not changed and row.changed:
        return None
    if any(getattr(base.config, name) != BASE[name] for name in changed):
        return None  # a d_ff of 1024 is a loss from 2048, and a gain from 256
    found = next((paper for paper in TABLE3 if paper.changed == changed), None)
    recipe = {*FIELDS, "train_steps"} if found and found.group == "big" else set(FIELDS)
    return found if set(row.changed) <= recipe else None


def _change(row: Row) -> dict[str, Any]:
    """What the row changes among Table 3's fields; a head size that is d_model / h is no change of its own."""
    return {
        name: value
        for name, value in row.changed.items()
        if name in FIELDS and not (name in ("d_k", "d_v") and value * row.config.n_heads == row.config.d_model)
    }


def _row_json(row: TableRow, timed: bool) -> dict[str, Any]:
    return {
        "row": row.row.label,
        "group": row.row.group,
        "changed": row.row.changed,
        "params": row.params,
        "steps": row.steps,
        "state": row.state,
        "note": row.note,
        **{name: scores.as_json() for name, scores in row.scores.items()},
        "delta_bleu": row.delta_bleu.as_json(),
        "against_base": {name: verdict_json(verdict) for name, verdict in row.verdicts.items()},
        "cost": row.cost.as_json(timed),
        "paper": {"ppl": row.paper.ppl, "bleu": row.paper.bleu} if row.paper else None,
    }
