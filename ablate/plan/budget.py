"""The part of a study that fits into a given time: fewer seeds first, then fewer rows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ablate.analysis.results import run_state
from ablate.analysis.trials import trials_of
from ablate.errors import UsageError
from ablate.formatting import duration, plural, seconds_of
from ablate.plan.plan import Plan, plan_of
from ablate.store import Results
from ablate.study import Runs

_GPU_HOURS = re.compile(r"(\d+(?:\.\d+)?)\s*gpu-?hours?", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """A time limit: seconds of this machine, or (`is_gpu_time`) of GPUs that share them."""

    text: str
    seconds: float
    is_gpu_time: bool = False

    @staticmethod
    def parse(text: str) -> Budget:
        """Parse `2h`, `90min`, `1d 12h` or `8 gpu-hours`.

        Raises:
            UsageError: another text, or no time at all.
        """
        hours = _GPU_HOURS.fullmatch(text.strip())
        seconds = seconds_of(text)
        if hours:
            seconds = 3600.0 * float(hours[1])
        if seconds is None:
            raise UsageError(
                f'--budget: "{text[:60]}" is not a time such as 2h, 90min, 1d12h or 8gpu-hours'
            )
        # Infinite: a number of 400 digits does not fit a float.
        if not 0 < seconds < float("inf"):
            raise UsageError(f'--budget: "{text[:60]}" is zero or infinite')
        return Budget(text, seconds, is_gpu_time=hours is not None)

    def available(self, gpus: int) -> float:
        """Seconds of work, as a plan counts them: of the whole CPU, or of one GPU.

        Raises:
            UsageError: the budget is GPU time and the machine has no GPU.
        """
        if self.is_gpu_time and not gpus:
            raise UsageError(
                f"--budget {self.text}: this machine has no GPU; give hours, such as 2h"
            )
        if self.is_gpu_time:
            return self.seconds
        return self.seconds * max(1, gpus)

    def time_limit(self, gpus: int) -> float:
        """Seconds until the deadline, if all GPUs work."""
        return self.available(gpus) / max(1, gpus)


@dataclass(frozen=True)
class Fit:
    """The part of a study that fits.

    planned: the runs of the whole study.
    runs: the runs of the rows and seeds that fit.
    seconds: estimated time for the missing runs that fit.
    runs_left: number of missing runs that do not fit.
    """

    planned: Runs
    runs: Runs
    seconds: float
    runs_left: int

    @property
    def seeds_left(self) -> tuple[int, ...]:
        """Seeds that do not fit."""
        return self.planned.seeds.rows[len(self.runs.seeds.rows) :]

    @property
    def rows_left(self) -> tuple[str, ...]:
        """Labels of the rows that do not fit."""
        return tuple(label for label in self.planned.by_label if label not in self.runs.by_label)

    @property
    def base_waits(self) -> bool:
        """Whether base's further seeds do not fit."""
        return self.runs.seeds.further != self.planned.seeds.further

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        rows = [row.label for row in self.runs.rows]
        return {"rows": rows, "seeds": list(self.runs.seeds.rows), "seconds": self.seconds}

    def summary(self, budget: Budget) -> str:
        """One line for the terminal."""
        time, what = f"about {duration(self.seconds)}", f"--budget {budget.text}:"
        if not self.seeds_left and not self.rows_left and not self.base_waits:
            return f"{what} the whole study fits, {time}."
        if not self.seconds:
            remain = "run remains" if self.runs_left == 1 else "runs remain"
            return f"{what} nothing new fits; {self.runs_left} {remain}."
        seeds, fits = len(self.runs.seeds.rows), "fit"
        if seeds == 1:
            fits = "fits"
        what += f" {seeds} of {plural(len(self.planned.seeds.rows), 'seed')} {fits}"
        if not self.rows_left:
            waits = ", the further seeds of base later" * self.base_waits
            return f"{what} for every row{waits}, {time}."
        rows = len(self.runs.rows)
        return (
            f"{what}, for {rows} of {rows + len(self.rows_left)} rows, {time}; rows for later: "
            f"{', '.join(self.rows_left)}."
        )


def fit(plan: Plan, available: float) -> Fit | None:
    """Select the runs of a plan that fit into a time.

    As many seeds as fit for every row; if not even one seed fits, as many rows with one seed as
    fit, in their order.

    Args:
        plan: of all runs that may be executed.
        available: seconds of work, from `Budget.available`.

    Returns:
        The part, or None if the plan has no estimate of time.

    Raises:
        UsageError: base with one seed does not fit.
    """
    seconds = plan.seconds_of
    if seconds is None:
        return None
    return _fit_seeds(plan, seconds, available) or _fit_rows(plan, seconds, available)


