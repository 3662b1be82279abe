"""The worker process: events on standard output alone, and a clean end when its launcher is
gone.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ablate.config import DecodingConfig
from ablate.config.resolve import resolve_row
from ablate.data.corpus import Corpus
from ablate.errors import Interrupted, StoreError
from ablate.store import RunFolder, checkpoints, none_if_unreadable
from ablate.store.lease import Lease, LeaseLost
from ablate.store.records import Execution, Progress
from ablate.training import RunHooks
from ablate.workers.assignment import (
    NO_MORE_ASSIGNMENTS,
    READY,
    Assignment,
    RunRequest,
    WorkerEvent,
)
from ablate.workers.pipeline import execute
from ablate.workers.run_inputs import RunInputs
from ablate.workers.worker import execute_if_free, failure_reason, run_logger
from tests.records import RUN, a_failure, a_run
from tests.training.conftest import TINY, logger_to, toy  # noqa: F401

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
WORKER = [sys.executable, "-m", "ablate.workers.worker"]


@pytest.fixture
def job(toy, tmp_path):  # noqa: F811
    """Make the job of a new run on the toy corpus; keywords are settings of its row."""

    def job(id=RUN, **settings):
        config = resolve_row({**TINY, **settings})
        folder = RunFolder(tmp_path / "runs" / id)
        a_run(id, config=config).write(folder.run)
        decoding = DecodingConfig(beam=1, max_extra_length=0)
        request = RunRequest(
            folder=folder.path,
            corpus=toy.folder,
            test="test",
            decodings={"abc": decoding},
            settings={},
        )
        return Assignment(run=request, devices=("cpu",), threads=1, micro_batch_tokens=1000)

    return job


def wait(condition, seconds=90):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return value


def test_a_worker_whose_parent_is_gone_works_until_its_input_ends(job, tmp_path):
    """The shell exits at once. Only standard input connects the worker to its launcher."""
    script = 'exec 3<&0; "$@" <&3 & exit 0'
    shell = subprocess.Popen(
        ["sh", "-c", script, "sh", *WORKER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=ENVIRONMENT, text=True,
    )  # fmt: skip
    assert shell.wait() == 0
    assert shell.stdout.readline() == READY
    first, second = job(train_steps=2), job("f" * 12, train_steps=2)
    for one in (first, second):
        shell.stdin.write(one.to_line())
        shell.stdin.flush()
        assert WorkerEvent.from_line(shell.stdout.readline()) == WorkerEvent(
            run=one.run.id, outcome="done"
        )
        assert RunFolder(one.run.folder).read_result().outcome == "done"
    shell.stdin.close()
    assert shell.stdout.read() == ""  # the end of its output is the end of the worker
    shell.stdout.close()


def test_jobs_from_a_file_are_all_executed_if_it_ends_with_an_empty_line(job):
    """The end of standard input alone means that the launcher is gone."""
    jobs = [job(train_steps=3), job("f" * 12, train_steps=3)]
    text = "".join(one.to_line() for one in jobs)
    whole = subprocess.run(
        WORKER,
        input=text + NO_MORE_ASSIGNMENTS,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
        timeout=90,
        check=True,
    )
    assert whole.stdout == READY + "".join(
        WorkerEvent(run=one.run.id, outcome="done").to_line() for one in jobs
    )


LAUNCHER = """
import sys, time
from ablate.launch.executor import Slot
from ablate.launch.local import LocalExecutor
from ablate.workers.assignment import Assignment
slot = Slot("0", ("cpu",), 1, 1e9)
executor = LocalExecutor([slot])
executor.submit(Assignment.from_line(sys.stdin.readline()), slot)
time.sleep(600)
"""


def test_a_worker_saves_its_run_when_its_launcher_is_killed(job, tmp_path):
    endless = job(train_steps=1_000_000, eval_every=1_000_000, checkpoint_every=1_000_000)
    folder = RunFolder(endless.run.folder)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER],
        stdin=subprocess.PIPE,
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
    )
    try:
        launcher.stdin.write(endless.to_line())
        launcher.stdin.flush()
        wait(
            lambda: (
                (report := none_if_unreadable(folder.read_progress)) is not None
                and report.phase == "training"
            )
        )
        assert not folder.checkpoints.exists()
    finally:
        launcher.kill()
        launcher.communicate()
    wait(lambda: not folder.lease.exists())
    assert none_if_unreadable(folder.read_progress).phase == "left"
    checkpoint, skipped = checkpoints.newest(folder.checkpoints)
    assert (checkpoint.step > 0, skipped) == (True, [])
    lines = []
    with pytest.raises(Interrupted):
        execute(endless, RunHooks(logger_to(lines), stop_requested=lambda: True))
    assert lines == [f"resumed at step {checkpoint.step}"]


NOISY = """
import os, signal, sys
from ablate.workers import worker
from ablate.workers.assignment import WorkerEvent
def noisy(job, stop, leases, log_descriptors):
    print("a line that a library prints", flush=True)
    os.write(1, b"and one that it writes below Python\\n")
    worker.run_logger(2).info("a log line")
    os.kill(os.getpid(), signal.SIGTERM)
    return WorkerEvent(run=job.run.id, outcome="interrupted" if stop() else "done")
