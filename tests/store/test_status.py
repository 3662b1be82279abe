"""The state of a run, derived from its files and from the process that wrote them."""

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from ablate.store import RunFolder, none_if_unreadable, state_of
from ablate.store.files import read_json, write_json
from ablate.store.processes import CLOCK_SECONDS, HEARTBEAT_SECONDS, process_mark
from ablate.store.records import ProcessMark
from ablate.store.status import (
    fault_in_result,
    last_lines,
    record_failure,
    state_in_any_decoding,
)
from tests.records import a_decoding, a_failure, a_progress, a_provenance, a_result, a_run

BEAM, GREEDY = "0123456789ab", "ba9876543210"
DONE = a_result(decodings={BEAM: a_decoding()})
DIVERGED = a_result(outcome="diverged", reason="the loss is not a finite number")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "0123456789ab").mkdir()
    return RunFolder(tmp_path / "0123456789ab")


@pytest.fixture
def other():
    """Another living process."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def mark_of(process):
    born = psutil.Process(process.pid).create_time()
    return ProcessMark(host=socket.gethostname(), pid=process.pid, born=born)


ELSEWHERE = ProcessMark(host="another-host", pid=1, born=1.0)


def write(folder, progress=None, result=None, failure=None):
    for path, record in (
        (folder.progress, progress),
        (folder.result, result),
        (folder.failure, failure),
    ):
        if record is not None:
            record.write(path)


def test_a_run_is_done_in_any_decoding_if_one_decoding_is(folder):
    assert state_in_any_decoding(folder) == "pending"
    write(folder, result=a_result())
    assert state_in_any_decoding(folder) == "done"  # a tuning run, which is not decoded
    write(folder, result=DONE)
    assert state_in_any_decoding(folder) == "done"
    folder.result.write_text("{")
    assert state_in_any_decoding(folder) == "interrupted"


LEFT, DECODING = a_progress(phase="left"), a_progress(phase="decoding")
DEAD = ProcessMark(host=socket.gethostname(), pid=2**22 + 1, born=None)  # and of no known start
LONG_AGO = a_progress(time=time.time() - 1e6)


@pytest.mark.parametrize(
    ("records", "decoding", "state"),
    [
        ({}, BEAM, "pending"),
        ({"progress": a_progress()}, BEAM, "running"),
        ({"progress": LONG_AGO}, BEAM, "running"),  # on this host a living process counts
        ({"progress": LEFT}, BEAM, "interrupted"),  # the process lives and has left the run
        ({"progress": a_progress(DEAD)}, BEAM, "interrupted"),
        ({"failure": a_failure()}, BEAM, "failed"),
        ({"failure": a_failure(), "progress": a_progress()}, BEAM, "running"),  # it is tried again
        ({"failure": a_failure(), "progress": LEFT}, BEAM, "failed"),
        ({"result": DONE}, BEAM, "done"),
        ({"result": DONE, "progress": LEFT}, BEAM, "done"),
        ({"result": DONE, "progress": DECODING}, BEAM, "done"),
        # A missing decoding waits, runs and fails as a training does.
        ({"result": DONE, "progress": LEFT}, GREEDY, "pending"),
        ({"result": DONE, "progress": DECODING}, GREEDY, "running"),
        ({"result": DONE, "progress": LEFT, "failure": a_failure()}, GREEDY, "failed"),
        ({"result": DONE, "progress": LEFT, "failure": a_failure()}, BEAM, "done"),
        ({"result": DIVERGED, "progress": LEFT}, BEAM, "diverged"),
        ({"result": DIVERGED, "progress": LEFT}, GREEDY, "diverged"),
    ],
)
def test_the_state_follows_from_the_records(folder, records, decoding, state):
    write(folder, **records)
    assert state_of(folder, decoding) == state


def test_a_run_without_a_folder_or_with_its_settings_alone_is_pending(folder, tmp_path):
    assert state_of(RunFolder(tmp_path / "nowhere"), BEAM) == "pending"
    a_run(folder.id).write(folder.run)
    assert state_of(folder, BEAM) == "pending"


def test_a_run_is_interrupted_once_its_process_has_died(folder, other):
    write(folder, a_progress(mark_of(other)))
    assert state_of(folder, BEAM) == "running"
    other.kill()
    other.wait()
    assert state_of(folder, BEAM) == "interrupted"


@pytest.mark.parametrize(
    ("seconds_ago", "state"),
    [(0, "running"), (HEARTBEAT_SECONDS - 10, "running"), (HEARTBEAT_SECONDS + 10, "interrupted")],
)
def test_on_another_host_the_age_of_the_report_decides(folder, seconds_ago, state):
    write(folder, a_progress(ELSEWHERE, time=time.time() - seconds_ago))
    assert state_of(folder, BEAM) == state


@pytest.mark.parametrize(
    ("seconds_ago", "state"), [(15, "running"), (HEARTBEAT_SECONDS + 10, "interrupted")]
)
def test_on_another_host_a_long_evaluation_shows_by_the_lease_that_its_process_renews(
    folder, seconds_ago, state
):
    write(
        folder, a_progress(ELSEWHERE, phase="evaluating", time=time.time() - 10 * HEARTBEAT_SECONDS)
    )
    folder.lease.touch()
    os.utime(folder.lease, (time.time() - seconds_ago,) * 2)
    assert state_of(folder, BEAM) == state
    write(folder, a_progress(ELSEWHERE, phase="left", time=time.time() - 10 * HEARTBEAT_SECONDS))
    assert state_of(folder, BEAM) == "interrupted"


def test_a_process_of_another_container_on_this_host_is_not_looked_up(folder):
    """Its id may be that of any process here, and its start, too."""
    ours = process_mark()
    assert ours.namespace is None or ours.namespace > 0
    elsewhere = ours.model_copy(update={"namespace": (ours.namespace or 0) + 1})
    gone = elsewhere.model_copy(update={"pid": 2**22 + 1})
    for mark in (elsewhere, gone):
        write(folder, a_progress(mark, time=time.time()))
        assert state_of(folder, BEAM) == "running"
        write(folder, a_progress(mark, time=time.time() - 2 * HEARTBEAT_SECONDS))
        assert state_of(folder, BEAM) == "interrupted"


def test_a_run_with_a_damaged_result_is_interrupted(folder):
    write(folder, result=DONE)
    assert fault_in_result(folder) is None
    folder.result.write_text("{")
    assert state_of(folder, BEAM) == "interrupted"
    assert str(fault_in_result(folder)).startswith(f"{folder.result}: is damaged")


def test_the_result_of_another_run_does_not_count(folder):
    write(folder, result=DONE.model_copy(update={"id": "f" * 12}))
    assert state_of(folder, BEAM) == "interrupted"
    assert "is the result of run ffffffffffff; `ablate run` makes it again" in str(
        fault_in_result(folder)
    )


def test_a_result_of_another_format_is_not_done_and_its_line_says_why(folder):
    write(folder, result=DONE)
    write_json(folder.result, {**read_json(folder.result), "format": 1})
    assert state_of(folder, BEAM) == "interrupted"
    assert "another version of ablate (format: Input should be 4); use" in str(
        fault_in_result(folder)
    )


def test_a_damaged_report_counts_as_absent(folder):
    folder.progress.write_text('{"step": 1')
    assert none_if_unreadable(folder.read_progress) is None
    assert state_of(folder, BEAM) == "pending"


@pytest.mark.parametrize(("off", "state"), [(0, "running"), (0.5, "running"), (1.5, "interrupted")])
def test_start_times_may_differ_by_a_clock_that_was_set(folder, other, off, state):
    mark = mark_of(other)
    for sign in (-1, 1):
        born = mark.born + sign * off * CLOCK_SECONDS
        write(folder, a_progress(mark.model_copy(update={"born": born})))
        assert state_of(folder, BEAM) == state
    write(folder, a_progress(mark.model_copy(update={"born": None})))
    assert state_of(folder, BEAM) == "interrupted"


def test_a_failure_lists_every_host_on_which_the_run_failed_once(folder, monkeypatch):
    before = None
    for host in ("sick", "well", "sick"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        record_failure(
            folder, f"reason on {host}", before, **({"killed": True} if host == "well" else {})
        )
        before = none_if_unreadable(folder.read_failure)
    assert (before.hosts, before.reason, before.killed) == (
        ("sick", "well"),
        "reason on sick",
        False,
    )


def test_a_provenance_that_cannot_be_read_counts_as_none(folder):
    assert none_if_unreadable(folder.read_provenance) is None
    a_provenance().write(folder.provenance)
    assert none_if_unreadable(folder.read_provenance) == a_provenance()
    folder.provenance.write_text("{")
    assert none_if_unreadable(folder.read_provenance) is None


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "log")
    assert last_lines(tmp_path / "log", 3) == []


def test_the_end_of_a_log_is_read_without_its_beginning(tmp_path):
    log = tmp_path / "log.txt"
    assert last_lines(log, 3) == []
    log.write_text("only\n")
    assert last_lines(log, 3) == ["only"]
    log.write_bytes(b"first\n" + "\u20ac".encode() * 20_000 + b"\n\n  \nnext\x1b[31m\nlast\n")
    assert [line.replace("\ufffd", "") for line in last_lines(log, 2)] == ["next\\x1b[31m", "last"]
    assert (
        last_lines(log, 3) == last_lines(log, 9)[1:] == ["\u20ac" * 20_000, "next\\x1b[31m", "last"]
    )
    log.write_bytes(b"a bar\r" * 20_000)  # which ends no line
    assert last_lines(log, 2) == ["a bar", "a bar"]
    # Only the end of a long log is read, which begins within a line.
    log.write_bytes(b"".join(b"%06d\n" % number for number in range(200_000)))
    found = last_lines(log, 200_000)
    assert 50_000 < len(found) < 200_000
    assert found == [f"{number:06d}" for number in range(200_000 - len(found), 200_000)]
