"""What of a study fits into a given time: fewer seeds first, then fewer rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate.errors import UsageError
from ablate.formatting import duration, plural
from ablate.report.plan import Plan
from ablate.study import Row, Study

_UNITS = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0}
_PART = r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)"
_TIME = re.compile(rf"{_PART}(?:\s*{_PART})*")
_GPU_HOURS = re.compile(r"(\d+(?:\.\d+)?)\s*gpu-?hours?", re.IGNORECASE)


@dataclass(frozen=True)
class Budget:
    """Seconds of this machine, as `text` gives them; or of one GPU, however many share them."""

    text: str
    seconds: float
    of_one_gpu: bool = False

    @staticmethod
    def parse(text: str) -> Budget:
        """From `2h`, `90min`, `1d 12h` or `8 gpu-hours`.

        Raises:
            UsageError: it is none of these, or nothing.
        """
        given = text.strip().lower()
        hours = _GPU_HOURS.fullmatch(given)
        if hours:
            budget = Budget(text, 3600.0 * float(hours[1]), of_one_gpu=True)
        elif _TIME.fullmatch(given):
            budget = Budget(text, sum(float(n) * _UNITS[unit] for n, unit in re.findall(_PART, given)))
        else:
            raise UsageError(f'--budget: "{text[:60]}" is not a time such as 2h, 90min, 1d12h or 8gpu-hours')
        if not 0 < budget.seconds < float("inf"):
            raise UsageError(f'--budget: "{text[:60]}" is no time at all')
        return budget

    def available(self, gpus: int) -> float:
        """Seconds of work, as a plan counts them: of a whole CPU, or of one of its GPUs.

        Raises:
            UsageError: it is of GPUs, and there are none.
        """
        if self.of_one_gpu and not gpus:
            raise UsageError(f"--budget {self.text}: this machine has no GPU; give hours, such as 2h")
        return self.seconds if self.of_one_gpu else self.seconds * max(1, gpus)


@dataclass(frozen=True)
class Fit:
    """What is to be trained now, about how long it takes in seconds, and what is left for another time."""

    study: Study
    seconds: float
    seeds_left: tuple[int, ...] = ()
    rows_left: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        rows = [row.label for row in self.study.rows]
        return {"rows": rows, "seeds": list(self.study.seeds), "seconds": self.seconds}

    def told(self, budget: Budget) -> str:
        """A line for people."""
        time = f"about {duration(self.seconds)}"
        if not self.seeds_left and not self.rows_left:
            return f"--budget {budget.text}: all of it fits, {time}."
        kept, whole = len(self.study.seeds), len(self.study.seeds) + len(self.seeds_left)
        seeds = f"{kept} of {plural(whole, 'seed')} {'fits' if kept == 1 else 'fit'}"
        if not self.rows_left:
            return f"--budget {budget.text}: {seeds} for every row, {time}."
        rows = len(self.study.rows)
        return (
            f"--budget {budget.text}: {seeds}, for {rows} of {rows + len(self.rows_left)} rows, {time}; "
            f"left for another time: {', '.join(self.rows_left)}."
        )


def fit(plan: Plan, available: float) -> Fit | None:
    """As many seeds as fit for every row; where not even one does, as many rows as fit with it, in their order.

    Args:
        plan: of the whole study.
        available: seconds of work, as the plan counts them.

    Returns:
        None where the plan does not know how long its runs take.

    Raises:
        UsageError: base alone does not fit.
    """
    if plan.seconds_of is None:
        return None
    study, seconds = plan.study, plan.seconds_of
    for count in range(len(study.seeds), 0, -1):
        needed = sum(seconds.get(id, 0.0) for id in _runs(study, study.rows, study.seeds[:count]))
        if needed <= available:
            return Fit(replace(study, seeds=study.seeds[:count]), needed, study.seeds[count:])
    kept: list[Row] = []
    counted: set[str] = set()
    spent = 0.0
    for row in study.rows:
        runs = _runs(study, [row], study.seeds[:1]) - counted  # a run that rows share is counted once
        needed = sum(seconds.get(id, 0.0) for id in runs)
        if row is study.base and needed > available:
            raise UsageError(f"--budget: base with one seed alone takes about {duration(needed)}")
        if spent + needed <= available:
            kept.append(row)
            counted |= runs
            spent += needed
    labels = {row.label for row in kept}
    left = tuple(row.label for row in study.rows if row.label not in labels)
    return Fit(replace(study, seeds=study.seeds[:1], rows=tuple(kept)), spent, study.seeds[1:], left)


def base_alone(study: Study) -> Study:
    """What is trained first where nothing is known of a machine: base with one seed, for all rows that decode it."""
    seeds = study.seeds[:1]
    ours = _runs(study, [study.base], seeds)
    rows = tuple(row for row in study.rows if _runs(study, [row], seeds) == ours)
    return replace(study, rows=rows, seeds=seeds)


def _runs(study: Study, rows: Sequence[Row], seeds: Sequence[int]) -> set[str]:
    return {run.id for row in rows for run in study.runs_of(row) if run.seed in seeds}


def unknown_rows(plan: Plan) -> list[str]:
    """Rows whose time cannot be told although base has been trained: they have no end, or another precision."""
    base = plan.study.base.config.precision
    return [row.row.label for row in plan.rows if row.flops is None or row.row.config.precision != base]
