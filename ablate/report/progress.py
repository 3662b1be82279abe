"""The progress of a study, row by row, read from its files, so that any process may watch it."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.text import Text

from ablate.config.metrics import Metric
from ablate.errors import StoreError
from ablate.formatting import duration, middle_ellipsis, number, plural, size, thousands
from ablate.report.plan import Plan, PlanRow, measured_rates, plan_of, precision_here
from ablate.report.run_text import PHASES
from ablate.report.scores import Scores
from ablate.report.terminal import STYLES
from ablate.store import Results, RunFolder, State, checkpoints, state_of
from ablate.store.records import Progress, Result, Score, evaluation_at, parse_metrics
from ablate.store.status import NO_DECODING, STATES, read_progress
from ablate.study import Row, Study

ENDED: tuple[State, ...] = ("done", "diverged", "failed")
# The pace of the running jobs is used once they were watched for so long, and have made such a share of a run.
# Before that, the time left is estimated from this machine's past rates.
PACE_SECONDS = 10.0
PACE_SHARE = 0.02
MOST_NAMED = 4  # runs that are named one by one after an interruption


@dataclass(frozen=True)
class PerplexityDifference:
    """A row's dev perplexity less base's, paired by seed. `step`: the last one both have evaluated; None at the end."""

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
        if seed in self.diverged:
            return self.diverged[seed]
        return self.reports[seed].step if seed in self.reports else None


@dataclass(frozen=True)
class StudyProgress:
    """The progress of a study at one moment.

    states: of each run.
    share: of the FLOPs that are done.
    seconds_left: None if nothing runs, or the pace is not known yet.
    memory: by device: bytes held by workers, and bytes in total.
    """

    study: Study
    rows: tuple[RowProgress, ...]
    states: dict[str, State]
    share: float
    seconds_left: float | None
    memory: dict[str, tuple[int, int]]

    @property
    def main(self) -> Metric:
        """The metric of the verdicts."""
        return self.study.task.metrics[self.study.metrics[0]]

    @property
    def ended(self) -> int:
        """Number of runs that need nothing more."""
        return sum(state in ENDED for state in self.states.values())

    @property
    def counts(self) -> Counter[State]:
        """Number of runs in each state."""
        return Counter(self.states.values())


@dataclass
class _Evaluations:
    """Dev perplexities of a run by step; each update reads only the new lines."""

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
        # A worker may be writing the last line; it is read by the next update.
        whole = content[: content.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in parse_metrics(whole):
            if line.dev_perplexity is not None:
                self.by_step[line.step] = line.dev_perplexity
        return self.by_step


class ProgressReader:
    """Reads the progress of a study repeatedly; finished runs are read once."""

    def __init__(self, study: Study, results: Results) -> None:
        self.study, self.results = study, results
        self.plan: Plan = plan_of(study, results)
        self.rates = measured_rates(results, list(self.plan.runs))
        self.finished: dict[tuple[str, str], tuple[State, Result | None]] = {}  # (run, decoding) -> state, result
        self.evaluations: dict[str, _Evaluations] = {}
        self.first: tuple[float, float] | None = None  # when work was first seen, and the share done by then

    def read(self) -> StudyProgress:
        """Read the progress of the study now.

        Raises:
            StoreError: a result is damaged.
        """
        if self.plan.lengths is None:  # the corpus may be prepared by now
            self.plan = plan_of(self.study, self.results)
        found = [self._row(row) for row in self.study.rows]
        bases = {row.row.label: row for row in found if row.row.is_base}
        rows = tuple(
            row if row.row.is_base else replace(row, against_base=self._against(row, bases[row.row.base]))
            for row in found
        )
        states, reports = _by_run(self.study, rows)
        share, left = self._estimate(states, reports)
        return StudyProgress(self.study, rows, states, share, left, _memory(states, reports))

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
                report = read_progress(self.results.run(run.id))
                if report is not None:
                    reports[run.seed] = report
        return RowProgress(row, states, Scores(ppl), Scores(main), reports, diverged)

    def _scores(self, id: str, row: Row, result: Result) -> Mapping[str, Score]:
        """The scores of a finished run; of a tuning run, the dev perplexity at its last evaluation."""
        if row.is_decoded:
            return result.decodings[row.decoding].scores
        perplexity = evaluation_at(self.results.run(id).metrics, result.chosen_step)
        return {"ppl": Score(value=math.nan if perplexity is None else perplexity)}

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
        """The difference of final perplexities; before the end, at the last step that all begun runs have evaluated."""
        # Once a seed has ended, final values are compared; before, those at a common step.
        final = row.ppl.minus(base.ppl).mean
        if final is not None or row.ppl.n:
            return None if final is None else PerplexityDifference(final, None)
        ours = {run.seed: run.id for run in self.study.runs_of(row.row)}
        theirs = {run.seed: run.id for run in self.study.runs_of(base.row)}
        # A row that shares base's training, because only decoding differs, has no difference to show.
        begun = [seed for seed in (*row.reports, *row.diverged) if ours[seed] != theirs[seed]]
        pairs = [(self._evaluated(ours[seed]), self._evaluated(theirs[seed])) for seed in begun]
        pairs = [(one, other) for one, other in pairs if one and other]
        common = set.intersection(*(one.keys() & other.keys() for one, other in pairs)) if pairs else set()
        if not common:
            return None
        step = max(common)
        return PerplexityDifference(statistics.fmean(one[step] - other[step] for one, other in pairs), step)

    def _evaluated(self, id: str) -> dict[int, float]:
        return self.evaluations.setdefault(id, _Evaluations()).update(self.results.run(id))

    def _estimate(self, states: dict[str, State], reports: dict[str, Progress]) -> tuple[float, float | None]:
        """(Share of the work that is done, seconds until the end)."""
        rows = {id: row for id, (row, _) in self.plan.runs.items() if id in states}
        # Without a last step a run has no total of FLOPs, and every run then counts the same.
        known = all(row.flops is not None for row in rows.values())
        work = {id: (row.flops or 1.0) if known else 1.0 for id, row in rows.items()}
        done = {id: work[id] * self._completed_share(id, rows[id], states[id], reports.get(id)) for id in work}
        left = {id: work[id] - done[id] for id in work}
        total, completed = sum(work.values()), sum(done.values())
        devices = {report.device for id, report in reports.items() if states[id] == "running"}
        if "running" not in states.values():
            self.first = None
            return completed / total, None
        now, first = time.monotonic(), self.first
        if first is None and any(states[id] == "running" and report.step for id, report in reports.items()):
            self.first = first = (now, completed)  # starting workers takes seconds that say nothing about their pace
        if first and now - first[0] >= PACE_SECONDS and completed - first[1] > PACE_SHARE * total / len(work):
            return completed / total, sum(left.values()) * (now - first[0]) / (completed - first[1])
        precisions = {id: precision_here(row.row.config) for id, row in rows.items()}
        if not known or any(left[id] and precisions[id] not in self.rates for id in left):
            return completed / total, None
        # The rate of a CPU counts all its cores, the rate of a GPU only itself.
        at_once = sum(str(device).startswith("cuda") for device in devices) or 1
        return completed / total, sum(left[id] / self.rates[precisions[id]] for id in left if left[id]) / at_once

    def _completed_share(self, id: str, row: PlanRow, state: State, report: Progress | None) -> float:
        """The completed share of a run, 0 to 1; 1 also for a failed or diverged run, which needs no more work."""
        if state in ENDED or self.results.run(id).result.exists():
            return 1.0
        step, steps = report.step if report else None, row.steps
        return min(1.0, step / steps) if step and steps else 0.0


def _by_run(study: Study, rows: tuple[RowProgress, ...]) -> tuple[dict[str, State], dict[str, Progress]]:
    """State and last report of each run. A run of several rows is done if it is done for all of them."""
    states: dict[str, State] = {}
    reports: dict[str, Progress] = {}
    for row in rows:
        for run in study.runs_of(row.row):
            if states.get(run.id, "done") == "done":
                states[run.id] = row.states[run.seed]
            if run.seed in row.reports:
                reports[run.id] = row.reports[run.seed]
    return states, reports


def _memory(states: dict[str, State], reports: dict[str, Progress]) -> dict[str, tuple[int, int]]:
    """Memory by device: the sum over workers on a CPU; on a GPU, where each worker sees the whole, the maximum."""
    memory: dict[str, tuple[int, int]] = {}
    for id, report in reports.items():
        if states[id] == "running" and report.memory is not None:
            held, before = report.memory.held, memory.get(report.device, (0, 0))[0]
            memory[report.device] = (
                (before + held if report.device == "cpu" else max(before, held)),
                report.memory.total,
            )
    return dict(sorted(memory.items()))


def run_labels(study: Study) -> dict[str, str]:
    """A name for each run: the label of its first row, and its seed if there are several."""
    labels: dict[str, str] = {}
    for row in study.rows:
        for run in study.runs_of(row):
            labels.setdefault(run.id, f"{row.label} seed {run.seed}" if len(study.seeds) > 1 else row.label)
    return labels


# The live table

GAP = "  "
LEAST_LABEL = 12  # minimum width of row labels
ENOUGH_LABEL = 28  # labels are this wide before other columns get their longer forms
ROOM_FOR_LEGEND = 6  # rows; with fewer, the legend's line is used for a row
LEGEND = '~ still training; "vs base": difference in PPL, @ last step that both evaluated'
# Wen et al., "Fantastic Pretraining Optimizers and Where to Find Them" (2025), arXiv 2509.02046.
DECAY_WARNING = "@ rankings at a common step can still flip while the learning rate decays"
# State shown for a row with runs in several states; the first match wins.
_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "interrupted", "pending", "done")
_WORDS = {"pending": "waiting"}


def lines(progress: StudyProgress, width: int, height: int) -> list[Text]:
    """Draw progress in at most `height` lines of at most `width` columns; of a tall table its active part."""
    head = [_title(progress, width), _bar(progress, width)]
    room = height - len(head) - 1  # under the columns' heads
    if room < 2:
        return head[:height]
    notes = [LEGEND] if room > ROOM_FOR_LEGEND else []
    if room > ROOM_FOR_LEGEND + 1 and any(row.against_base and row.against_base.step for row in progress.rows):
        notes.append(DECAY_WARNING)
    legend = [_cut(Text(note, style="dim"), width) for note in notes]
    rows, left_out = _visible(progress.rows, room - len(legend))
    return [*head, *_table(progress.study, rows, width), *(_cut(line, width) for line in left_out), *legend]


def _title(progress: StudyProgress, width: int) -> Text:
    """`tiny: 3 of 10 runs, 1 failed, about 2 min left`, in at most `width` columns."""
    text = _counts(progress)
    name = _cut(Text(progress.study.name), max(LEAST_LABEL, width - len(text) - 2))
    return _cut(Text.assemble(name, ": ", text, style="bold"), width)


def summary_line(progress: StudyProgress) -> str:
    """The study in one line: `tiny: 3 of 10 runs, 1 failed, about 2 min left`."""
    return f"{progress.study.name}: {_counts(progress)}"


def _counts(progress: StudyProgress) -> str:
    counts = progress.counts
    parts = [f"{progress.ended} of {plural(len(progress.states), 'run')}"]
    parts += [f"{counts[state]} {state}" for state in STATES if state not in ("done", "pending") and counts[state]]
    if progress.seconds_left is not None:
        parts.append(f"about {duration(progress.seconds_left)} left")
    elif progress.ended < len(progress.states) and not counts["running"]:
        parts.append("no process is running this study")
    return ", ".join(parts)


def saved_line(study: Study, results: Results) -> str:
    """The runs that are done, and the step from which each unfinished one resumes."""
    labels, states = (
        run_labels(study),
        {run.id: _state_in_all_decodings(study, results, run.id) for run in study.runs()},
    )
    saved = {id: _last_checkpoint(results.run(id)) for id, state in states.items() if state not in ENDED}
    steps = [f"{labels[id]} at step {step}" for id, step in saved.items() if step]
    text = f"{sum(state in ENDED for state in states.values())} of {plural(len(states), 'run')} done"
    if not steps:
        return text
    more = [f"{len(steps) - MOST_NAMED} more"] if len(steps) > MOST_NAMED else []
    return f"{text}; saved: {', '.join([*steps[:MOST_NAMED], *more])}"


def _state_in_all_decodings(study: Study, results: Results, id: str) -> State:
    """The state of a run; it is done if every decoding is."""
    states = [state_of(results.run(id), decoding) for decoding in study.decodings[id] or (NO_DECODING,)]
    return next((state for state in states if state != "done"), "done")


def _last_checkpoint(folder: RunFolder) -> int | None:
    """The step of the last valid checkpoint; None if there is none."""
    try:
        found = checkpoints.valid(folder.checkpoints)
    except StoreError:
        return None
    return found[-1].step if found else None


def _bar(progress: StudyProgress, width: int) -> Text:
    """`━━━━━━━━━━━━───────── 38 %  memory 0.8 GB of 25 GB`."""
    percent = int(100 * progress.share)  # rounded down: 100 only at the end
    text = f" {percent:3d} %"
    for device, (held, total) in progress.memory.items():
        name = "memory" if device == "cpu" else device
        longer = f"{text}{GAP}{name} {size(held)} of {size(total)}"
        text = longer if len(longer) <= width // 2 else text
    room = max(0, min(60, width - len(text)))
    full = int(room * progress.share)
    return _cut(Text.assemble(("━" * full, "green"), ("─" * (room - full), "dim"), text), width)


def _visible(rows: Sequence[RowProgress], room: int) -> tuple[list[RowProgress], list[Text]]:
    """The rows that fit, in their order, and a line that counts the others.

    Base comes first, then running rows, then failed and diverged ones, then those nearest to the first running row.
    """
    if len(rows) <= room:
        return list(rows), []
    room -= 1  # for the line that counts the others
    running = [i for i, row in enumerate(rows) if _state(row) == "running"]
    middle = running[0] if running else next((i for i, row in enumerate(rows) if _state(row) != "done"), 0)
    urgent: dict[State, int] = {"running": 0, "failed": 1, "diverged": 1}
    order = sorted(range(1, len(rows)), key=lambda i: (urgent.get(_state(rows[i]), 2), abs(i - middle), i))
    kept = sorted([0, *order[: room - 1]])
    others = [_state(row) for i, row in enumerate(rows) if i not in kept]
    counts = [f"{others.count(state)} {_WORDS.get(state, state)}" for state in STATES if state in others]
    return [rows[i] for i in kept], [Text(f"and {len(others)} more: {', '.join(counts)}", style="dim")]


def _state(row: RowProgress) -> State:
    return next(state for state in _FIRST if state in row.states.values())


@dataclass(frozen=True)
class _Column:
    """A column of fixed width, so that columns do not move while numbers change."""

    head: str
    width: int
    cell: Callable[[RowProgress], Text]
    right: bool = True


def _table(study: Study, rows: Sequence[RowProgress], width: int) -> list[Text]:
    """Heads and rows, in the widest form that leaves enough room for labels."""
    wanted = min(ENOUGH_LABEL, max(len(row.label) for row in study.rows))
    forms = [_columns(study, spread, long) for spread, long in ((True, True), (True, False), (False, False))]
    columns = next((form for form in forms if width - _width(form) >= wanted), forms[-1])
    room = max(LEAST_LABEL, width - _width(columns))
    label = min(room, max(len(row.label) for row in study.rows))
    columns = [_Column("row", label, lambda row: Text(_label(row.row, label)), right=False), *columns]
    head = GAP.join(_fit(Text(c.head), c.width, c.right).plain for c in columns)
    body = [Text(GAP).join(_fit(c.cell(row), c.width, c.right) for c in columns) for row in rows]
    return [_cut(line, width) for line in (Text(head, style="dim underline"), *body)]


def _label(row: Row, width: int) -> str:
    """The row's label; if it does not fit, its group and values, which tell rows apart: `D 0.3 none`."""
    if len(row.label) <= width or row.is_labeled:
        return middle_ellipsis(row.label, width)
    parts = row.label.removeprefix(row.group).split(" ")
    short = " ".join([row.group, *(part.partition("=")[2] for part in parts if "=" in part)])
    return middle_ellipsis(short, width)


