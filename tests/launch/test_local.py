"""LocalExecutor, with real processes that speak a worker's protocol and start at once."""

import json
import os
import signal
import sys
import time

import pytest

from ablate.errors import MachineError
from ablate.launch import local
from ablate.launch.executor import Lost
from ablate.launch.local import LocalExecutor
from ablate.store import Results, machine
from ablate.workers.assignment import WorkerEvent
from tests.launch.conftest import a_job, slots

A, B, C, D = (letter * 12 for letter in "abcd")

# Executes jobs as a worker does. plan.json in a run's folder has the answers to the run's attempts:
# an outcome, an exit code, the negative number of a signal, `wait` until SIGTERM, or `hang`.
# `attempts` has a line for each.
WORKER = """
import json, os, signal, sys, time
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
if os.environ.get("PRINTS"): os.write(1, b"site\\xe9 loaded\\n{}\\n")
if not os.environ.get("NOT_READY"): print("ready", flush=True)
for line in sys.stdin:
    folder = json.loads(line)["run"]["folder"]
    plan = os.path.join(folder, "plan.json")
    first, *rest = json.load(open(plan))
    json.dump(rest, open(plan, "w"))
    with open(os.path.join(folder, "..", "attempts"), "a") as file:
        file.write(json.dumps([os.path.basename(folder), os.getpid()]) + "\\n")
    if first == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if first == "wait":
        while not stopped: time.sleep(0.01)
        first = "interrupted"
    if first == "half a line":
        sys.stdout.write('{"run": "' + os.path.basename(folder)); sys.stdout.flush()
        first = -9
    if isinstance(first, int) and first >= 0: sys.exit(first)
    if isinstance(first, int):
        if first == -signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
        os.kill(os.getpid(), -first)
    print(json.dumps({"run": os.path.basename(folder), "outcome": first}), flush=True)
    if first in ("interrupted", "failed"): break
if os.environ.get("STAYS"): time.sleep(600)
"""
COMMAND = (sys.executable, "-S", "-E", "-c", WORKER)


