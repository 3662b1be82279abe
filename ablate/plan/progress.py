"""The progress of a study, row by row, read from its files, so that any process may watch it."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ablate.analysis.missing import ENDED
from ablate.analysis.results import run_state
from ablate.analysis.scores import Scores
from ablate.config.metrics import PPL, Metric
from ablate.formatting import duration, first_few, plural
from ablate.plan.plan import Plan, PlanRow, plan_of
from ablate.store import Results, RunFolder, State, checkpoints, if_readable, state_of
from ablate.store.jobs import starting_pilots
from ablate.store.records import MetricsTail, Progress, Result, Score, evaluation_at
from ablate.store.status import STATES, state_of_all
from ablate.study import Row, Study

# The time left follows the pace of the running jobs, once they were watched for so long and have
# made such a share of a run. Rates of past runs would be those of other models on an idle machine.
PACE_SECONDS = 30.0
PACE_SHARE = 0.02


@dataclass(frozen=True)
class PerplexityDifference:
    """Logarithm of a row's dev perplexity over base's, paired by seed. `step`: the last one both
    have evaluated; None at the end.
    """

    difference: float
    step: int | None


@dataclass(frozen=True)
class RowProgress:
    """The progress of a row.

    states: of its runs, by seed.
    ppl: dev perplexity of finished runs.
    main: score of finished runs in the study's main metric.
    reports: last reports of begun and unfinished runs, by seed.
    diverged: step at which a run diverged, by seed.
    against_base: difference from base.
    """

    row: Row
    states: dict[int, State]
    ppl: Scores
    main: Scores
    reports: dict[int, Progress]
    diverged: dict[int, int] = field(default_factory=dict)
    against_base: PerplexityDifference | None = None

    @property
    def running(self) -> list[Progress]:
        """Reports of the runs that are being executed."""
        return [report for seed, report in self.reports.items() if self.states[seed] == "running"]

    def step_of(self, seed: int) -> int | None:
        """The last known step of an unfinished or diverged run."""
        if seed in self.reports:
            return self.reports[seed].step
        return self.diverged.get(seed)


@dataclass(frozen=True)
class StudyProgress:
    """The progress of a study at one moment.

    states: of each run.
    share: of the FLOPs that are done.
    seconds_left: None if nothing runs, or the pace is not known yet.
    memory: by device: bytes held by workers, and bytes in total.
    starting: number of pilots in a cluster's queue, or about to start.
    """

    study: Study
    rows: tuple[RowProgress, ...]
    states: dict[str, State]
    share: float
    seconds_left: float | None
    memory: dict[str, tuple[int, int]]
    starting: int = 0

    @property
    def main(self) -> Metric:
        """The first metric of the table, shown beside PPL."""
        return self.study.task.metrics[self.study.metrics[0]]

    @property
    def ended(self) -> int:
        """Number of runs that need nothing more."""
        return sum(state in ENDED for state in self.states.values())

    @property
    def counts(self) -> Counter[State]:
        """Number of runs in each state."""
        return Counter(self.states.values())


class _Evaluations:
    """Dev perplexities of a run by step; each update reads only the new lines."""

    def __init__(self, log: Path) -> None:
        self.tail, self.by_step = MetricsTail(log), dict[int, float]()

    def update(self) -> dict[int, float]:
        before, lines = self.tail.new_lines()
        if not before:  # cut back to a checkpoint
            self.by_step = {}
        for line in lines:
            if (line.dev_perplexity or 0.0) > 0 and line.dev_perplexity is not None:
                self.by_step[line.step] = line.dev_perplexity
        return self.by_step


class ProgressReader:
    """Reads the progress of a study repeatedly; finished runs are read once."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.plan: Plan = plan_of(study, results)
        # (run, decoding) -> state, result
        self.finished: dict[tuple[str, str], tuple[State, Result | None]] = {}
        self.evaluations: dict[str, _Evaluations] = {}
        # When work was first seen, and the share done by then
        self.first: tuple[float, float] | None = None

    def read(self) -> StudyProgress:
        """Read the progress of the study now.

        Raises:
            StoreError: a result is damaged.
        """
        if self.plan.lengths is None:  # the corpus may be prepared by now
            self.plan = plan_of(self.study, self.results)
        read: dict[str, RowProgress] = {}
        for row in self.study.rows:
            read[row.label] = progress = self._row(row)
            if not row.is_base:  # its base comes before it
                against = self._against(progress, read[row.base])
                read[row.label] = replace(progress, against_base=against)
        rows = tuple(read.values())
        states, reports = _by_run(self.study, rows)
        share, left = self._estimate(states, reports)
        starting = starting_pilots(self.results, self.study.name)
        memory = _memory(states, reports)
        return StudyProgress(self.study, rows, states, share, left, memory, starting)

    def _row(self, row: Row) -> RowProgress:
        states: dict[int, State] = {}
        ppl: dict[int, float] = {}
        main: dict[int, float] = {}
        reports: dict[int, Progress] = {}
        diverged: dict[int, int] = {}
        for run in self.study.runs_of(row):
            states[run.seed], result = self._state(run.id, row.decoding)
            if result is not None and states[run.seed] == "done":
                scores = self._scores(run.id, row, result)
                ppl[run.seed] = scores["ppl"].value
                if self.study.metrics[0] in scores:
                    main[run.seed] = scores[self.study.metrics[0]].value
            elif result is not None:
                diverged[run.seed] = result.steps
            elif states[run.seed] != "pending":
                report = if_readable(self.results.run(run.id).read_progress)
                if report is not None:
                    reports[run.seed] = report
        is_log = self.study.task.metrics[self.study.metrics[0]].is_log
        scores_of_row = Scores(ppl, PPL.is_log), Scores(main, is_log)
        return RowProgress(row, states, *scores_of_row, reports, diverged)

    def _scores(self, id: str, row: Row, result: Result) -> Mapping[str, Score]:
        """The scores of a finished run; of a trial, the last evaluation's dev perplexity."""
        if row.is_decoded:
            return result.decodings[row.decoding].scores
        perplexity = evaluation_at(self.results.run(id).metrics, result.chosen_step)
        return {"ppl": Score(value=perplexity or math.nan)}

    def _state(self, id: str, decoding: str) -> tuple[State, Result | None]:
        known = self.finished.get((id, decoding))
        if known is not None:
            return known
        folder = self.results.run(id)
        state = state_of(folder, decoding)
        if state not in ("done", "diverged"):
            return state, None
        # A result does not change for a decoding that it has.
        self.finished[id, decoding] = state, folder.read_result()
        return self.finished[id, decoding]

    def _against(self, row: RowProgress, base: RowProgress) -> PerplexityDifference | None:
        """The difference of final perplexities; before the end, at the last step that all begun
        runs have evaluated.
        """
        # Once a seed has ended, final values are compared; before, those at a common step.
        final = row.ppl.minus(base.ppl).mean
        if final is not None:
            return PerplexityDifference(final, None)
        if row.ppl.n:
            return None
        of_base = {run.seed: run.id for run in self.study.runs_of(base.row)}
        seeds, logarithms = 0, dict[int, list[float]]()  # of the ratios, by step
        for run in self.study.runs_of(row.row):
            # A row that shares base's training, because only decoding differs, has no difference to
            # show.
            if run.seed not in {*row.reports, *row.diverged} or run.id == of_base[run.seed]:
                continue
            ours, theirs = self._evaluated(run.id), self._evaluated(of_base[run.seed])
            seeds += bool(ours and theirs)
            for step in ours.keys() & theirs.keys():
                logarithms.setdefault(step, []).append(math.log(ours[step] / theirs[step]))
        for step in sorted(logarithms, reverse=True):
            if len(logarithms[step]) == seeds:
                return PerplexityDifference(statistics.fmean(logarithms[step]), step)
        return None

    def _evaluated(self, id: str) -> dict[int, float]:
        if id not in self.evaluations:
            self.evaluations[id] = _Evaluations(self.results.run(id).metrics)
        return self.evaluations[id].update()

    def _estimate(
        self, states: dict[str, State], reports: dict[str, Progress]
    ) -> tuple[float, float | None]:
        """(Share of the work that is done, seconds until the end)."""
        rows, work, is_known = dict[str, PlanRow](), dict[str, float](), True
        for id, (row, _) in self.plan.runs.items():
            if id in states:
                rows[id], work[id] = row, row.flops or 1.0
                is_known &= row.flops is not None
        # Without a last step a run has no total of FLOPs, and every run then counts the same.
        if not is_known:
            work = dict.fromkeys(rows, 1.0)
        completed = 0.0
        for id, row in rows.items():
            share = 1.0
            # A failed or diverged run needs no more work, and one that lacks a decoding little.
            if states[id] not in ENDED and not self.results.run(id).has_result:
                share = row.completed_share(reports.get(id))
            completed += share * work[id]
        total = sum(work.values())
        if "running" not in states.values():
            self.first = None
            return completed / total, None
        now = time.monotonic()
        # Starting workers takes seconds that say nothing about their pace. A resumed run then has
        # the step where it was interrupted.
        working = [id for id in reports if states[id] == "running"]
        if self.first is None and any(reports[id].phase != "starting" for id in working):
            self.first = now, completed
        if self.first is not None:
            seconds, made = now - self.first[0], completed - self.first[1]
            if seconds >= PACE_SECONDS and made > PACE_SHARE * total / len(work):
                return completed / total, (total - completed) * seconds / made
        return completed / total, None