def _columns(study: Study, spread: bool, long: bool) -> list[_Column]:
    seeds, steps = len(study.seeds), len(str(max(row.config.train_steps or 0 for row in study.rows))) or 1
    spread, main = spread and seeds > 1, study.task.metrics[study.metrics[0]]
    least = len("interrupted at ") + steps
    counted = [_Column("seeds", 5, lambda row: Text(f"{row.ppl.n}/{seeds}"))] if seeds > 1 else []
    return [
        *counted,
        _Column("PPL", 12 if spread else 6, lambda row: _ppl(row, spread)),
        _Column("vs base", 6 + 2 + steps, _against, right=False),
        _Column(main.title, 10 if spread else 5, lambda row: _final(row.main.mean, row.main.std, main.digits, spread)),
        _Column(
            "", 30 + 2 * steps if long else max(10 + 2 * steps, least), lambda row: _activity(row, long), right=False
        ),
    ]


def _width(columns: Sequence[_Column]) -> int:
    return sum(len(GAP) + column.width for column in columns)


def _ppl(row: RowProgress, spread: bool) -> Text:
    """Perplexity of finished runs; while no run is finished, the mean of the last evaluations."""
    if row.ppl.n:
        return _final(row.ppl.mean, row.ppl.std, 2, spread)
    values = [report.perplexity for report in row.reports.values() if report.perplexity is not None]
    return Text(f"~{_short(sum(values) / len(values), 2)}" if values else "", style="italic")


