"""Leases: one holder at a time, none that outlives its process, and none that a stopped one can
keep.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ablate.store import lease as module
from ablate.store.lease import Lease, LeaseLost

ROOT = Path(__file__).parents[2]
TERM = 1.5

HOLDER = """
import sys
from pathlib import Path
from ablate.store import lease
lease.TERM_SECONDS = float(sys.argv[2])
held = lease.Lease(Path(sys.argv[1]))
assert held.try_to_take()
print("held", flush=True)
sys.stdin.readline()
try:
    held.check()
except lease.LeaseLost:
    print("lost", flush=True)
else:
    print("kept", flush=True)
held.release()
"""


def test_the_term_is_the_documented_one():
    documented = " ".join((ROOT / "docs/reliability.md").read_text().split())
    assert (
        f"another worker takes the lease after {module.TERM_SECONDS:g} seconds without renewal"
        in documented
    )


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a lease; told to, it says whether it still does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lease"), str(TERM)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def contender(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TERM_SECONDS", TERM)
    contender = Lease(tmp_path / "lease")
    yield contender
    contender.release()


def taken_after(contender, seconds):
    """The seconds until it is taken, or None where that takes longer."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if contender.try_to_take():
            return time.monotonic() - began
        time.sleep(0.02)
    return None


def test_a_free_lease_is_taken_and_given_back(contender, tmp_path):
    assert contender.try_to_take()
    contender.check()
    assert not contender.is_lost
    contender.release()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LeaseLost):
        contender.check()


def test_a_lease_is_of_the_process_and_not_of_a_thread(contender):
    taker = threading.Thread(target=contender.try_to_take)
    taker.start()
    taker.join()
    contender.check()


def test_a_try_does_not_wait(contender, holder, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    assert not contender.try_to_take()
    assert waits == []


def test_one_that_is_held_is_not_taken_while_its_holder_lives(contender, holder):
    assert taken_after(contender, 2 * TERM) is None
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "kept\n"


def test_one_whose_holder_was_killed_is_taken_at_once(contender, holder):
    holder.kill()
    holder.wait()
    assert taken_after(contender, TERM / 2) is not None


def test_one_whose_holder_is_stopped_is_taken_after_the_term_and_the_holder_then_knows(
    contender, holder
):
    os.kill(holder.pid, signal.SIGSTOP)
    assert taken_after(contender, TERM / 2) is None
    assert taken_after(contender, 60) is not None
    contender.check()
    holder.stdin.write("\n")  # what it does first when it goes on, before any heartbeat
    holder.stdin.flush()
    os.kill(holder.pid, signal.SIGCONT)
    assert holder.stdout.readline() == "lost\n"
    holder.wait()
    contender.check()  # and it has not given back what is not its own


def test_a_check_of_a_lease_that_is_held_does_not_wait_and_a_noticed_loss_is_final(
    contender, monkeypatch
):
    waits = []
    assert contender.try_to_take()
    monkeypatch.setattr(
        module, "time", SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    )
    contender.check()
    assert waits == []
    monkeypatch.setattr(Lease, "is_lost", True)  # although the file is still this process's
    with pytest.raises(LeaseLost):
        contender.check()


def test_a_lease_whose_file_is_gone_is_lost(contender, tmp_path):
    assert contender.try_to_take()
    (tmp_path / "lease").unlink()
    with pytest.raises(LeaseLost):
        contender.check()


def test_the_heartbeat_notices_a_loss(contender, tmp_path):
    assert contender.try_to_take()
    assert not contender.is_lost
    (tmp_path / "lease").unlink()
    other = Lease(tmp_path / "lease")
    assert other.try_to_take()
    end = time.monotonic() + 60
    while not contender.is_lost and time.monotonic() < end:
        time.sleep(0.02)
    assert contender.is_lost
    other.check()


@pytest.mark.parametrize("left", [b"", b"filelo", b"\0" * 80])
def test_a_lease_damaged_by_a_power_cut_is_taken_over_after_the_term(contender, tmp_path, left):
    (tmp_path / "lease").write_bytes(left)
    assert taken_after(contender, TERM / 2) is None
    assert taken_after(contender, 60) is not None


def test_waiting_for_a_lease_takes_it_when_it_is_given_back(contender, holder):
    holder.stdin.write("\n")
    holder.stdin.flush()
    with contender.held():
        contender.check()


def test_a_lease_is_held_until_the_end_of_the_context_even_after_an_error(contender, tmp_path):
    def fail():
        assert not contender.try_to_take()
        raise KeyError

    ours = Lease(tmp_path / "lease")  # kept, because a lease that is collected releases itself
    with pytest.raises(KeyError), ours.held():
        fail()
    assert contender.try_to_take()