class Local:
    """A LocalExecutor with scripted workers."""

    def __init__(self, folder, count):
        self.results, self.executor = Results(folder), LocalExecutor(slots(count), COMMAND)

    def submit(self, run, *plan, slot=0):
        folder = self.results.run(run).path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps(plan))
        self.executor.submit(
            a_job(self.results, run, self.executor.slots()[slot]), self.executor.slots()[slot]
        )

    def event(self):
        """The next event."""
        return self.events(1)[0]

    def events(self, count):
        found, end = [], time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < end
            found += self.executor.events(0.1)
        assert len(found) == count
        return found

    @property
    def attempts(self):
        """(run, process) of each attempt, in order."""
        path = self.results.root / "runs" / "attempts"
        return (
            [tuple(json.loads(line)) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def wait_for_attempts(self, count):
        end = time.monotonic() + 60
        while len(self.attempts) < count:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def local_executor(tmp_path):
    opened = []

    def local_executor(count=1):
        opened.append(Local(tmp_path, count))
        return opened[-1]

    yield local_executor
    for each in opened:
        each.executor.close()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("outcome", ["done", "diverged", "failed", "held", "interrupted"])
def test_the_event_of_a_worker_is_passed_on(local_executor, outcome):
    one = local_executor()
    one.submit(A, outcome)
    assert one.event() == WorkerEvent(run=A, outcome=outcome)


def test_lines_that_a_sites_start_up_prints_before_a_worker_is_ready_are_no_events(
    local_executor, monkeypatch
):
    monkeypatch.setenv("PRINTS", "1")
    one = local_executor()
    one.submit(A, "done")
    assert one.event() == WorkerEvent(run=A, outcome="done")


def test_a_slots_worker_is_kept_for_the_next_job_so_that_torch_is_loaded_once(local_executor):
    one = local_executor()
    for run, outcome in ((A, "done"), (B, "diverged"), (C, "held"), (D, "done")):
        one.submit(run, outcome)
        one.event()
    assert len({pid for _, pid in one.attempts}) == 1


@pytest.mark.parametrize("outcome", ["failed", "interrupted"])
def test_after_a_failure_or_an_interruption_a_slot_gets_a_new_worker(local_executor, outcome):
    one = local_executor()
    for run, answer in ((A, outcome), (B, "done")):
        one.submit(run, answer)
        one.event()
    (_, first), (_, second) = one.attempts
    assert first != second
    assert not is_alive(first)


@pytest.mark.parametrize("outcome", ["failed", "done"])
def test_a_worker_that_does_not_exit_by_itself_is_killed(local_executor, monkeypatch, outcome):
    """After an error of CUDA, or with a thread of a plug-in: the launcher would wait for it, and
    start no other run.
    """
    monkeypatch.setenv("STAYS", "1")
    monkeypatch.setattr(local, "EXIT_SECONDS", 0.1)
    one = local_executor()
    one.submit(A, outcome)
    assert one.event().outcome == outcome
    one.executor.close()  # retires an idle worker too
    assert not is_alive(one.attempts[0][1])


def test_slots_work_at_the_same_time(local_executor):
    two = local_executor(2)
    two.submit(A, "wait", slot=0)
    two.submit(B, "done", slot=1)
    assert two.event() == WorkerEvent(run=B, outcome="done")
    two.wait_for_attempts(2)
    two.executor.cancel()
    assert two.event() == WorkerEvent(run=A, outcome="interrupted")


def test_an_occupied_slot_takes_no_second_job(local_executor):
    one = local_executor()
    one.submit(A, "wait")
    with pytest.raises(AssertionError, match="slot 0 is occupied"):
        one.submit(B, "done")


@pytest.mark.parametrize(
    ("plan", "reason", "from_outside"),
    [
        (-signal.SIGKILL, "the worker was ended by SIGKILL: the system may have run out of memory", True),
        (-signal.SIGHUP, "the worker was ended by SIGHUP", True),
        (-signal.SIGSEGV, "the worker was ended by SIGSEGV", False),
        (3, "the worker ended with exit code 3; see log.txt", False),
        (0, "the worker ended with exit code 0; see log.txt", False),
        ("half a line", "the worker was ended by SIGKILL: the system may have run out of memory", True),
    ],
)  # fmt: skip
def test_the_death_of_a_worker_is_a_loss_with_its_cause(local_executor, plan, reason, from_outside):
    one = local_executor()
    one.submit(A, "done")
    one.event()
    one.submit(B, plan)
    lost = one.event()
    assert lost == Lost(
        run=B, reason=reason, from_outside=from_outside, out_of_memory=lost.out_of_memory
    )
    one.submit(B, "done")
    assert one.event() == WorkerEvent(run=B, outcome="done")


def test_workers_that_end_before_they_are_ready_are_an_error_of_the_executor(
    local_executor, monkeypatch
):
    monkeypatch.setenv("NOT_READY", "1")
    one = local_executor()
    one.submit(A, 3)
    with pytest.raises(MachineError, match=r"a worker could not start \(exit code 3\)"):
        one.event()


def test_a_ready_worker_that_exits_in_its_first_job_is_lost_and_could_start(local_executor):
    one = local_executor()
    one.submit(A, 3)
    assert one.event() == Lost(run=A, reason="the worker ended with exit code 3; see log.txt")


@pytest.mark.parametrize(("before", "after", "expected"), [("7", "7", False), ("7", "8", True)])
def test_a_sigkill_counts_as_lack_of_memory_if_the_system_has_counted_one(
    local_executor, monkeypatch, tmp_path, before, after, expected
):
    """A kill by a person looks the same, and must not change the micro-batch."""
    counts = tmp_path / "vmstat"
    monkeypatch.setattr(machine, "PROCESS_CGROUPS", tmp_path / "none")
    monkeypatch.setattr(machine, "VMSTAT", counts)
    counts.write_text(f"nr_free_pages 1\noom_kill {before}\n")
    one = local_executor()
    one.submit(A, "hang")
    one.wait_for_attempts(1)
    counts.write_text(f"nr_free_pages 1\noom_kill {after}\n")
    os.kill(one.attempts[0][1], signal.SIGKILL)
    assert one.event().out_of_memory is expected


def test_cancelling_once_lets_workers_save_and_twice_kills_them(local_executor):
    two = local_executor(2)
    two.submit(A, "wait", slot=0)
    two.submit(B, "hang", slot=1)
    two.wait_for_attempts(2)
    two.executor.cancel()
    assert two.event() == WorkerEvent(run=A, outcome="interrupted")
    two.executor.cancel()
    lost = two.event()
    assert (lost.run, lost.from_outside) == (B, True)
    assert not any(is_alive(pid) for _, pid in two.attempts)


def test_a_job_submitted_after_cancelling_is_cancelled_too(local_executor):
    """A signal may come while a worker starts."""
    one = local_executor()
    one.executor.cancel()
    one.submit(A, "wait")
    event = one.event()
    assert event == WorkerEvent(run=A, outcome="interrupted") or (
        isinstance(event, Lost) and event.from_outside
    )


def test_closing_leaves_no_process(local_executor):
    three = local_executor(3)
    three.submit(A, "done", slot=0)
    assert three.event().outcome == "done"  # this worker is idle now
    three.submit(B, "hang", slot=1)
    three.submit(C, "wait", slot=2)
    three.wait_for_attempts(3)
    three.executor.close()
    assert len({pid for _, pid in three.attempts}) == 3
    assert not any(is_alive(pid) for _, pid in three.attempts)
