"""The table's content: every row with its scores over seeds, from what is on disk."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ablate import cost
from ablate.paper import BASE, FIELDS, TABLE3, PaperRow
from ablate.report.comparable import Comparison
from ablate.report.scores import Scores
from ablate.store import Results, State, state_of
from ablate.store.states import damage_of, provenance_of, read_progress
from ablate.study import Row, Study

# (metric, whether more is better); the first is of the dev side, the second of the test side.
METRICS = {"ppl": False, "bleu": True}
PER_CHARACTER = "ppl_char"  # in the place of "ppl" where vocabularies differ


@dataclass(frozen=True)
class TableRow:
    """A row, what it costs and what it scored."""

    row: Row
    params: int
    steps: int | None
    states: dict[int, State]  # by seed
    note: str  # why it is not finished; empty where it is
    ppl: Scores
    ppl_char: Scores
    bleu: Scores
    delta_bleu: Scores
    paper: PaperRow | None

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
    def metrics(self) -> tuple[str, ...]:
        """What is shown: the perplexity per character beside that per subword where vocabularies differ."""
        return ("ppl", PER_CHARACTER, "bleu") if len(self.vocabularies) > 1 else tuple(METRICS)

    def best(self, metric: str) -> float | None:
        """The best mean of a metric over the rows that have one for every seed; None where it cannot be compared."""
        if metric == "ppl" and len(self.vocabularies) > 1:
            return None
        means = [scores.mean for row in self.rows if (scores := getattr(row, metric)).n == len(self.study.seeds)]
        values = [mean for mean in means if mean is not None]
        return (max(values) if METRICS.get(metric) else min(values)) if len(values) > 1 else None

    def as_json(self) -> dict[str, Any]:
        """The contract's shape."""
        return {
            "study": self.study.name,
            "metrics": list(self.metrics),
            "rows": [_row_json(row) for row in self.rows],
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
    base = read.row(study.base, None)
    rows = (base, *(read.row(row, base) for row in study.rows[1:]))
    signatures = {name: sorted(found) for name, found in read.signatures.items()}
    return Table(study, rows, signatures, tuple(sorted(read.corpora)), tuple(read.made.remarks()))


class _Reader:
    """Reads rows' results, and collects what they say of how they were measured."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.corpora: set[str] = set()
        self.made = Comparison()
        self.signatures: dict[str, set[str]] = {
            "ppl": {f"per subword token, dev={study.data.dev}, V={_listed(study)}, plain negative log-likelihood"},
            "bleu": set(),
        }

    def row(self, row: Row, base: TableRow | None) -> TableRow:
        ppl: dict[int, float] = {}
        ppl_char: dict[int, float] = {}
        bleu: dict[int, float] = {}
        states: dict[int, State] = {}
        steps: int | None = row.config.train_steps
        V = self.study.data_of(row).vocab_size
        params = cost.parameters(row.config, V)
        notes, updates = [], set()
        for run in self.study.runs_of(row):
            folder = self.results.run(run.id)
            states[run.seed] = state = state_of(folder, row.decoding)
            result = folder.read_result() if state in ("done", "diverged") else None
            if result is None:
                if state != "pending":
                    notes.append(damage_of(folder) or _where(state, read_progress(folder)))
                continue
            self.corpora.add(result["corpus"])
            self.made.add(row.label, result, provenance_of(folder))
            params = result["params"]  # counted, which the closed form cannot do for a variant of the user's own
            if state == "diverged":
                notes.append(f"diverged at step {result['steps']}: {result['reason']}")
                continue
            decoding = result["decodings"][row.decoding]
            ppl[run.seed], bleu[run.seed] = decoding["ppl"], decoding["bleu"]
            if "ppl_char" in decoding:  # results of the first version do not have it
                ppl_char[run.seed] = decoding["ppl_char"]
            self.signatures["bleu"].add(decoding["signature"])
            steps = result["steps"]
            updates.add(result["steps"])
        self.made.updates(row.label, updates)
        scores = Scores(bleu)
        return TableRow(
            row=row,
            params=params,
            steps=steps,
            states=states,
            note=_note(states, notes),
            ppl=Scores(ppl),
            ppl_char=Scores(ppl_char),
            bleu=scores,
            delta_bleu=scores.minus(base.bleu) if base else Scores(),
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


def _row_json(row: TableRow) -> dict[str, Any]:
    return {
        "row": row.row.label,
        "group": row.row.group,
        "changed": row.row.changed,
        "params": row.params,
        "steps": row.steps,
        "state": row.state,
        "note": row.note,
        "ppl": row.ppl.as_json(),
        "ppl_char": row.ppl_char.as_json(),
        "bleu": row.bleu.as_json(),
        "delta_bleu": row.delta_bleu.as_json(),
    }