def _final(mean: float | None, std: float | None, digits: int, spread: bool) -> Text:
    text = "" if mean is None else _short(mean, digits)
    return Text(f"{text} ±{_short(std, digits)}" if spread and std is not None else text)


def _short(value: float, digits: int) -> str:
    """A number in at most five characters, if it is below 100000."""
    return number(value, digits if abs(value) < 99.995 else 0 if abs(value) >= 999.5 else 1)


def _against(row: RowProgress) -> Text:
    if row.against_base is None:
        return Text()
    difference, step = row.against_base.difference, row.against_base.step
    text = f"{'+' if difference >= 0 else '-'}{_short(abs(difference), 2)}"
    return Text(f"{text:>6}") if step is None else Text(f"{text:>6} @{thousands(step)}", style="italic")


def _activity(row: RowProgress, long: bool) -> Text:
    """The activity of running rows, or the state of others."""
    state = _state(row)
    if state == "running":
        return Text(_work(row.running, long), style=STYLES[state])
    step = next((row.step_of(seed) for seed in row.states if row.states[seed] == state), None)
    where = f" at {thousands(step)}" if step and state in ("interrupted", "diverged") else ""
    return Text(_WORDS.get(state, state) + where, style=STYLES.get(state, "dim"))


def _work(reports: Sequence[Progress], long: bool) -> str:
    """`step 240 of 450, 7,300 tokens/s`, or `240/450 7.3K/s`; the step of the slowest run."""
    behind = min(reports, key=lambda report: report.step or 0)
    phase, step, steps = behind.phase, behind.step, behind.steps
    speed = sum(report.tokens_per_second or 0.0 for report in reports)
    several = f" x{len(reports)}" if len(reports) > 1 else ""
    if phase != "training" or not step:
        at = f" at step {step}" if phase == "evaluating" else ""
        return f"{PHASES.get(phase, phase)}{at}{several}" if long else f"{phase}{several}"
    if long:
        return f"step {step} of {steps or '?'}" + (f", {speed:,.0f} tokens/s" if speed else "") + several
    return f"{step}/{steps or '?'}" + (f" {_per_second(speed)}" if speed else "") + several


def _per_second(speed: float) -> str:
    return f"{speed:.0f}/s" if speed < 999.5 else f"{speed / 1e3:.{0 if speed >= 9950 else 1}f}K/s"


def _fit(text: Text, width: int, right: bool) -> Text:
    """Pad or cut a text to a width."""
    text = _cut(text, width)
    text.align("right" if right else "left", width)
    return text


def _cut(text: Text, width: int) -> Text:
    text = text.copy()
    text.rstrip()
    text.truncate(width, overflow="ellipsis")
    return text