def _fit_seeds(plan: Plan, seconds: Mapping[str, float], available: float) -> Fit | None:
    """As many seeds as fit for every row; None if not even one does. `seconds`: estimate for each
    unfinished run.
    """
    planned, seeds = plan.planned, plan.planned.seeds
    # Whole seeds, because the rows' differences from base are paired by seed; in a study with
    # looks, as many as one of them has.
    parts = []
    for count in seeds.looks or range(1, len(seeds.rows) + 1):
        if count <= len(seeds.rows):
            parts.append(planned.with_seeds(seeds.first(count)))
    if seeds.further:
        parts.append(planned)
    for part in reversed(parts):
        ids = _ids(part)
        needed = _needed(seconds, ids)
        if needed <= available:
            return Fit(planned, part, needed, _runs_left(seconds, ids))
    return None


def _fit_rows(plan: Plan, seconds: Mapping[str, float], available: float) -> Fit:
    """As many rows with one seed as fit, in their order.

    Raises:
        UsageError: base does not fit.
    """
    planned = plan.planned
    first = planned.with_seeds(planned.seeds.first(1))
    labels: set[str] = set()
    counted: set[str] = set()
    spent = 0.0
    for row in first.rows:
        # A run that several rows share counts once.
        ids = _ids(first.with_rows([row.label])) - counted
        needed = _needed(seconds, ids)
        if row is first.base and needed > available:
            raise UsageError(f"--budget: base with one seed alone takes about {duration(needed)}")
        # Without its base, which comes first, a row could not be compared. A later row may fit
        # where one has not.
        if spent + needed <= available and (row.is_base or row.base in labels):
            labels.add(row.label)
            counted |= ids
            spent += needed
    return Fit(planned, first.with_rows(labels), spent, _runs_left(seconds, counted))


def _needed(seconds: Mapping[str, float], runs: Iterable[str]) -> float:
    """Seconds for some runs. One without an estimate is done, or lacks only a decoding."""
    return sum(seconds.get(id, 0.0) for id in runs)


def _runs_left(seconds: Mapping[str, float], ids: Collection[str]) -> int:
    """Number of runs that are not trained yet and not among these."""
    return sum(seconds[id] > 0 for id in seconds.keys() - ids)


def _ids(runs: Runs) -> set[str]:
    """Ids of some runs, and of the trials of their rows."""
    trials = trials_of(runs)
    return {*runs.by_id, *(trials.by_id if trials else ())}


def base_alone(runs: Runs) -> Runs:
    """Base with one seed, and the rows that only decode it: trained first to measure an unknown
    machine.
    """
    first = runs.with_seeds(runs.seeds.first(1))
    (base,) = first.of(first.base)
    alone = {row.label for row in first.rows if first.of(row)[0].id == base.id}
    return first.with_rows(alone)


def unknown_rows(plan: Plan) -> list[str]:
    """Rows whose time cannot be estimated from base: without a last step, or in another
    precision.
    """
    base, unknown = plan.precision(plan.planned.base.config), []
    for row in plan.rows:
        if row.flops is None or plan.precision(row.row.config) != base:
            unknown.append(row.row.label)
    return unknown


class WithinBudget:
    """Limit of `--budget`: the part of a study that fits, chosen once, and a deadline after which
    no run begins, because runs may take longer than estimated.

    On a machine whose speed is unknown, base comes first and measures it; its time counts.
    """

    def __init__(self, budget: Budget, gpus: int, log: Callable[[str], None]) -> None:
        self.budget, self.gpus, self.log = budget, gpus, log
        self.start: float | None = None  # when the first run could begin
        self.fitting: Fit | None = None

    def has_time(self) -> bool:
        """Whether a run may still begin. The first call starts the clock."""
        if self.start is None:
            self.start = time.monotonic()
        return not self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        if self.start is None:
            return False
        return time.monotonic() - self.start >= self.budget.time_limit(self.gpus)

    @property
    def is_open(self) -> bool:
        """Whether base is trained first, and the rest is chosen then."""
        return self.fitting is None

    def within(self, runs: Runs, results: Results) -> Runs:
        """The runs that fit; base alone while the speed is unknown.

        Raises:
            UsageError: base alone does not fit, or the time of some rows cannot be estimated.
        """
        if self.fitting is None:
            self.fitting = self._fit(plan_of(runs, results), results)
        return base_alone(runs) if self.fitting is None else runs.common(self.fitting.runs)

    def _fit(self, plan: Plan, results: Results) -> Fit | None:
        """The part that fits; None while base is to be trained first."""
        name, budget = self.budget.text, self.budget
        if self.start is not None:
            spent = time.monotonic() - self.start
            budget = replace(budget, seconds=max(0.0, budget.seconds - spent))
        fitting = fit(plan, budget.available(self.gpus))
        if fitting is not None:
            self.log(fitting.summary(self.budget))
        elif all(run_state(run, results) == "done" for run in base_alone(plan.planned)):
            raise UsageError(
                f"--budget {name}: cannot estimate rows without a last step, or in another "
                f"precision: {', '.join(unknown_rows(plan))}"
            )
        elif self.start is None:
            self.log(
                f"--budget {name}: no run has finished on this machine yet; base is trained first."
            )
        return fitting