def _by_run(
    study: Study, rows: tuple[RowProgress, ...]
) -> tuple[dict[str, State], dict[str, Progress]]:
    """State and last report of each run."""
    states: dict[str, State] = {}
    reports: dict[str, Progress] = {}
    for row in rows:
        for run in study.runs_of(row.row):
            states[run.id] = state_of_all((states.get(run.id, "done"), row.states[run.seed]))
            if run.seed in row.reports:
                reports[run.id] = row.reports[run.seed]
    return states, reports


def _memory(states: dict[str, State], reports: dict[str, Progress]) -> dict[str, tuple[int, int]]:
    """Memory by device: the sum over workers on a CPU; on a GPU, where each worker sees the whole,
    the maximum.
    """
    memory: dict[str, tuple[int, int]] = {}
    for id, report in reports.items():
        if states[id] == "running" and report.memory is not None:
            held, before = report.memory.held, memory.get(report.device, (0, 0))[0]
            together = max(before, held)
            if report.device == "cpu":
                together = before + held
            memory[report.device] = together, report.memory.total
    return dict(sorted(memory.items()))


def run_labels(study: Study) -> dict[str, str]:
    """A name for each run: the label of its first row, and its seed if there are several."""
    labels: dict[str, str] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            label = row.label
            if len(study.seeds) > 1:
                label += f" seed {run.seed}"
            labels.setdefault(run.id, label)
    return labels


