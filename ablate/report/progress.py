"""Where a study stands at this moment, row by row: all of it from files, so that anyone may look at any time."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.report.plan import Plan, PlanRow, measured_rates, plan_of
from ablate.report.scores import Scores
from ablate.store import Results, RunFolder, State, state_of
from ablate.store.status import read_progress
from ablate.study import Row, Study

ENDED: tuple[State, ...] = ("done", "diverged", "failed")
# How long the pace must have been watched before it is believed more than what this machine did in the past.
PACE_SECONDS = 10.0
PACE_SHARE = 0.02  # of a run, that must have been made meanwhile


@dataclass(frozen=True)
class Against:
    """A row's perplexity less base's, paired by seed; `step`: at which both were evaluated, None for final ones."""

    difference: float
    step: int | None


@dataclass(frozen=True)
class RowStanding:
    """A row: its runs' states, what finished ones scored, and where those at work are."""

    row: Row
    states: dict[int, State]  # by seed
    ppl: Scores
    bleu: Scores
    at: dict[int, dict[str, Any]]  # by seed: the last report of runs that are begun and not finished
    against: Against | None = None

    @property
    def at_work(self) -> list[dict[str, Any]]:
        """Reports of the runs that are being carried out."""
        return [report for seed, report in self.at.items() if self.states[seed] == "running"]


@dataclass(frozen=True)
class Standing:
    """A study at one moment. Shares are of all its FLOPs."""

    study: Study
    rows: tuple[RowStanding, ...]
    states: dict[str, State]  # of each run
    share: float
    seconds_left: float | None  # None where nobody is at work, or the pace is not known yet
    memory: dict[str, tuple[int, int]]  # by device: bytes held by workers, and all that there are

    @property
    def ended(self) -> int:
        """How many runs need nothing more."""
        return sum(state in ENDED for state in self.states.values())

    @property
    def counts(self) -> Counter[State]:
        """How many runs are in each state."""
        return Counter(self.states.values())


@dataclass
class _Evaluations:
    """A run's dev perplexities by step, read on from where the file was left."""

    by_step: dict[int, float] = field(default_factory=dict)
    read: int = 0  # bytes

    def update(self, folder: RunFolder) -> dict[int, float]:
        try:
            with folder.metrics.open("rb") as file:
                if file.seek(0, 2) < self.read:  # cut back to a checkpoint
                    self.by_step, self.read = {}, 0
                file.seek(self.read)
                content = file.read()
        except OSError:
            return self.by_step
        whole = content[: content.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, KeyError):  # a loss, or a line that a broken disk has spoilt: it is only a view
                values = json.loads(line)
                self.by_step[values["step"]] = values["dev_perplexity"]
        return self.by_step


