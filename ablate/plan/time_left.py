"""Estimate the time until runs have ended: their work in FLOPs, divided by a rate.

Before a launch, the rate is measured in finished runs (`measured_rates`). During a launch, it is
the pace of the runs in progress (`Pace`), because finished runs may have had another model, or the
machine for themselves.
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ablate.config import cost
from ablate.config.lengths import Lengths
from ablate.errors import StoreError
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.corpora import lengths_in
from ablate.store.machine import machine
from ablate.store.records import Machine

PlannedDevice = Literal["cpu", "cuda"]
# Largest number of finished runs, also of other studies, from which rates are measured. A large
# results root has too many to read all.
RATE_SAMPLES = 50
# A pace is known after this time, if the runs have made this share of a mean run.
PACE_SECONDS = 30.0
PACE_SHARE = 0.02


class Work:
    """The work of runs in FLOPs, and the part that is completed.

    If the FLOPs of a run are unknown, because its number of steps is unknown, the work of every run
    is 1.
    """

    def __init__(self, flops: Mapping[str, float | None]) -> None:
        """Begin with nothing completed. `flops` has the FLOPs of each run, by id."""
        is_known = None not in flops.values()
        self.total_by_run: dict[str, float] = {}
        for id, value in flops.items():
            self.total_by_run[id] = value if is_known and value else 1.0
        self.completed_by_run = dict.fromkeys(flops, 0.0)
        self.total = sum(self.total_by_run.values())
        self.completed = 0.0

    def complete(self, id: str, share: float) -> None:
        """Set the completed share of a run, 0 to 1."""
        completed = share * self.total_by_run[id]
        self.completed += completed - self.completed_by_run[id]
        self.completed_by_run[id] = completed

    @property
    def completed_share(self) -> float:
        """The completed share of all runs, 0 to 1."""
        # Sum again, because the rounding errors of many changes add up in `completed`.
        self.completed = sum(self.completed_by_run.values())
        return self.completed / self.total


class Pace:
    """The rate of the runs in progress, from the moment when the first of them began to work.

    A short time without a run in progress is part of the rate, such as the time between two runs
    of a launcher with one slot. After PACE_SECONDS without a run, the rate is measured anew.
    """

    def __init__(self) -> None:
        self.began: float | None = None  # by time.monotonic(), as `paused`
        self.paused: float | None = None
        self.completed_before = 0.0

    def begin(self, work: Work) -> None:
        """Begin to measure when a run works, or go on after a pause."""
        self._forget_after_long_pause()
        self.paused = None
        if self.began is None:
            self.began = time.monotonic()
            self.completed_before = work.completed

    def pause(self) -> None:
        """Remember since when no run is in progress."""
        if self.paused is None:
            self.paused = time.monotonic()

    def seconds_left(self, work: Work) -> float | None:
        """Seconds until all work is completed; None while the pace is not known."""
        self._forget_after_long_pause()
        if self.began is None:
            return None
        seconds = time.monotonic() - self.began
        completed = work.completed - self.completed_before
        mean_run = work.total / len(work.total_by_run)
        if seconds < PACE_SECONDS or completed <= PACE_SHARE * mean_run:
            return None
        return (work.total - work.completed) * seconds / completed

    def _forget_after_long_pause(self) -> None:
        if self.paused is not None and time.monotonic() - self.paused > PACE_SECONDS:
            self.began = None


@dataclass(frozen=True)
class Rates:
    """The training rates of finished runs.

    samples: (FLOPs per step, FLOPs per second) of each run.
    """

    samples: tuple[tuple[float, float], ...]

    def rate(self, flops_per_step: float) -> float:
        """Estimate the FLOPs per second of a run: the median over the finished runs whose steps
        have the most similar numbers of FLOPs, within a factor of two.

        Small steps have lower rates, because each operation takes a minimal time.
        """
        distances = [abs(math.log2(step / flops_per_step)) for step, _ in self.samples]
        max_distance = min(distances) + 1
        similar = []
        for distance, (_, rate) in zip(distances, self.samples, strict=True):
            if distance <= max_distance:
                similar.append(rate)
        return statistics.median(similar)


def _finished(results: Results, first: Iterable[str]) -> Iterator[RunFolder]:
    """Yield the folders of finished runs, at most RATE_SAMPLES.

    The runs with the ids in `first` come first: runs of the same study are the most similar to the
    missing runs.
    """
    folders = map(results.run, dict.fromkeys([*first, *results.run_ids()]))
    finished = filter(operator.attrgetter("has_result"), folders)
    return itertools.islice(finished, RATE_SAMPLES)


def other_machine(results: Results, first: Iterable[str]) -> Machine:
    """The machine, other than this one, that has finished most runs; this machine if no other one
    has finished a run.

    `first` has the ids of the runs that are read first.
    """
    here = machine()
    nodes = Counter[Machine]()
    for folder in _finished(results, first):
        provenance = none_if_unreadable(folder.read_provenance)
        if provenance is not None and provenance.machine.kind != here.kind:
            nodes[provenance.machine] += 1
    for node, _ in nodes.most_common(1):
        return node
    return here


def measured_rates(
    results: Results,
    first: Iterable[str],
    node: Machine | None = None,
    device: PlannedDevice | None = None,
) -> dict[str, Rates]:
    """Training rates of a machine, by precision.

    The rate of a CPU is the rate of all its cores together: a run with one thread on a CPU with two
    cores has half of it.

    Args:
        results: results root.
        first: ids of the runs that are read first.
        node: the machine; None for this machine.
        device: device that trained the runs; None for any.
    """
    measured: dict[str, list[tuple[float, float]]] = defaultdict(list)
    node = node or machine()
    for folder in _finished(results, first):
        rate = _rate(results, folder, node, device)
        if rate is not None:
            precision, flops_per_step, flops_per_second = rate
            measured[precision].append((flops_per_step, flops_per_second))
    return {precision: Rates(tuple(samples)) for precision, samples in measured.items()}


def _rate(
    results: Results, folder: RunFolder, node: Machine, device: PlannedDevice | None
) -> tuple[str, float, float] | None:
    """(precision, FLOPs per step, FLOPs per second) of a finished run; None if another machine or
    another kind of device trained it, or if its files are damaged.
    """
    try:
        result = folder.read_result()
        run = folder.read_run()
        provenance = folder.read_provenance()
        execution = folder.read_execution()
    except StoreError:
        return None
    if not result or not run or not provenance or not result.seconds:
        return None
    # A run may use fewer cores than this command, for example in a job of a cluster.
    if any(part.machine.kind != node.kind for part in provenance.all_parts):
        return None
    precision = (execution and execution.precision) or run.config.precision or "fp32"
    lengths = lengths_in(results.corpus(result.corpus)) or Lengths.assumed()
    vocab_size = run.data["vocab_size"]
    assert isinstance(vocab_size, int)
    is_on_cpu = provenance.device == "cpu"
    if (device == "cpu" and not is_on_cpu) or (device == "cuda" and is_on_cpu):
        return None
    flops = cost.flops_per_step(run.config, vocab_size, lengths)
    rate_of_run = flops * result.steps / result.seconds
    # Number of such runs that the device, a CPU or one GPU, can train at the same time.
    n_parallel = 1 / provenance.processes
    if is_on_cpu:
        n_parallel = max(1, node.cores // (provenance.threads * provenance.processes))
    return precision, flops, n_parallel * rate_of_run
