"""The state of a run, derived from its files and from whether the process that wrote them still lives."""

import json
import socket
import subprocess
import sys
import time

import psutil
import pytest

from ablate.errors import StoreError
from ablate.store import RunFolder, state_of
from ablate.store.files import write_json
from ablate.store.layout import RESULT_FORMAT
from ablate.store.status import HEARTBEAT_SECONDS, STATES, damage_of, is_alive, process_mark, read_progress

BEAM, GREEDY = "0123456789ab", "ba9876543210"
SAYS = {"format": RESULT_FORMAT, "id": "0123456789ab"}
DONE = {**SAYS, "outcome": "done", "decodings": {BEAM: {"bleu": 25.8}}}
DIVERGED = {**SAYS, "outcome": "diverged", "reason": "the loss is not a finite number"}


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
    return {"host": socket.gethostname(), "pid": process.pid, "born": psutil.Process(process.pid).create_time()}


def elsewhere(seconds_ago):
    return {"host": "another-host", "pid": 1, "born": 1.0, "time": time.time() - seconds_ago}


def write(folder, progress=None, result=None, failure=None):
    for path, content in ((folder.progress, progress), (folder.result, result), (folder.failure, failure)):
        if content is not None:
            write_json(path, content)


def test_nothing_written_is_pending(folder):
    assert state_of(folder, BEAM) == "pending"


def test_a_folder_that_is_not_there_is_pending(tmp_path):
    assert state_of(RunFolder(tmp_path / "nowhere"), BEAM) == "pending"


def test_what_it_is_alone_is_pending(folder):
    write_json(folder.run, {"id": folder.id})
    assert state_of(folder, BEAM) == "pending"


def test_a_living_process_runs(folder):
    write(folder, {**process_mark(), "phase": "training"})
    assert state_of(folder, BEAM) == "running"


def test_another_living_process_runs_until_it_dies(folder, other):
    write(folder, {**mark_of(other), "phase": "training"})
    assert state_of(folder, BEAM) == "running"
    other.kill()
    other.wait()
    assert state_of(folder, BEAM) == "interrupted"


def test_a_recycled_process_number_is_another_process(folder, other):
    mark = mark_of(other)
    write(folder, {**mark, "born": mark["born"] - 3600, "phase": "training"})
    assert state_of(folder, BEAM) == "interrupted"


def test_a_process_of_which_no_start_is_known_is_not_alive(folder):
    write(folder, {"host": socket.gethostname(), "pid": 2**22 + 1, "born": None, "phase": "training"})
    assert state_of(folder, BEAM) == "interrupted"


def test_a_process_that_left_does_not_run_though_it_lives(folder):
    write(folder, {**process_mark(), "phase": "left"})
    assert state_of(folder, BEAM) == "interrupted"


@pytest.mark.parametrize(
    ("seconds_ago", "state"),
    [(0, "running"), (HEARTBEAT_SECONDS - 10, "running"), (HEARTBEAT_SECONDS + 10, "interrupted")],
)
def test_on_another_host_the_heartbeat_tells(folder, seconds_ago, state):
    write(folder, {**elsewhere(seconds_ago), "phase": "training"})
    assert state_of(folder, BEAM) == state


def test_this_host_needs_no_heartbeat(folder):
    write(folder, {**process_mark(), "phase": "training", "time": time.time() - 1e6})
    assert state_of(folder, BEAM) == "running"


def test_a_failure_shows_once_no_process_works_on_it(folder):
    write(folder, {**process_mark(), "phase": "training"}, failure={"reason": "OSError: full"})
    assert state_of(folder, BEAM) == "running"  # it is tried again
    write(folder, {**process_mark(), "phase": "left"})
    assert state_of(folder, BEAM) == "failed"


def test_a_failure_before_any_progress(folder):
    write(folder, failure={"reason": "the worker was ended by SIGKILL"})
    assert state_of(folder, BEAM) == "failed"


@pytest.mark.parametrize("progress", [None, "left", "decoding"])
def test_a_result_with_its_decoding_is_done(folder, progress):
    write(folder, progress and {**process_mark(), "phase": progress}, DONE)
    assert state_of(folder, BEAM) == "done"


def test_a_trained_run_with_another_decoding_is_pending(folder):
    write(folder, {**process_mark(), "phase": "left"}, DONE)
    assert state_of(folder, BEAM) == "done"
    assert state_of(folder, GREEDY) == "pending"


def test_another_decoding_of_a_trained_run_runs_and_fails_like_a_training(folder):
    write(folder, {**process_mark(), "phase": "decoding"}, DONE)
    assert state_of(folder, GREEDY) == "running"
    write(folder, {**process_mark(), "phase": "left"}, failure={"reason": "x"})
    assert state_of(folder, GREEDY) == "failed"
    assert state_of(folder, BEAM) == "done"


@pytest.mark.parametrize("decoding", [BEAM, GREEDY])
def test_divergence_is_a_result_however_it_is_decoded(folder, decoding):
    write(folder, {**process_mark(), "phase": "left"}, DIVERGED)
    assert state_of(folder, decoding) == "diverged"


def test_a_run_with_a_damaged_result_is_interrupted_and_says_why(folder):
    write(folder, result=DONE)
    assert damage_of(folder) is None
    folder.result.write_text("{")
    assert state_of(folder, BEAM) == "interrupted"
    assert damage_of(folder).startswith(f"{folder.result}: is damaged")


def test_the_result_of_another_run_is_not_this_one_s(folder):
    write(folder, result={**DONE, "id": "f" * 12})
    assert state_of(folder, BEAM) == "interrupted"
    assert "is the result of run ffffffffffff, not of this one" in damage_of(folder)


def test_a_result_of_another_format_is_refused_and_said(folder):
    write(folder, result={**DONE, "format": 1})
    with pytest.raises(StoreError, match=f"has format 1, and this ablate reads {RESULT_FORMAT}"):
        state_of(folder, BEAM)


def test_damaged_progress_is_none(folder):
    folder.progress.write_text('{"step": 1')
    assert read_progress(folder) is None
    assert state_of(folder, BEAM) == "pending"


def test_every_state_has_its_place_in_the_count(folder):
    assert len(STATES) == len(set(STATES)) == 6


def test_the_mark_of_this_process_is_alive_and_survives_json():
    mark = json.loads(json.dumps(process_mark()))
    assert is_alive({**mark, "phase": "training"})
    assert mark["born"] == pytest.approx(psutil.Process().create_time())