def summary_line(progress: StudyProgress) -> str:
    """The study in one line: `tiny: 3 of 10 runs, 1 failed, about 2 min left`."""
    return f"{progress.study.name}: {counts_text(progress)}"


def counts_text(progress: StudyProgress, is_own: bool = False) -> str:
    """`3 of 10 runs, 1 failed, about 2 min left`. `is_own`: this process runs the study."""
    counts = progress.counts
    phrases = [f"{progress.ended} of {plural(len(progress.states), 'run')}"]
    for state in STATES:
        if state not in ("done", "pending") and counts[state]:
            phrases.append(f"{counts[state]} {state}")
    if progress.seconds_left is not None:
        phrases.append(f"about {duration(progress.seconds_left)} left")
    elif progress.ended < len(progress.states) and not counts["running"] and not is_own:
        waiting = "no process is running this study"
        if progress.starting:
            waiting = f"{plural(progress.starting, 'pilot')} in the queue or starting"
        phrases.append(waiting)
    return ", ".join(phrases)


def saved_line(study: Study, results: Results) -> str:
    """The runs that are done, and the step from which each unfinished one resumes; runs of
    others go on.
    """
    labels, steps = run_labels(study), []
    done = 0
    for run in study.runs():
        state = run_state(run, results)
        done += state in ENDED
        if state not in (*ENDED, "running") and (step := saved_step(results.run(run.id))):
            steps.append(f"{labels[run.id]} at step {step}")
    text = f"{done} of {plural(len(labels), 'run')} done"
    return f"{text}; saved: {first_few(steps)}" if steps else text


def saved_step(folder: RunFolder) -> int | None:
    """The step of the last valid checkpoint, from which a run resumes; None if there is none."""
    saved = if_readable(lambda: checkpoints.valid(folder.checkpoints))
    return saved[-1].step if saved else None
