"""The scheduler, with an executor that answers by a script: order, retries, held runs, deaths and
signals.
"""

import itertools
import os
import signal
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import Interrupted
from ablate.launch import scheduler as module
from ablate.launch.control import Control
from ablate.launch.executor import Lost
from ablate.launch.scheduler import HELD_SECONDS, MAX_ATTEMPTS, Scheduler
from ablate.store import Results
from ablate.store.records import Failure
from ablate.workers.assignment import WorkerEvent
from tests.launch.conftest import Recorder, a_job, slots

A, B, C, D = (letter * 12 for letter in "abcd")
KILLED = "killed"  # from outside
STARVED = "starved"  # by the system, for want of memory
CRASHED = "crashed"  # by itself
FOREVER = "forever"  # runs until it is cancelled
DEATHS = (KILLED, STARVED, CRASHED)


class Clock:
    """Seconds that pass only in `ScriptedExecutor.events`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class ScriptedExecutor:
    """Answers each attempt at a run with the next item of the run's script: an outcome, or a death.

    attempts: (run, slot, whether half the micro-batch was asked for, time), in order.
    """

    def __init__(self, count, scripts, clock):
        self._slots, self.scripts, self.clock = (
            slots(count),
            {run: list(s) for run, s in scripts.items()},
            clock,
        )
        self.running, self.attempts, self.cancelled, self.closed = {}, [], 0, False

    def slots(self):
        return self._slots

    def submit(self, job, slot):
        assert slot in self._slots
        assert slot.name not in self.running, "the slot is occupied"
        assert job.run.id not in [running.run.id for running in self.running.values()], (
            "the run is already submitted"
        )
        assert not self.closed
        self.running[slot.name] = job
        self.attempts.append((job.run.id, slot.name, job.halve_micro_batch, self.clock.now))

    def events(self, timeout):
        """The event of the job that was submitted first, if it has one."""
        assert timeout > 0
        for name, job in self.running.items():
            run, script = job.run.id, self.scripts[job.run.id]
            if script[0] == FOREVER and not self.cancelled:
                continue
            del self.running[name]
            answer = script.pop(0)
            if answer in DEATHS or self.cancelled > 1:
                outside, memory = answer in (KILLED, STARVED), answer == STARVED
                return [
                    Lost(
                        run=run,
                        reason=f"it was {answer}",
                        from_outside=outside,
                        out_of_memory=memory,
                    )
                ]
            outcome = "interrupted" if answer == FOREVER else answer
            return [
                WorkerEvent(
                    run=run, outcome=outcome, reason="a reason" if outcome == "failed" else ""
                )
            ]
        self.clock.now += timeout
        return []

    def cancel(self):
        self.cancelled += 1

    def close(self):
        self.closed = True


class Schedule:
    """Runs a scheduler over scripts."""

    def __init__(self, folder, clock):
        self.results, self.recorder, self.elsewhere, self.clock = (
            Results(folder),
            Recorder(),
            {},
            clock,
        )

    def __call__(self, scripts, count=2, control=None):
        self.executor = ScriptedExecutor(count, scripts, self.clock)
        for run in scripts:
            self.results.run(run).path.mkdir(parents=True, exist_ok=True)

        def job_for(run, slot, halve):
            return a_job(self.results, run, slot, halve)

        scheduler = Scheduler(
            self.executor, job_for, self.results.run, self.elsewhere.get, self.recorder, control
        )
        try:
            scheduler.run(list(scripts))
        finally:
            assert self.executor.closed
        assert not self.executor.running
        return self.recorder

    @property
    def attempts(self):
        return [run for run, *_ in self.executor.attempts]

    def failure(self, run):
        return Failure.read(self.results.run(run).failure)


@pytest.fixture
def schedule(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic, time=time.time))
    return Schedule(tmp_path, clock)


def test_all_slots_are_used_and_never_twice(schedule):
    schedule({run: ["done"] for run in (A, B, C, D)}, count=3)
    assert [slot for _, slot, _, _ in schedule.executor.attempts] == ["0", "1", "2", "0"]


@pytest.mark.parametrize(
    ("outcome", "reason"), [("done", ""), ("diverged", ""), ("failed", "a reason")]
)
def test_an_outcome_reaches_the_watcher(schedule, outcome, reason):
    recorder = schedule({A: [outcome], B: ["done"]}, count=1)
    assert recorder.outcomes == [(A, outcome), (B, "done")]
    assert recorder.reasons[A] == reason


@pytest.mark.parametrize("death", DEATHS)
def test_a_run_whose_worker_died_is_tried_again_before_the_others(schedule, death):
    recorder = schedule({A: [death] * (MAX_ATTEMPTS - 1) + ["done"], B: ["done"]}, count=1)
    assert recorder.outcomes == [(A, "done"), (B, "done")]
    assert schedule.attempts == [A] * MAX_ATTEMPTS + [B]
    assert schedule.failure(A) is None
    assert recorder.runs_lost == [(A, f"it was {death}")] * (MAX_ATTEMPTS - 1)
    log = schedule.results.run(A).log.read_text().splitlines()
    assert [line[20:] for line in log] == [f"it was {death}; started again"] * (MAX_ATTEMPTS - 1)


@pytest.mark.parametrize(
    ("deaths", "killed"),
    [
        ([KILLED] * 3, True),
        ([CRASHED] * 3, False),
        ([CRASHED, KILLED, KILLED], False),
        ([KILLED, "interrupted", KILLED], True),
    ],
)
def test_after_several_deaths_a_run_has_failed_and_the_others_continue(schedule, deaths, killed):
    recorder = schedule({A: [*deaths, "done"], B: ["done"]}, count=1)
    assert recorder.outcomes == [(A, "failed"), (B, "done")]
    assert schedule.attempts == [A] * MAX_ATTEMPTS + [B]
    failure = schedule.failure(A)
    assert (failure.reason, failure.killed) == (f"it was {deaths[-1]}", killed)
    assert recorder.reasons[A] == failure.reason


def test_only_a_kill_for_want_of_memory_halves_the_micro_batch_of_the_next_attempt(schedule):
    schedule({A: [STARVED, KILLED, "done"], B: [CRASHED, "done"]}, count=1)
    assert [(run, halve) for run, _, halve, _ in schedule.executor.attempts] == [
        (A, False), (A, True), (A, False), (B, False), (B, False),
    ]  # fmt: skip


def test_a_failure_that_cannot_be_recorded_does_not_stop_the_others(schedule):
    schedule.recorder.on_start = lambda run: schedule.results.run(A).failure.mkdir(exist_ok=True)
    recorder = schedule({A: [CRASHED] * 9, B: ["done"]}, count=1)
    assert recorder.outcomes == [(A, "failed"), (B, "done")]


def test_a_held_run_is_tried_again_after_a_while(schedule):
    recorder = schedule({A: ["held", "held", "done"], B: ["done"]}, count=1)
    assert recorder.outcomes == [(B, "done"), (A, "done")]
    assert recorder.runs_held == [A, A]
    assert schedule.attempts == [A, B, A, A]
    first, second, third = (now for run, _, _, now in schedule.executor.attempts if run == A)
    assert second - first >= HELD_SECONDS
    assert third - second >= HELD_SECONDS


@pytest.mark.parametrize("outcome", ["done", "failed", "diverged"])
def test_a_run_that_another_launcher_has_finished_is_not_submitted(schedule, outcome):
    schedule.elsewhere[A] = outcome
    recorder = schedule({A: ["done"], B: ["done"]})
    assert recorder.outcomes == [(A, outcome), (B, "done")]
    assert schedule.attempts == [B]


@pytest.mark.parametrize("outcome", ["done", "failed", "diverged"])
def test_a_held_run_that_another_launcher_finishes_is_not_submitted_again(schedule, outcome):
    schedule.recorder.on_start = lambda run: schedule.elsewhere.update({run: outcome})
    assert schedule({A: ["held", "done"]}).outcomes == [(A, outcome)]
    assert schedule.attempts == [A]


def test_the_watcher_is_called_while_time_passes(schedule):
    assert schedule({A: ["held", "held", "done"]}).ticks >= 2 * HELD_SECONDS / module.TICK_SECONDS


def send(*numbers):
    """Send these signals to this process when the first run starts."""

    def on_start(run):
        for number in numbers:
            os.kill(os.getpid(), number)

    return on_start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_executor_and_starts_nothing_new(schedule, number):
    before = signal.getsignal(number)
    schedule.recorder.on_start = send(number)
    with pytest.raises(Interrupted):
        schedule({A: [FOREVER], B: ["done"], C: ["held", "done"]}, count=1)
    assert schedule.attempts == [A]
    assert schedule.executor.cancelled == 1
    assert schedule.recorder.outcomes == []
    assert schedule.failure(A) is None
    assert signal.getsignal(number) == before


def test_a_run_that_ends_after_the_signal_still_counts(schedule):
    schedule.recorder.on_start = send(signal.SIGINT)
    with pytest.raises(Interrupted):
        schedule({A: ["done"], B: ["done"]}, count=1)
    assert schedule.recorder.outcomes == [(A, "done")]


def test_a_second_interrupt_ends_the_jobs_without_a_failure(schedule):
    schedule.recorder.on_start = send(signal.SIGINT, signal.SIGINT)
    with pytest.raises(Interrupted):
        schedule({A: [FOREVER], B: ["done"]}, count=1)
    assert schedule.executor.cancelled == 2
    assert (schedule.attempts, schedule.recorder.outcomes, schedule.failure(A)) == ([A], [], None)


@pytest.mark.parametrize(
    "numbers",
    [
        (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
    ],
)
def test_further_signals_of_a_cluster_do_not_keep_jobs_from_saving(schedule, numbers):
    """Slurm sends SIGUSR1, then SIGTERM to every process, before it kills."""
    schedule.recorder.on_start = send(*numbers)
    with pytest.raises(Interrupted):
        schedule({A: [FOREVER], B: ["done"]}, count=1)
    assert schedule.executor.cancelled == 1


class Limits(Control):
    """A control that allows some starts, and asks to stop after some looks."""

    signals = (*Control.signals, signal.SIGUSR1)

    def __init__(self, starts=99, looks=10**9, idle=float("inf")):
        self.starts, self.looks, self.idle_seconds, self.signals_seen = starts, looks, idle, []

    def may_start(self):
        return self.starts > 0

    def must_stop(self):
        self.looks -= 1
        return self.looks < 0

    def on_signal(self, number):
        self.signals_seen.append(number)


def test_a_control_ends_a_launch_after_the_runs_in_progress(schedule):
    control = Limits(starts=2)
    schedule.recorder.on_start = lambda run: setattr(control, "starts", control.starts - 1)
    recorder = schedule({A: ["done"], B: ["done"], C: ["done"]}, count=1, control=control)
    assert recorder.outcomes == [(A, "done"), (B, "done")]


def test_a_control_asks_all_jobs_to_save_and_leave(schedule):
    with pytest.raises(Interrupted):
        schedule({A: [FOREVER], B: ["done"]}, count=1, control=Limits(looks=3))
    assert (schedule.executor.cancelled, schedule.attempts) == (1, [A])


def test_a_control_receives_its_signals(schedule):
    control = Limits()
    schedule.recorder.on_start = send(signal.SIGUSR1, signal.SIGTERM)
    with pytest.raises(Interrupted):
        schedule({A: [FOREVER]}, control=control)
    assert (control.signals_seen, schedule.executor.cancelled) == (
        [signal.SIGUSR1, signal.SIGTERM],
        1,
    )


def test_a_launch_with_nothing_but_runs_of_others_ends_after_its_idle_time(schedule):
    control = Limits(idle=90.0)
    recorder = schedule({A: ["held"] * 99, B: ["done"]}, control=control)
    assert recorder.outcomes == [(B, "done")]
    assert 90 <= schedule.clock.now - 1000 < 95
    assert set(recorder.runs_held) == {A}


def test_before_a_launch_leaves_runs_to_others_it_looks_once_more_whether_their_holder_has_died(
    schedule,
):
    """A holder on another host counts as dead after 60 s of silence; the look before this one is
    too early for that.
    """
    schedule({A: ["held"] * 99}, control=Limits(idle=90.0))
    times = [now - 1000 for *_, now in schedule.executor.attempts]
    assert 87 < times[-1] < 90
    assert len(times) == 7


def test_looks_at_a_held_run_become_rarer_and_stay_in_one_slot(schedule):
    schedule({A: ["held"] * 9 + ["done"]}, count=3)
    times = [now for *_, now in schedule.executor.attempts]
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    expected = [2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert all(wait >= least for wait, least in zip(waits, expected, strict=True))
    assert sum(waits) < sum(expected) + len(expected) * 2 * module.TICK_SECONDS
    assert len({slot for _, slot, _, _ in schedule.executor.attempts}) == 1


def test_a_launch_with_full_slots_does_not_look_at_runs_of_others(schedule):
    looks = []
    schedule.elsewhere = SimpleNamespace(get=looks.append)
    schedule.recorder.on_start = lambda run: None
    with pytest.raises(Interrupted):
        schedule({A: ["held", "done"], B: [FOREVER]}, count=1, control=Limits(looks=500))
    assert looks.count(A) == 1


def test_a_run_that_does_not_suit_the_device_is_left_to_others_without_a_failure(schedule):
    recorder = schedule({A: ["unsuitable"], B: ["done"]}, count=1)
    assert recorder.outcomes == [(A, "unsuitable"), (B, "done")]
    assert (schedule.attempts, schedule.failure(A)) == ([A, B], None)


def test_an_error_of_the_watcher_closes_the_executor(schedule):
    def fail(run):
        raise RuntimeError("out of luck")

    schedule.recorder.on_start = fail
    executor = None
    with pytest.raises(RuntimeError, match="out of luck"):
        schedule({A: ["done"]})
    executor = schedule.executor
    assert executor.closed


SCRIPT = st.lists(st.sampled_from(["held", "interrupted", *DEATHS]), max_size=5)
ENDS = st.sampled_from(["done", "diverged", "failed"])


@settings(max_examples=100)
@given(scripts=st.lists(st.tuples(SCRIPT, ENDS), max_size=6), count=st.integers(1, 4))
def test_every_run_ends_exactly_once_whatever_happens(tmp_path_factory, scripts, count):
    """The executor asserts that no slot is occupied twice, and that no run is in two slots."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic, time=time.time))
        schedule = Schedule(tmp_path_factory.mktemp("runs"), clock)
        named = {f"{i:012x}": [*script, end] for i, (script, end) in enumerate(scripts)}
        recorder = schedule(named, count)
    assert Counter(run for run, _ in recorder.outcomes) == dict.fromkeys(named, 1)
    assert list(dict.fromkeys(schedule.attempts)) == list(named)
    for run, outcome in recorder.outcomes:
        deaths = [answer for answer in named[run][:-1] if answer != "held"]
        assert outcome == ("failed" if len(deaths) >= MAX_ATTEMPTS else named[run][-1])
