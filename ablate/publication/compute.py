"""What a study has cost: trainings, tuning, failures, hours and FLOPs, by its records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from ablate.analysis.experiment import machine_text
from ablate.analysis.outcome import Outcome
from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.store import Results, none_if_unreadable
from ablate.store.layout import RunFolder
from ablate.store.records import Provenance


@dataclass
class Compute:
    """The cost of the runs of a study.

    trainings: number of runs with a result.
    tuning: number of these runs that only choose settings.
    diverged, failed: numbers of diverged and of failed runs.
    untimed: number of failed runs without a record of their time.
    hours: hours times number of devices, by kind of device.
    machines: devices and processors that trained the runs.
    versions: versions of ablate and of PyTorch that trained the runs, by name; empty sets if no
        record has them.
    precisions: precisions of the trainings.
    flops: FLOPs of the finished trainings of the table, in closed form.
    """

    trainings: int = 0
    tuning: int = 0
    diverged: int = 0
    failed: int = 0
    untimed: int = 0
    hours: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    machines: set[str] = field(default_factory=set)
    versions: dict[str, set[str]] = field(
        default_factory=lambda: {"ablate": set(), "PyTorch": set()}
    )
    precisions: set[str] = field(default_factory=set)
    flops: float = 0.0

    def add(self, folder: RunFolder, is_tuning: bool) -> None:
        """Count a run, by its files."""
        result = none_if_unreadable(folder.read_result)
        progress = none_if_unreadable(folder.read_progress)
        made = none_if_unreadable(folder.read_provenance)
        if result is not None:
            self.trainings += 1
            self.tuning += is_tuning
            self.diverged += result.outcome == "diverged"
            self._add_time(result.seconds, made)
        elif none_if_unreadable(folder.read_failure) is not None:
            self.failed += 1
            self.untimed += progress is None
            self._add_time(progress.seconds if progress else 0.0, made)

    def _add_time(self, seconds: float, made: Provenance | None) -> None:
        if made is None:
            return
        kind = "CPU core" if made.device == "cpu" else "GPU"  # a GPU's device is its name
        devices = made.processes if kind == "GPU" else made.threads * made.processes
        self.hours[kind] += seconds * devices / 3600
        self.machines.add(machine_text(made))
        for part in made.all_parts:
            if part.ablate is not None:
                self.versions["ablate"].add(part.ablate.version)
            if version := part.packages.get("torch"):
                self.versions["PyTorch"].add(version)
            if part.precision is not None:
                self.precisions.add(part.precision)


def compute_of(outcome: Outcome, results: Results) -> Compute:
    """The cost of every run of a study, tuning runs and failed runs included."""
    rows = outcome.planned.by_id
    cost = Compute(flops=_flops(outcome))
    for run in with_tuning_runs(outcome.planned):
        cost.add(results.run(run.id), is_tuning=run.id not in rows)
    return cost


def _flops(outcome: Outcome) -> float:
    """FLOPs of the finished trainings behind a table; a training that rows share counts once."""
    flops: dict[str, float] = {}
    for row in outcome.table.rows:
        for run in row.runs:
            if run.state == "done" and row.recipe.cost.flops is not None:
                flops[run.id] = row.recipe.cost.flops
    return sum(flops.values())
