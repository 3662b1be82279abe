"""Several processes work on one run, over gloo: the same bytes as one, and no process is left
behind.
"""

import os
import signal
import subprocess
import time

import psutil
import pytest
import torch

from ablate.errors import Interrupted
from ablate.launch.executor import Lost, Slot
from ablate.launch.local import LocalExecutor
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.lease import LeaseLost
from ablate.training import RunHooks
from ablate.workers import ranks
from ablate.workers.assignment import Assignment
from ablate.workers.execution import choose_execution
from ablate.workers.pipeline import execute
from ablate.workers.run_inputs import RunInputs
from tests.forked import Forked
from tests.training.conftest import logger_to, toy  # noqa: F401
from tests.workers.test_worker import ENVIRONMENT, job, wait  # noqa: F401

OTHER = "f" * 12


def on(job, processes):  # noqa: F811
    """The job with this number of processes."""
    return job.model_copy(update={"devices": ("cpu",) * processes})


def begin(job, parts):  # noqa: F811
    """Let the run begin in this number of parts, without any training."""
    inputs = RunInputs.read(job)
    lines = []
    choose_execution(
        inputs.folder, on(job, parts), inputs.config, inputs.corpus.training_hash, logger_to(lines)
    )


def content(job):  # noqa: F811
    """The bytes of a run that any result depends on."""
    folder = RunFolder(job.run.folder)
    files = [
        *folder.checkpoints.iterdir(),
        folder.metrics,
        folder.predictions("abc"),
        folder.execution,
    ]
    found = {path.name: path.read_bytes() for path in files}
    return found, folder.read_result().decodings["abc"].scores


def followers():
    """The processes of other ranks that this one has started, and that live."""
    ours = [process for process in Forked.started if process.module == "ablate.workers.follower"]
    return [process for process in ours if process.poll() is None]


def test_four_processes_give_the_bytes_of_one(job):  # noqa: F811
    four, one = on(job(), 4), job(OTHER)
    begin(one, 4)
    lines = []
    for each in (four, one):
        assert execute(each, RunHooks(logger_to(lines))) == "done"
        assert followers() == []
    assert [line for line in lines if "processes" in line] == ["4 processes work on this run"]
    assert content(four) == content(one)
    folder = RunFolder(four.run.folder)
    assert folder.read_execution().parts == 4
    assert folder.read_provenance().processes == 4


def test_a_run_goes_from_two_processes_to_one_and_to_four(job):  # noqa: F811
    cut, whole = job(), job(OTHER)
    for each in (cut, whole):
        begin(each, 4)
    assert execute(whole, RunHooks()) == "done"
    for processes, asked in ((2, 3), (1, 4)):
        answers = iter([False] * asked)
        with pytest.raises(Interrupted):
            execute(
                on(cut, processes),
                RunHooks(stop_requested=lambda answers=answers: next(answers, True)),
            )
        assert followers() == []
    lines = []
    assert execute(on(cut, 4), RunHooks(logger_to(lines))) == "done"
    assert any(line.startswith("resumed at step") for line in lines)
    assert content(cut) == content(whole)


def test_more_processes_than_parts_are_not_started(job):  # noqa: F811
    one = job(train_steps=2)
    begin(one, 1)
    lines = []
    assert execute(on(one, 4), RunHooks(logger_to(lines))) == "done"
    assert not any("processes" in line for line in lines)


def test_a_run_whose_lease_is_lost_ends_all_processes_and_publishes_nothing(job):  # noqa: F811
    """The lease is checked at each save; the first one falls into step 4."""
    checks = []

    def check_lease():
        checks.append(len(followers()))
        if len(checks) > 3:
            raise LeaseLost("taken")

    with pytest.raises(LeaseLost):
        execute(on(job(), 2), RunHooks(check_lease=check_lease))
    assert checks[-1] == 1
    assert followers() == []
    assert not RunFolder(job().run.folder).result.exists()


@pytest.mark.parametrize("processes", [3, 6])
def test_only_powers_of_two_are_accepted(job, processes):  # noqa: F811
    with pytest.raises(ValueError, match=f"processes is {processes}, not a power of two"):
        Assignment(**{**job().model_dump(), "devices": ("cpu",) * processes})


def test_if_one_process_is_killed_the_others_end_and_the_run_resumes(job, monkeypatch):  # noqa: F811
    """The executor sees the end of the first process, and tries again; no process is forked."""
    monkeypatch.setattr("ablate.launch.local.subprocess", subprocess)
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    settings = {"train_steps": 40, "eval_every": 1000, "checkpoint_every": 5}
    hit, whole = on(job(**settings), 2), job(OTHER, **settings)
    begin(whole, 2)
    folder, slot = RunFolder(hit.run.folder), Slot("0", ("cpu", "cpu"), 1, 1e9)
    executor = LocalExecutor([slot])
    try:
        executor.submit(hit.model_copy(update={"report_seconds": 0.01}), slot)
        wait(
            lambda: (
                (report := none_if_unreadable(folder.read_progress)) is not None
                and (report.step or 0) > 5
            )
        )
        children = psutil.Process().children(recursive=True)
        (follower,) = [child for child in children if "ablate.workers.follower" in child.cmdline()]
        worker, killed = follower.parent(), time.monotonic()
        os.kill(follower.pid, signal.SIGKILL)
        (lost,) = wait(lambda: executor.events(0.1))
        assert time.monotonic() - killed < 30  # and not after a timeout of the process group
        assert lost == Lost(hit.run.id, lost.reason, from_outside=True)
        assert not worker.is_running()
        assert "rank 1 has ended with exit code -9" in folder.log.read_text()
        executor.submit(hit, slot)
        (event,) = wait(lambda: executor.events(0.1))
        assert event.outcome == "done"
        assert "resumed at step" in folder.log.read_text()
    finally:
        executor.close()
    assert execute(whole, RunHooks()) == "done"
    assert content(hit) == content(whole)
    assert not follower.is_running()


def test_a_failed_join_raises_its_cause(job, monkeypatch):  # noqa: F811
    """Without a group, there is none to leave."""

    def refuse(*arguments):
        raise ValueError("no port is free")

    monkeypatch.setattr(ranks, "FOLLOWER", ["sleep", "60"])
    monkeypatch.setattr(ranks.collectives, "join", refuse)
    with (
        pytest.raises(ValueError, match="no port is free"),
        ranks.rank_group(on(job(), 2), 2, torch.device("cpu"), logger_to([])),
    ):
        pass