worker.execute_if_free = noisy
sys.exit(worker.main())
"""


def test_only_events_are_written_to_standard_output_and_a_signal_ends_the_worker(job):
    one = job()
    done = subprocess.run(
        [sys.executable, "-c", NOISY], input=one.to_line() * 3, capture_output=True, text=True, env=ENVIRONMENT,
        timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stdout == READY + WorkerEvent(run=one.run.id, outcome="interrupted").to_line()
    assert done.stderr.splitlines()[:2] == [
        "a line that a library prints",
        "and one that it writes below Python",
    ]
    assert done.stderr.endswith(" a log line\n")


def forked(work):
    """The result of some work in a child process, which may redirect its standard error."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        content = stream.read()
    os.waitpid(pid, 0)
    return json.loads(content)


def never():
    return False


def test_a_run_whose_lease_is_held_is_left_alone(job):
    one = job()
    folder = RunFolder(one.run.folder)
    lease = Lease(folder.lease)
    assert lease.try_to_take()
    before = sorted(path.name for path in folder.path.iterdir())
    assert forked(lambda: execute_if_free(one, never, {}).model_dump())["outcome"] == "held"
    assert sorted(path.name for path in folder.path.iterdir()) == before
    lease.release()


def test_a_failure_is_recorded_with_its_reason_and_the_traceback_is_logged(job):
    one = job()
    folder = RunFolder(one.run.folder)
    folder.run.unlink()
    event = forked(lambda: execute_if_free(one, never, {}).model_dump())
    assert event == {"run": RUN, "outcome": "failed", "reason": f"{folder.run}: is missing"}
    failure = folder.read_failure()
    assert (failure.reason, failure.killed) == (event["reason"], False)
    assert "Traceback" in folder.log.read_text()
    assert not folder.lease.exists()


def test_a_failure_after_a_lost_lease_is_not_recorded_in_the_next_holder_s_folder(job, monkeypatch):
    one = job()
    folder = RunFolder(one.run.folder)
    others = a_failure(hosts=("other",))

    def lose_and_fail(job, context):
        monkeypatch.setattr(Lease, "is_lost", True)
        others.write(folder.failure)
        raise ValueError("broken")

    monkeypatch.setattr("ablate.workers.worker.execute", lose_and_fail)
    event = forked(lambda: execute_if_free(one, never, {}).model_dump())
    assert (event["outcome"], event["reason"]) == ("failed", "ValueError: broken")
    assert folder.read_failure() == others


def test_a_run_of_another_device_is_left_as_it_is_for_other_launchers(job):
    one = job()
    folder = RunFolder(one.run.folder)
    begun = Execution(
        training_hash=Corpus(one.run.corpus).training_hash,
        device="cuda",
        threads=1,
        micro_batch_tokens=1000,
        precision="fp32",
    )
    begun.write(folder.execution)
    event = forked(lambda: execute_if_free(one, never, {}).model_dump())
    assert (event["outcome"], "use --device cuda" in event["reason"]) == ("unsuitable", True)
    assert not folder.failure.exists()
    assert folder.read_execution() == begun
    assert not folder.lease.exists()


