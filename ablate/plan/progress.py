"""The progress of a study, row by row. It is read from files, so that any process can follow it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from ablate.analysis.missing import ENDED
from ablate.plan.plan import Plan, lengths_of, plan_of
from ablate.plan.time_left import Pace, Work
from ablate.stats.metrics import PPL, Metric
from ablate.store import Results, RunFiles, RunFolder, State, checkpoints, none_if_unreadable
from ablate.store.jobs import starting_pilots
from ablate.store.metrics_log import MetricsTail, evaluation_at
from ablate.store.records import Progress
from ablate.store.status import state_of_all
from ablate.study import Row, Runs, Study
from ablate.table.scores import Scores

T = TypeVar("T")


@dataclass(frozen=True)
class PerplexityDifference:
    """The mean over seeds of ln(dev perplexity of a row / dev perplexity of base).

    step: last step that row and base have both evaluated; None for the final perplexities.
    """

    log_ratio: float
    step: int | None


@dataclass(frozen=True)
class RowProgress:
    """The progress of a row.

    states: states of the row's runs, by seed.
    ppl: dev perplexities of finished runs.
    main_scores: scores of finished runs in the study's main metric.
    reports: last reports of runs that have begun and not ended, by seed.
    diverged: step at which a run diverged, by seed.
    against_base: difference from base in dev perplexity; None for base, and until it is known.
    """

    row: Row
    states: dict[int, State]
    ppl: Scores
    main_scores: Scores
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

    runs: the runs that are followed.
    rows: progress of each row.
    states: state of each run, by id.
    share: completed share of the FLOPs, 0 to 1.
    seconds_left: seconds until the end; None if the pace of the runs is not known.
    memory: (bytes held by workers, bytes in total) of each device.
    starting: number of pilots that are starting or in the queue of a cluster.
    """

    runs: Runs
    rows: tuple[RowProgress, ...]
    states: dict[str, State]
    share: float
    seconds_left: float | None
    memory: dict[str, tuple[int, int]]
    starting: int = 0

    @property
    def study(self) -> Study:
        """The study with its options, before results."""
        return self.runs.study

    @property
    def main_metric(self) -> Metric:
        """The main metric of the runs, shown beside perplexity."""
        return self.study.task.metrics[self.runs.metrics[0]]

    @property
    def ended(self) -> int:
        """Number of runs that are done, diverged or failed."""
        return sum(state in ENDED for state in self.states.values())

    @property
    def counts(self) -> Counter[State]:
        """Number of runs in each state."""
        return Counter(self.states.values())


class _Evaluations:
    """Dev perplexities of a run by step. Each update reads only the new lines of the log."""

    def __init__(self, log: Path) -> None:
        self.tail = MetricsTail(log)
        self.by_step: dict[int, float] = {}

    def update(self) -> dict[int, float]:
        before, lines = self.tail.new_lines()
        if not before:  # the log is new, or a resumed run has cut it back to a checkpoint
            self.by_step = {}
        for line in lines:
            perplexity = line.dev_perplexity
            if perplexity is not None and perplexity > 0:
                self.by_step[line.step] = perplexity
        return self.by_step


