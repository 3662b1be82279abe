"""The part of a study that fits into a given time: fewer seeds first, then fewer rows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ablate.analysis.results import run_state
from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.errors import Fault, not_allowed, wrong_option
from ablate.formatting import duration, plural, seconds_of
from ablate.plan.plan import Plan, plan_of, precision_on
from ablate.store import Results
from ablate.study import Runs

_GPU_HOURS = re.compile(r"(\d+(?:\.\d+)?)\s*gpu-?hours?", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """A time limit as the user wrote it.

    text: the option's text, for messages.
    seconds: seconds of this machine, or, if `is_gpu_time`, the sum over all GPUs.
    """

    text: str
    seconds: float
    is_gpu_time: bool = False

    @staticmethod
    def parse(text: str) -> Budget:
        """Parse `2h`, `90min`, `1d 12h` or `8 gpu-hours`.

        Raises:
            UsageError: the text is not a time, or the time is 0.
        """
        hours = _GPU_HOURS.fullmatch(text.strip())
        seconds = seconds_of(text)
        if hours:
            seconds = 3600.0 * float(hours[1])
        if seconds is None:
            allowed = "a time such as 2h, 90min, 1d12h or 8gpu-hours"
            raise wrong_option("--budget", not_allowed(f'"{text[:60]}"', allowed))
        # A number of 400 digits is read as infinity.
        if not 0 < seconds < float("inf"):
            allowed = "above 0 and finite"
            raise wrong_option("--budget", not_allowed(f'"{text[:60]}"', allowed))
        return Budget(text, seconds, is_gpu_time=hours is not None)

    def available(self, gpus: int) -> float:
        """Seconds of work in the unit of a plan: seconds of the whole CPU, or of one GPU.

        Raises:
            UsageError: the budget is GPU time and the machine has no GPU.
        """
        if self.is_gpu_time and not gpus:
            fault = Fault("this machine has no GPU", remedy="give hours, such as 2h")
            raise wrong_option(f"--budget {self.text}", fault)
        if self.is_gpu_time:
            return self.seconds
        return self.seconds * max(1, gpus)

    def time_limit(self, gpus: int) -> float:
        """Seconds from the first run to the deadline, if all GPUs are used."""
        return self.available(gpus) / max(1, gpus)


@dataclass(frozen=True)
class Fit:
    """The part of a study that fits into a budget.

    planned: runs of the whole study.
    runs: runs of the rows and seeds that fit.
    seconds: estimated seconds of work for the missing runs that fit.
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
    def leaves_further_seeds(self) -> bool:
        """Whether base's further seeds do not fit."""
        return self.runs.seeds.further != self.planned.seeds.further

    def as_json(self) -> dict[str, Any]:
        """The part that fits, as JSON values."""
        rows = [row.label for row in self.runs.rows]
        return {"rows": rows, "seeds": list(self.runs.seeds.rows), "seconds": self.seconds}

    def summary(self, budget: Budget) -> str:
        """What fits, in one line for the terminal."""
        option = f"--budget {budget.text}:"
        time = f"about {duration(self.seconds)}"
        if not self.seeds_left and not self.rows_left and not self.leaves_further_seeds:
            return f"{option} the whole study fits, {time}."
        if not self.seconds:
            remain = "run remains" if self.runs_left == 1 else "runs remain"
            return f"{option} nothing new fits; {self.runs_left} {remain}."
        seeds = len(self.runs.seeds.rows)
        fits = "fits" if seeds == 1 else "fit"
        seeds_text = f"{seeds} of {plural(len(self.planned.seeds.rows), 'seed')} {fits}"
        if not self.rows_left:
            later = ", the further seeds of base later" if self.leaves_further_seeds else ""
            return f"{option} {seeds_text} for every row{later}, {time}."
        rows = len(self.runs.rows)
        return (
            f"{option} {seeds_text}, for {rows} of {rows + len(self.rows_left)} rows, {time}; rows "
            f"for later: {', '.join(self.rows_left)}."
        )


def fit(plan: Plan, available: float) -> Fit | None:
    """Select the runs of a plan that fit into the available seconds of work (`Budget.available`).

    The part has every row with as many seeds as fit. If not even one seed fits for every row, it
    has as many rows as fit with one seed, in the order of the study.

    Returns:
        The part that fits; None if the plan has no estimate of time.

    Raises:
        UsageError: base with one seed does not fit.
    """
    seconds = plan.seconds_by_run
    if seconds is None:
        return None
    return _fit_seeds(plan, seconds, available) or _fit_rows(plan, seconds, available)


