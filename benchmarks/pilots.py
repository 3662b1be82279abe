"""Many pilots on one results root: file operations a second, time to hand out a run, nothing done
twice or left.

python benchmarks/pilots.py --pilots 64 --slots 8 --runs 10000

Pilots are processes with the scheduler of ablate. Their jobs sleep and publish a result in the
place of training, under the same leases. File operations are counted by wrapping `os` and `pathlib`
in each pilot, so reads of libraries count, too. All pilots share this machine, so the times are
those of a machine that is busier than any node of a cluster.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import queue
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.launch.control import Control
from ablate.launch.executor import Lost, Slot
from ablate.launch.scheduler import Scheduler
from ablate.store import Results
from ablate.store.files import write_bytes
from ablate.store.lease import Lease
from ablate.workers.assignment import Assignment, RunRequest, WorkerEvent

SPAWN = multiprocessing.get_context("fork")
COUNTED = {
    "open",
    "os.link",
    "os.rename",
    "os.remove",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.utime",
}


class SleepingExecutor:
    """A thread for each slot: takes the lease of a run, sleeps, publishes once, gives the lease
    back.
    """

    def __init__(self, slots: int, seconds: float) -> None:
        self._slots = [Slot(f"{i}", ("cpu",), 1, 1e9) for i in range(slots)]
        self.seconds = seconds
        self.done: queue.SimpleQueue[WorkerEvent | Lost] = queue.SimpleQueue()
        self.leases: dict[str, Lease] = {}
        self.busy = self.published = self.refused = 0

    def slots(self) -> list[Slot]:
        return self._slots

    def submit(self, job: Assignment, slot: Slot) -> None:
        threading.Thread(target=self._work, args=(job,), daemon=True).start()

    def _work(self, job: Assignment) -> None:
        lease = self.leases.setdefault(job.run.id, Lease(job.run.folder / "lease"))
        result = job.run.folder / "result.json"
        if not lease.try_to_take():
            self.busy += 1
            self.done.put(WorkerEvent(run=job.run.id, outcome="held"))
            return
        try:
            if not result.exists():
                time.sleep(self.seconds * random.uniform(0.5, 1.5))
                write_bytes(result, b"{}", durable=False, once=True)
                self.published += 1
        except FileExistsError:
            self.refused += 1
        finally:
            lease.release()
        self.done.put(WorkerEvent(run=job.run.id, outcome="done"))

    def events(self, timeout: float) -> list[WorkerEvent | Lost]:
        try:
            found = [self.done.get(timeout=timeout)]
        except queue.Empty:
            return []
        while not self.done.empty():
            found.append(self.done.get())
        return found

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


class Leaving(Control):
    """A pilot leaves after a while with nothing to do, as those of a cluster do."""

    def __init__(self, seconds: float) -> None:
        self.idle_seconds = min(10.0, 10 * seconds)


class Timing:
    """A watcher that measures the time from a free slot to the next submission."""

    def __init__(self) -> None:
        self.free_since: list[float] = []
        self.waits: list[float] = []

    def announce(self, corpus: Any, slots: Sequence[Slot], missing: int) -> None:
        pass

    def log(self, line: str) -> None:
        pass

    def started(self, run: str) -> None:
        if self.free_since:
            self.waits.append(time.monotonic() - self.free_since.pop(0))

    def held(self, run: str) -> None:
        self.free_since.append(time.monotonic())

    def finished(self, run: str, outcome: str, reason: str = "") -> None:
        self.free_since.append(time.monotonic())

    def lost(self, run: str, reason: str) -> None:
        self.free_since.append(time.monotonic())

    def tick(self) -> None:
        self.free_since.clear()  # a slot that stays free waits for nothing that could be handed out


def pilot(
    index: int, pilots: int, slots: int, root: Path, ids: list[str], seconds: float, reports: Any
) -> None:
    """One pilot; reports its counts at its end."""
    operations: Counter[str] = Counter()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in COUNTED and str(root) in str(arguments[0]):
            operations[event] += 1

    sys.addaudithook(audit)
    stats = os.stat

    def counted_stat(path: Any, *rest: Any, **named: Any) -> os.stat_result:
        if str(root) in str(path):
            operations["os.stat"] += 1
        return stats(path, *rest, **named)

    os.stat = counted_stat
    results, timing, executor = Results(root), Timing(), SleepingExecutor(slots, seconds)
    first = index * len(ids) // pilots
    own = ids[first:] + ids[:first]

    def job_for(id: str, slot: Slot, halve: bool) -> Assignment:
        request = RunRequest(
            folder=results.run(id).path, corpus=root, test="", decodings={}, settings={}
        )
        return Assignment(run=request, devices=("cpu",), threads=1, micro_batch_tokens=1)

    def outcome_of(id: str) -> str | None:
        return "done" if results.run(id).result.exists() else None

    began = time.monotonic()
    Scheduler(executor, job_for, results.run, outcome_of, timing, Leaving(seconds)).run(own)
    reports.put(
        (executor.published, executor.busy, executor.refused, sum(operations.values()), dict(operations),
         time.monotonic() - began, timing.waits)
    )  # fmt: skip


def main() -> None:
    """Simulate, and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("pilots", 64), ("slots", 8), ("runs", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=10.0, help="mean length of a run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        ids = [f"{number:012x}" for number in range(given.runs)]
        for id in ids:
            Results(root).run(id).path.mkdir(parents=True)
        reports: Any = SPAWN.Queue()
        began = time.monotonic()
        processes = [
            SPAWN.Process(
                target=pilot, args=(index, given.pilots, given.slots, root, ids, given.seconds, reports)
            )
            for index in range(given.pilots)
        ]  # fmt: skip
        for process in processes:
            process.start()
        found = [reports.get() for _ in processes]
        for process in processes:
            process.join()
        elapsed = time.monotonic() - began
        left = sum(not Results(root).run(id).result.exists() for id in ids)
    published, busy, refused, operations = (sum(each[i] for each in found) for i in range(4))
    waits = sorted(wait for each in found for wait in each[6])
    kinds: Counter[str] = Counter()
    for each in found:
        kinds.update(each[4])
    print(
        f"{given.pilots} pilots x {given.slots} slots, {given.runs:,} runs of {given.seconds:g} s, "
        f"in {elapsed:.0f} s"
    )
    print(
        f"published {published:,}, twice {published - given.runs + left}, refused second results "
        f"{refused}, left {left}"
    )
    print(f"looks at runs of others: {busy:,} ({busy / elapsed:.1f} a second)")
    print(
        f"file operations: {operations:,} ({operations / elapsed:,.0f} a second, "
        f"{operations / given.runs:.1f} a run)"
    )
    print(", ".join(f"{name} {count:,}" for name, count in kinds.most_common()))
    waits = waits or [math.nan]  # a slot that has one run waits for none
    middle, last = statistics.median(waits), waits[int(0.99 * len(waits))]
    print(
        f"from a free slot to the next run: median {1000 * middle:.1f} ms, 99 % below "
        f"{1000 * last:.0f} ms"
    )


if __name__ == "__main__":
    main()