@dataclass(frozen=True)
class _Reading:
    """The progress of a run for one row. Rows that share the run may differ in decoding.

    ppl: final dev perplexity.
    main_score: score in the main metric.
    report: last report of a run that has begun and not ended.
    diverged: step at which the run diverged.
    """

    state: State
    ppl: float | None = None
    main_score: float | None = None
    report: Progress | None = None
    diverged: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether the progress can no longer change."""
        return self.state in ("done", "diverged")


class RunCounts(NamedTuple):
    """The progress of a study in numbers.

    ended: number of runs that are done, diverged or failed.
    runs: number of all runs.
    seconds_left: seconds until the end; None if unknown.
    """

    ended: int
    runs: int
    seconds_left: float | None


class ProgressReader:
    """Follows the progress of a study. A run that has ended is read only once.

    `read` reads all runs that have not ended. `update` reads one run, in a time that does not
    depend on the number of runs, and all runs before the first time; a launcher calls it after each
    run.
    """

    def __init__(self, runs: Runs, results: Results) -> None:
        """Plan the runs, whose FLOPs are the work of the study. No run is read yet."""
        self.runs = runs
        self.results = results
        self.main_metric = runs.study.task.metrics[runs.metrics[0]]
        self.rows_of: dict[str, list[Row]] = {}  # id of a run -> the rows that share it
        for row in runs.rows:
            for run in runs.of(row):
                self.rows_of.setdefault(run.id, []).append(row)
        self.readings: dict[tuple[str, str], _Reading] = {}  # by (id of run, label of row)
        self.states: dict[str, State] = {}
        self.reports: dict[str, Progress] = {}
        # Number of runs in each state, so that `update` does not count all states.
        self.counts: Counter[State] = Counter()
        self.evaluations: dict[str, _Evaluations] = {}
        self.pace = Pace()
        self._set_plan(plan_of(runs, results))

    def _set_plan(self, plan: Plan) -> None:
        self.plan = plan
        self.work = Work({id: plan.runs[id].row.flops for id in self.rows_of})

    def read(self) -> StudyProgress:
        """Read the progress of the study now.

        Raises:
            StoreError: a result is damaged.
        """
        # When the corpora have been prepared, the FLOPs of the runs are known.
        if self.plan.lengths is None and None not in lengths_of(self.runs, self.results).values():
            self._set_plan(plan_of(self.runs, self.results))
        for id in self.rows_of:
            self._read_run(id)
        rows: dict[str, RowProgress] = {}
        for row in self.runs.rows:
            progress = self._row(row)
            # A candidate of a tuning run is compared with the others by its loss, not with base.
            if row.is_decoded and not row.is_base:  # the base of the row comes first
                difference = self._difference(progress, rows[row.base])
                progress = replace(progress, against_base=difference)
            rows[row.label] = progress
        return StudyProgress(
            self.runs,
            tuple(rows.values()),
            dict(self.states),
            share=self.work.completed_share,
            seconds_left=self._seconds_left(),
            memory=_memory(self.states, self.reports),
            starting=starting_pilots(self.results, self.runs.study.name),
        )

    def update(self, id: str) -> RunCounts:
        """Read only one run, and count all runs as they were last read.

        Raises:
            StoreError: the result of the run is damaged.
        """
        if not self.states:
            self.read()
        self._read_run(id)
        ended = sum(self.counts[state] for state in ENDED)
        return RunCounts(ended, len(self.states), self._seconds_left())

    def _read_run(self, id: str) -> None:
        """Read a run for each of its rows, and update what is known about the run."""
        folder = self.results.run(id)
        rows = self.rows_of[id]
        files: RunFiles | None = None
        for row in rows:
            before = self.readings.get((id, row.label))
            if before is None or not before.is_final:
                files = files or RunFiles.read(folder)
                self.readings[id, row.label] = self._reading(files, row)
        readings = [self.readings[id, row.label] for row in rows]
        if id in self.states:
            self.counts[self.states[id]] -= 1
        state = state_of_all(reading.state for reading in readings)
        self.states[id] = state
        self.counts[state] += 1
        self.reports.pop(id, None)
        for reading in readings:
            if reading.report is not None:
                self.reports[id] = reading.report
        if state in ENDED or folder.has_result:
            # A run that lacks only a decoding needs very little more work.
            self.work.complete(id, share=1.0)
        else:
            share = self.plan.runs[id].row.completed_share(self.reports.get(id))
            self.work.complete(id, share)

    def _reading(self, files: RunFiles, row: Row) -> _Reading:
        """The progress of a run for one row, from the files of the run."""
        state = files.state(row.decoding)
        result = files.result
        if state == "done" and result is not None:
            if not row.is_decoded:  # a tuning run, whose main metric is the perplexity
                ppl = evaluation_at(files.folder.metrics, result.chosen_step) or math.nan
                return _Reading(state, ppl, ppl)
            scores = result.decodings[row.decoding].scores
            main = scores.get(self.main_metric.name)
            return _Reading(state, scores[PPL.name].value, main.value if main else None)
        if state == "diverged" and result is not None:
            return _Reading(state, diverged=result.steps)
        if state == "pending":
            return _Reading(state)
        return _Reading(state, report=none_if_unreadable(files.folder.read_progress))

    def _row(self, row: Row) -> RowProgress:
        """The progress of a row, from the readings of its runs."""
        readings = {run.seed: self.readings[run.id, row.label] for run in self.runs.of(row)}

        def by_seed(get: Callable[[_Reading], T | None]) -> dict[int, T]:
            values = {seed: get(reading) for seed, reading in readings.items()}
            return {seed: value for seed, value in values.items() if value is not None}

        return RowProgress(
            row,
            {seed: reading.state for seed, reading in readings.items()},
            ppl=Scores(by_seed(lambda reading: reading.ppl), PPL.is_log),
            main_scores=Scores(
                by_seed(lambda reading: reading.main_score), self.main_metric.is_log
            ),
            reports=by_seed(lambda reading: reading.report),
            diverged=by_seed(lambda reading: reading.diverged),
        )

    def _difference(self, row: RowProgress, base: RowProgress) -> PerplexityDifference | None:
        """The difference of a row from base in dev perplexity: in the final perplexities once a
        seed of both is done; before any run of the row is done, at the last step that all pairs of
        runs have evaluated. None if their vocabularies differ.
        """
        if len({self.runs.data_of(each.row).vocab_size for each in (row, base)}) > 1:
            return None
        final = row.ppl.minus(base.ppl).mean
        if final is not None:
            return PerplexityDifference(final, None)
        if row.ppl.n:
            return None
        base_ids = {run.seed: run.id for run in self.runs.of(base.row)}
        pairs = 0  # number of seeds with which row and base have evaluations
        log_ratios: dict[int, list[float]] = {}  # by step
        for run in self.runs.of(row.row):
            has_begun = run.seed in row.reports or run.seed in row.diverged
            # A row that differs only in decoding shares the runs of base.
            if not has_begun or run.id == base_ids[run.seed]:
                continue
            row_ppl = self._evaluated(run.id)
            base_ppl = self._evaluated(base_ids[run.seed])
            if row_ppl and base_ppl:
                pairs += 1
            for step in row_ppl.keys() & base_ppl.keys():
                log_ratios.setdefault(step, []).append(math.log(row_ppl[step] / base_ppl[step]))
        for step in sorted(log_ratios, reverse=True):
            if len(log_ratios[step]) == pairs:
                return PerplexityDifference(statistics.fmean(log_ratios[step]), step)
        return None

    def _evaluated(self, id: str) -> dict[int, float]:
        """The dev perplexities of a run so far, by step."""
        if id not in self.evaluations:
            self.evaluations[id] = _Evaluations(self.results.run(id).metrics)
        return self.evaluations[id].update()

    def _seconds_left(self) -> float | None:
        """Seconds until the end; None while the pace of the runs is not known."""
        working = [id for id in self.reports if self.states[id] == "running"]
        if not self.counts["running"]:
            self.pace.pause()
        # The time in which workers start does not count. When they have started, resumed runs
        # report the step from which they resume.
        elif any(self.reports[id].phase != "starting" for id in working):
            self.pace.begin(self.work)
        return self.pace.seconds_left(self.work)


def _memory(states: dict[str, State], reports: dict[str, Progress]) -> dict[str, tuple[int, int]]:
    """(bytes held by workers, bytes in total) of each device.

    On a CPU, a report has the memory of one worker, so the reports are added. On a GPU, it has the
    memory of all workers, so the largest report counts.
    """
    memory: dict[str, tuple[int, int]] = {}
    for id, report in reports.items():
        if states[id] == "running" and report.memory is not None:
            held, _ = memory.get(report.device, (0, 0))
            if report.device == "cpu":
                held += report.memory.held
            else:
                held = max(held, report.memory.held)
            memory[report.device] = (held, report.memory.total)
    return dict(sorted(memory.items()))


def saved_step(folder: RunFolder) -> int | None:
    """The step of the last valid checkpoint, from which a run resumes; None if there is none."""
    saved = none_if_unreadable(lambda: checkpoints.valid(folder.checkpoints))
    return saved[-1].step if saved else None
