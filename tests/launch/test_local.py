"""The pool of workers: who gets what, and what becomes of those that die. The workers here only play."""

import os
import signal
import time

import pytest

from ablate.errors import Interrupted, StoreError
from ablate.launch import local, memory
from ablate.launch.local import DEATHS
from ablate.store.status import was_killed

A, B, C, D = (letter * 12 for letter in "abcd")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_run_is_given_once_and_in_order(play):
    told = play({run: ["done"] for run in (A, B, C, D)}, places=1)
    assert told.started_runs == [A, B, C, D]
    assert told.outcomes == [(run, "done") for run in (A, B, C, D)]
    assert [run for run, _ in play.notes()] == [A, B, C, D]


def test_a_worker_is_used_again_so_that_torch_is_loaded_once(play):
    play({run: ["done"] for run in (A, B, C, D)}, places=1)
    assert len({pid for _, pid in play.notes()}) == 1


def test_there_are_no_more_workers_than_places_and_than_runs(play):
    play({run: ["sleep"] for run in (A, B, C, D)}, places=3)
    assert len({pid for _, pid in play.notes()}) == 3
    assert sorted(run for run, _ in play.notes()) == [A, B, C, D]


def test_a_place_for_which_there_is_no_run_has_no_worker(play):
    play({A: ["sleep"]}, places=5)
    assert len(play.notes()) == 1


@pytest.mark.parametrize("outcome", ["done", "failed", "diverged"])
def test_an_outcome_is_passed_on(play, outcome):
    assert play({A: [outcome], B: ["done"]}, places=1).outcomes == [(A, outcome), (B, "done")]


def test_a_worker_that_is_killed_is_given_another_try(play):
    told = play({A: [-signal.SIGKILL] * (DEATHS - 1) + ["done"], B: ["done"]}, places=1)
    assert told.outcomes == [(A, "done"), (B, "done")]
    assert [run for run, _ in play.notes()] == [A] * DEATHS + [B]
    assert len({pid for _, pid in play.notes()}) == DEATHS
    assert not (play.runs / A / "failure.json").exists()


def test_a_run_whose_workers_are_killed_again_and_again_has_failed_and_the_others_go_on(play):
    told = play({A: [-signal.SIGKILL] * 9, B: ["done"]}, places=1)
    assert sorted(told.outcomes) == [(A, "failed"), (B, "done")]
    assert [run for run, _ in play.notes()].count(A) == DEATHS
    assert play.failure(A) == "the worker was ended by SIGKILL: the system may have run out of memory"
    assert was_killed(play.results.run(A))


def test_a_run_whose_workers_leave_again_and_again_has_failed_and_the_others_go_on(play):
    told = play({A: ["done"], B: [3] * 9, C: ["done"]}, places=1)
    assert told.outcomes == [(A, "done"), (B, "failed"), (C, "done")]
    assert [run for run, _ in play.notes()].count(B) == DEATHS
    assert play.failure(B) == "the worker ended with exit code 3; see log.txt"
    assert not was_killed(play.results.run(B))


def test_workers_that_cannot_start_are_no_fault_of_a_run(play):
    with pytest.raises(StoreError, match=r"a worker could not start \(exit code 3\)"):
        play({A: [3], B: ["done"]}, places=1)
    assert play.told.outcomes == []
    assert not (play.runs / A / "failure.json").exists()


def test_a_worker_in_which_a_run_has_failed_gets_no_other(play):
    play({A: ["failed"], B: ["done"], C: ["done"]}, places=1)
    pids = dict(play.notes())
    assert pids[A] != pids[B] == pids[C]


def test_a_run_whose_worker_alone_was_asked_to_leave_goes_on_in_another(play):
    told = play({A: ["interrupted", "done"], B: ["done"]}, places=1)
    assert told.outcomes == [(A, "done"), (B, "done")]
    assert len({pid for run, pid in play.notes() if run == A}) == 2


def test_a_run_that_cannot_say_why_it_failed_does_not_stop_the_others(play):
    play.told.on_start = lambda run: (play.runs / A / "failure.json").mkdir(exist_ok=True)  # nothing can be written
    told = play({A: [-signal.SIGKILL] * 9, B: ["done"]}, places=1)
    assert sorted(told.outcomes) == [(A, "failed"), (B, "done")]