def _fit_seeds(plan: Plan, seconds: Mapping[str, float], available: float) -> Fit | None:
    """Every row with as many seeds as fit; None if not even one seed fits.

    `seconds`: estimated seconds of each unfinished run, by id.
    """
    planned = plan.planned
    seeds = planned.seeds
    # Each seed is for all rows, because their differences from base are paired by seed. A study
    # with looks is judged only at the numbers of seeds of its looks.
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
    """As many rows as fit with one seed, in the order of the study.

    Raises:
        UsageError: base does not fit.
    """
    planned = plan.planned
    first = planned.with_seeds(planned.seeds.first(1))
    labels: set[str] = set()
    counted: set[str] = set()
    spent = 0.0
    for row in first.rows:
        # A run that several rows share counts once, as do the runs that choose the decoding.
        ids = _ids(first.with_rows([first.base.label, row.label])) - counted
        needed = _needed(seconds, ids)
        if row is first.base and needed > available:
            raise wrong_option("--budget", f"base alone takes about {duration(needed)}")
        # A row is of no use without its base, which comes first. If a row does not fit, a later
        # row may still fit.
        if spent + needed <= available and (row.is_base or row.base in labels):
            labels.add(row.label)
            counted |= ids
            spent += needed
    return Fit(planned, first.with_rows(labels), spent, _runs_left(seconds, counted))


def _needed(seconds: Mapping[str, float], runs: Iterable[str]) -> float:
    """Seconds for some runs. Runs without an estimate are done, or lack only a decoding."""
    return sum(seconds.get(id, 0.0) for id in runs)


def _runs_left(seconds: Mapping[str, float], ids: Collection[str]) -> int:
    """Number of runs that are not trained yet and are not in `ids`."""
    return sum(seconds[id] > 0 for id in seconds.keys() - ids)


def _ids(runs: Runs) -> set[str]:
    """Ids of some runs, and of the runs that choose their configurations."""
    return {run.id for run in with_tuning_runs(runs)}


def base_with_one_seed(runs: Runs) -> Runs:
    """Base with one seed, and the rows that only decode its run. On a machine whose speed is
    unknown, this run is trained first and measures it.
    """
    first = runs.with_seeds(runs.seeds.first(1))
    (base,) = first.of(first.base)
    labels = {row.label for row in first.rows if first.of(row)[0].id == base.id}
    return first.with_rows(labels)


def rows_without_estimate(plan: Plan) -> list[str]:
    """Labels of the rows whose time cannot be estimated from base's time, because their number of
    steps is unknown or their precision is another one.
    """
    base_precision = precision_on(plan.device, plan.planned.base.config)
    labels = []
    for row in plan.rows:
        if row.flops is None or precision_on(plan.device, row.config) != base_precision:
            labels.append(row.label)
    return labels


class BudgetLimit:
    """The limit of `--budget`: the part of a study that fits, chosen once, and a deadline after
    which no run begins, because runs may take longer than estimated.

    On a machine whose speed is unknown, one run of base is trained first and measures it. The time
    of this run counts.
    """

    def __init__(self, budget: Budget, gpus: int, log: Callable[[str], None]) -> None:
        self.budget, self.gpus, self.log = budget, gpus, log
        self.start: float | None = None  # when the first run could begin
        self.fitting: Fit | None = None

    def has_time(self) -> bool:
        """Whether a run may still begin. The first call starts the time of the budget."""
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
    def selects_again(self) -> bool:
        """Whether only base is selected so far, to measure the speed of the machine."""
        return self.fitting is None

    def select(self, runs: Runs, results: Results) -> Runs:
        """Select the runs that fit; only a run of base while the speed is unknown.

        Raises:
            UsageError: base does not fit, or the time of some rows cannot be estimated.
        """
        if self.fitting is None:
            self.fitting = self._fit(plan_of(runs, results), results)
        if self.fitting is None:
            return base_with_one_seed(runs)
        return runs.intersection(self.fitting.runs)

    def _fit(self, plan: Plan, results: Results) -> Fit | None:
        """The part that fits; None while a run of base must be trained first."""
        name = self.budget.text
        budget = self.budget
        if self.start is not None:
            spent = time.monotonic() - self.start
            budget = replace(budget, seconds=max(0.0, budget.seconds - spent))
        fitting = fit(plan, budget.available(self.gpus))
        if fitting is not None:
            self.log(fitting.summary(self.budget))
        elif all(run_state(run, results) == "done" for run in base_with_one_seed(plan.planned)):
            raise wrong_option(
                f"--budget {name}",
                "cannot estimate the time of rows with an unknown number of steps, or with another "
                f"precision than base: {', '.join(rows_without_estimate(plan))}",
            )
        elif self.start is None:
            self.log(
                f"--budget {name}: no run has finished on this machine yet; base is trained first."
            )
        return fitting