def test_a_failure_names_the_hosts_on_which_the_run_has_failed(job, monkeypatch):
    one = job()
    folder = RunFolder(one.run.folder)
    folder.run.unlink()
    for host, expected in (
        ("first", ("first",)),
        ("first", ("first",)),
        ("second", ("first", "second")),
    ):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        forked(lambda: execute_if_free(one, never, {}).model_dump())
        assert folder.read_failure().hosts == expected


def test_a_crash_does_not_make_forget_on_which_hosts_a_run_has_failed(job):
    """Else hosts could try it in turns, for ever. A new attempt that is only interrupted makes the
    failure history.
    """
    one = job()
    folder = RunFolder(one.run.folder)
    a_failure(hosts=("first",)).write(folder.failure)
    pid = os.fork()
    if not pid:
        execute_if_free(one, lambda: os._exit(1), {})
    os.waitpid(pid, 0)
    assert none_if_unreadable(folder.read_progress).phase == "training"
    assert (folder.read_failure().hosts, folder.read_failure().killed) == (("first",), True)
    assert (
        forked(lambda: execute_if_free(one, lambda: True, {}).model_dump())["outcome"]
        == "interrupted"
    )
    assert not folder.failure.exists()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (None, "LeaseLost"),
        (StoreError("has no valid checkpoint"), "LeaseLost"),
        (ValueError("broken"), "ValueError"),
    ],
    ids=["stops", "fails", "breaks"],
)
def test_a_decoding_that_ends_after_the_lease_is_lost_leaves_the_files_of_the_next_holder(
    job, monkeypatch, error, raised
):
    """The loss shows as a request to stop, or as a checkpoint that is gone. The files are another's
    by then.
    """
    one = job()
    folder = RunFolder(one.run.folder)
    others = a_failure(hosts=("other",)), Progress(host="other", pid=1, born=1.0, phase="training")
    lost = []

    def lose():
        others[0].write(folder.failure)
        others[1].write(folder.progress)
        lost.append(True)

    def check_lease():
        if lost:
            raise LeaseLost("lease")

    def evaluate(self, decoding, result, enter):
        lose()
        if error is not None:
            raise error
        enter("measuring")

    def end():
        with pytest.raises((LeaseLost, Interrupted, StoreError, ValueError)) as caught:
            execute(one, RunHooks(logging.getLogger(), check_lease, lambda: bool(lost)))
        return caught.type.__name__

    monkeypatch.setattr(RunInputs, "evaluate", evaluate)
    name = forked(end)
    assert (folder.read_failure(), folder.read_progress()) == others
    assert name == raised


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device", "/x/y"), "/x/y: No space left on device; the run resumes from its last"),
        (OSError(5, "Input/output error"), "/runs/0123456789ab: Input/output error; the run resumes from its last"),
        (StoreError("/x: is damaged"), "/x: is damaged"),
        (ValueError("one line\nand another"), "ValueError: one line"),
        (KeyError(), "KeyError"),
    ],
)  # fmt: skip
def test_a_failure_is_described_in_one_line(error, reason):
    line = failure_reason(error, RunFolder(Path("/runs") / RUN))
    assert line.startswith(reason)
    assert "\n" not in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_loses_log_lines_and_nothing_else(tmp_path, capfd):
    with Path("/dev/full").open("wb", buffering=0) as full, (tmp_path / "log").open("wb") as file:
        with pytest.raises(OSError, match="No space left"):
            full.write(b"x")
        log = run_logger(full.fileno())
        log.info("lost")
        log = run_logger(file.fileno())  # the same logger, with one handler
        log.info("step %d", 3)
        log.warning("broken %s \udcff")
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "log").read_text().splitlines()[0].endswith(" step 3")
    logging.getLogger("ablate.run").handlers = []


def test_a_signal_to_a_worker_without_a_job_ends_it(tmp_path):
    worker = subprocess.Popen(
        WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=ENVIRONMENT
    )
    status = Path(f"/proc/{worker.pid}/status")
    wait(
        lambda: (
            int(status.read_text().partition("SigCgt:\t")[2].split()[0], 16)
            & (1 << (signal.SIGTERM - 1))
        )
    )
    worker.terminate()
    assert worker.wait(timeout=60) == 0
    worker.communicate()