def test_a_run_that_another_has_is_asked_for_again(play):
    told = play({A: ["busy", "busy", "done"], B: ["done"]}, places=1)
    assert told.outcomes == [(B, "done"), (A, "done")]
    assert [run for run, _ in play.notes()] == [A, B, A, A]


def test_a_run_that_has_failed_is_begun_if_it_was_asked_for(play):
    play.elsewhere[A] = "failed"
    assert play({A: ["done"]}).outcomes == [(A, "done")]


@pytest.mark.parametrize("outcome", ["done", "diverged"])
def test_a_run_that_another_has_ended_is_not_begun_here(play, outcome):
    play.elsewhere[A] = outcome
    told = play({A: ["done"], B: ["done"]})
    assert told.outcomes == [(A, outcome), (B, "done")]
    assert [run for run, _ in play.notes()] == [B]


@pytest.mark.parametrize("outcome", ["done", "failed", "diverged"])
def test_a_run_that_another_ends_meanwhile_is_not_asked_for_again(play, outcome):
    play.told.on_start = lambda run: play.elsewhere.update({run: outcome})
    told = play({A: ["busy"]})
    assert told.outcomes == [(A, outcome)]
    assert len(play.notes()) == 1


@pytest.mark.parametrize("by_the_system", [False, True])
def test_only_a_kill_for_want_of_memory_asks_for_smaller_micro_batches(play, monkeypatch, tmp_path, by_the_system):
    """A kill by a person must change nothing of what comes out, and both are SIGKILL."""
    counts = tmp_path / "vmstat"
    counts.write_text("nr_free_pages 1\noom_kill 7\n")
    monkeypatch.setattr(memory, "COUNTS", counts)
    asked, give = [], local._Worker.give

    def noted(worker, unit):
        give(worker, unit)
        asked.append(unit.smaller)
        if by_the_system:
            counts.write_text("nr_free_pages 1\noom_kill 8\n")

    monkeypatch.setattr(local._Worker, "give", noted)
    play({A: [-signal.SIGKILL, "done"], B: ["done"]}, places=1)
    assert asked == [False, by_the_system, False]


def test_the_watcher_is_told_that_time_passes(play):
    assert play({A: ["sleep"]}).ticks > 3


def signals(*numbers):
    """Sends itself these signals, one after the other."""

    def send(run):
        for number in numbers:
            os.kill(os.getpid(), number)

    return send


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_workers_save_and_begins_nothing_new(play, number):
    def once_at_work(run):
        while not (play.runs / "notes").exists():
            time.sleep(0.01)
        signals(number)(run)

    play.told.on_start = once_at_work
    before = signal.getsignal(number)
    with pytest.raises(Interrupted):
        play({A: ["until asked"], B: ["done"]}, places=1)
    assert [run for run, _ in play.notes("ended")] == [A]
    assert play.told.outcomes == []
    assert signal.getsignal(number) == before
    assert not (play.runs / A / "failure.json").exists()


def test_a_second_signal_ends_workers_that_do_not_listen(play):
    play.told.on_start = signals(signal.SIGINT, signal.SIGINT)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        play({A: ["hang"]})
    assert time.monotonic() - began < 10
    assert not (play.runs / A / "failure.json").exists()


def test_a_signal_while_a_worker_starts_gives_it_nothing(play, monkeypatch):
    started = []

    class Interrupting(local._Worker):
        def __init__(self, place):
            super().__init__(place)
            started.append(self.process.pid)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(local, "_Worker", Interrupting)
    with pytest.raises(Interrupted):
        play({A: ["hang"], B: ["hang"]}, places=2)
    assert len(started) == 1
    assert not alive(started[0])
    assert play.told.started_runs == []


def test_an_error_here_leaves_no_worker_behind(play):
    def fail(run):
        raise RuntimeError("out of luck")

    play.told.on_start = fail
    with pytest.raises(RuntimeError, match="out of luck"):
        play({A: ["hang"]})
    assert not any(alive(pid) for _, pid in play.notes()) if (play.runs / "notes").exists() else True
