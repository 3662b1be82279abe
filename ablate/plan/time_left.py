"""The time until runs have ended: their work in FLOPs, by the rate at which it is done.

Before a launch, the rate is that of finished runs (`measured_rates`); during one, it is the pace of
the runs in progress (`Pace`), because other models on an idle machine have other rates.
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
# Finished runs, of other studies too, that this machine's rate is measured from. A large root has
# too many to read all.
RATE_SAMPLES = 50
# A pace is known once the runs were watched for so long and have made such a share of a run.
PACE_SECONDS = 30.0
PACE_SHARE = 0.02


class Work:
    """The work of runs, and how much of it is completed.

    Without a last step a run has no total of FLOPs, and every run then counts the same.
    """

    def __init__(self, flops: Mapping[str, float | None]) -> None:
        """Begin with nothing completed; `flops` of each run, by id."""
        is_known = None not in flops.values()
        self.of_runs = {id: (value or 1.0) if is_known else 1.0 for id, value in flops.items()}
        self.completed_of = dict.fromkeys(flops, 0.0)
        self.total, self.completed = sum(self.of_runs.values()), 0.0

    def complete(self, id: str, share: float) -> None:
        """Set the completed share of a run, 0 to 1."""
        before, now = self.completed_of[id], share * self.of_runs[id]
        self.completed_of[id] = now
        self.completed += now - before

    @property
    def completed_share(self) -> float:
        """The completed share of all runs, without the rounding of many small changes."""
        self.completed = sum(self.completed_of.values())
        return self.completed / self.total


class Pace:
    """The rate of runs in progress, from the moment when the first of them worked."""

    def __init__(self) -> None:
        self.first: tuple[float, float] | None = None  # that moment, and what was completed then

    def begin(self, work: Work) -> None:
        """A run works; only the first call counts."""
        self.first = self.first or (time.monotonic(), work.completed)

    def seconds_left(self, work: Work) -> float | None:
        """Seconds until all work is completed; None while the pace is not known."""
        if self.first is None:
            return None
        seconds, made = time.monotonic() - self.first[0], work.completed - self.first[1]
        if seconds < PACE_SECONDS or made <= PACE_SHARE * work.total / len(work.of_runs):
            return None
        return (work.total - work.completed) * seconds / made


@dataclass(frozen=True)
class Rates:
    """Training rates of finished runs: (FLOPs per step, FLOPs per second) of each."""

    of_runs: tuple[tuple[float, float], ...]

    def of(self, flops_per_step: float) -> float:
        """FLOPs per second of a run: the median over those with the most similar steps, by a factor
        of two.

        Small steps take longer than their FLOPs say, as each operation takes some time of its own.
        """
        distances = [abs(math.log2(step / flops_per_step)) for step, _ in self.of_runs]
        farthest = min(distances) + 1
        similar = []
        for distance, (_, rate) in zip(distances, self.of_runs, strict=True):
            if distance <= farthest:
                similar.append(rate)
        return statistics.median(similar)


def _finished(results: Results, first: Iterable[str]) -> Iterator[RunFolder]:
    """Finished runs, at most RATE_SAMPLES. The study's come `first`: they are the most similar to
    those that are left.
    """
    folders = map(results.run, dict.fromkeys([*first, *results.run_ids()]))
    finished = filter(operator.attrgetter("has_result"), folders)
    return itertools.islice(finished, RATE_SAMPLES)


def other_machine(results: Results, first: Iterable[str]) -> Machine:
    """The machine, other than this one, that has finished most runs; this one if there is none.

    `first` are ids of the runs that are read first.
    """
    here, nodes = machine(), Counter[Machine]()
    for folder in _finished(results, first):
        provenance = none_if_unreadable(folder.read_provenance)
        if provenance is not None and provenance.machine != here:
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

    The rate of a CPU is for all its cores: a run with 1 of 2 threads counts as one of two
    concurrent runs.

    Args:
        results: root of the results.
        first: ids of the runs that are read first.
        node: the machine; None for this one.
        device: of the runs; None for any.
    """
    measured: dict[str, list[tuple[float, float]]] = defaultdict(list)
    node = node or machine()
    for folder in _finished(results, first):
        rate = _rate(results, folder, node, device)
        if rate is not None:
            measured[rate[0]].append(rate[1:])
    return {precision: Rates(tuple(of_runs)) for precision, of_runs in measured.items()}


def _rate(
    results: Results, folder: RunFolder, node: Machine, device: PlannedDevice | None
) -> tuple[str, float, float] | None:
    """(precision, FLOPs per step, FLOPs per second) of a finished run; None if another machine or
    another kind of device trained it, or its files are damaged.
    """
    try:
        result, run, provenance = folder.read_result(), folder.read_run(), folder.read_provenance()
        execution = folder.read_execution()
    except StoreError:
        return None
    if not result or not run or not provenance or provenance.machine != node or not result.seconds:
        return None
    precision = (execution and execution.precision) or run.config.precision or "fp32"
    lengths = lengths_in(results.corpus(result.corpus)) or Lengths.assumed()
    vocab_size = run.data["vocab_size"]
    assert isinstance(vocab_size, int)
    on_cpu, processes = provenance.device == "cpu", provenance.processes
    if device is not None and on_cpu != (device == "cpu"):
        return None
    flops = cost.flops_per_step(run.config, vocab_size, lengths)
    # Runs on a GPU do not share it; one that was trained on several counts for each of them.
    at_once = 1 / processes
    if on_cpu:
        at_once = max(1, node.cores // (provenance.threads * processes))
    return precision, flops, at_once * flops * result.steps / result.seconds