class Standings:
    """Looks at a study again and again; what is finished is read once."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.plan: Plan = plan_of(study, results)
        self.rates = measured_rates(results, list(self.plan.runs))
        self.finished: dict[tuple[str, str], tuple[State, dict[str, Any]]] = {}  # (run, decoding) -> state, result
        self.evaluations: dict[str, _Evaluations] = {}
        self.first: tuple[float, float] | None = None  # when work was first seen, and how much was done by then

    def look(self) -> Standing:
        """Where the study stands now.

        Raises:
            StoreError: a result is damaged.
        """
        if self.plan.lengths is None:  # the corpus may be prepared by now
            self.plan = plan_of(self.study, self.results)
        base = self._row(self.study.base)
        others = (self._row(row) for row in self.study.rows[1:])
        rows = (base, *(replace(row, against=self._against(row, base)) for row in others))
        states, reports = _by_run(self.study, rows)
        share, left = self._work(states, reports)
        return Standing(self.study, rows, states, share, left, _memory(states, reports))

    def _row(self, row: Row) -> RowStanding:
        states: dict[int, State] = {}
        ppl: dict[int, float] = {}
        bleu: dict[int, float] = {}
        at: dict[int, dict[str, Any]] = {}
        for run in self.study.runs_of(row):
            states[run.seed], result = self._state(run.id, row.decoding)
            if result and states[run.seed] == "done":
                ppl[run.seed] = result["decodings"][row.decoding]["ppl"]
                bleu[run.seed] = result["decodings"][row.decoding]["bleu"]
            elif states[run.seed] == "diverged":
                at[run.seed] = {"step": result["steps"]}
            elif states[run.seed] != "pending":
                at[run.seed] = read_progress(self.results.run(run.id)) or {}
        return RowStanding(row, states, Scores(ppl), Scores(bleu), at)

    def _state(self, id: str, decoding: str) -> tuple[State, dict[str, Any]]:
        known = self.finished.get((id, decoding))
        if known is not None:
            return known
        folder = self.results.run(id)
        state = state_of(folder, decoding)
        result = (folder.read_result() or {}) if state in ("done", "diverged") else {}
        if state in ("done", "diverged"):
            self.finished[id, decoding] = state, result
        return state, result

    def _against(self, row: RowStanding, base: RowStanding) -> Against | None:
        """The difference of final perplexities; while there is none, at the last step that all begun runs share."""
        final = row.ppl.minus(base.ppl).mean
        if final is not None or row.ppl.n:
            return None if final is None else Against(final, None)
        ours = {run.seed: run.id for run in self.study.runs_of(row.row)}
        theirs = {run.seed: run.id for run in self.study.runs_of(base.row)}
        begun = [seed for seed in row.at if ours[seed] != theirs[seed]]
        pairs = [(self._evaluated(ours[seed]), self._evaluated(theirs[seed])) for seed in begun]
        pairs = [(one, other) for one, other in pairs if one and other]
        common = set.intersection(*(one.keys() & other.keys() for one, other in pairs)) if pairs else set()
        if not common:
            return None
        step = max(common)
        return Against(statistics.fmean(one[step] - other[step] for one, other in pairs), step)

    def _evaluated(self, id: str) -> dict[int, float]:
        return self.evaluations.setdefault(id, _Evaluations()).update(self.results.run(id))

    def _work(self, states: dict[str, State], reports: dict[str, dict[str, Any]]) -> tuple[float, float | None]:
        """(Share of the work that is behind, seconds until the rest is)."""
        rows = {id: row for id, (row, _) in self.plan.runs.items()}
        known = all(row.flops is not None for row in rows.values())
        work = {id: (row.flops or 1.0) if known else 1.0 for id, row in rows.items()}
        done = {id: work[id] * self._behind(id, rows[id], states[id], reports.get(id)) for id in work}
        left = {id: work[id] - done[id] for id in work}
        total, behind = sum(work.values()), sum(done.values())
        devices = {report.get("device") for id, report in reports.items() if states[id] == "running"}
        if "running" not in states.values():
            self.first = None
            return behind / total, None
        now, first = time.monotonic(), self.first
        if first is None and any(states[id] == "running" and report.get("step") for id, report in reports.items()):
            self.first = first = (now, behind)  # workers have started, which says nothing of their pace
        if first and now - first[0] >= PACE_SECONDS and behind - first[1] > PACE_SHARE * total / len(work):
            return behind / total, sum(left.values()) * (now - first[0]) / (behind - first[1])
        precisions = {id: row.row.config.precision for id, row in rows.items()}
        if not known or any(left[id] and precisions[id] not in self.rates for id in left):
            return behind / total, None
        # A CPU's rate is of all its cores, a GPU's of one.
        at_once = sum(str(device).startswith("cuda") for device in devices) or 1
        return behind / total, sum(left[id] / self.rates[precisions[id]] for id in left if left[id]) / at_once

    def _behind(self, id: str, row: PlanRow, state: State, report: dict[str, Any] | None) -> float:
        """The share of a run that is behind it: all, if nothing more will be done."""
        if state in ENDED or self.results.run(id).result.exists():
            return 1.0
        step, steps = (report or {}).get("step"), row.steps
        return min(1.0, step / steps) if step and steps else 0.0


def _by_run(study: Study, rows: tuple[RowStanding, ...]) -> tuple[dict[str, State], dict[str, dict[str, Any]]]:
    """Each run's state and last report; one that several rows share is done if it is for all of them."""
    states: dict[str, State] = {}
    reports: dict[str, dict[str, Any]] = {}
    for row in rows:
        for run in study.runs_of(row.row):
            if states.get(run.id, "done") == "done":
                states[run.id] = row.states[run.seed]
            if run.seed in row.at:
                reports[run.id] = row.at[run.seed]
    return states, reports


def _memory(states: dict[str, State], reports: dict[str, dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """By device: what workers hold of a CPU's memory in all; of a GPU's, what each of them sees held by all."""
    memory: dict[str, tuple[int, int]] = {}
    for id, report in reports.items():
        if states[id] == "running" and "memory" in report:
            device, (held, total) = str(report["device"]), (report["memory"]["held"], report["memory"]["total"])
            before = memory.get(device, (0, 0))[0]
            memory[device] = (before + held if device == "cpu" else max(before, held)), total
    return dict(sorted(memory.items()))


def run_labels(study: Study) -> dict[str, str]:
    """What each run is called: the first row that it belongs to, and its seed where there are several."""
    labels: dict[str, str] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            labels.setdefault(run.id, f"{row.label} seed {run.seed}" if len(study.seeds) > 1 else row.label)
    return labels
