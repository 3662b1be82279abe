"""Runs that fail or diverge, and the live table in a terminal."""

import fcntl
import os
import pty
import re
import resource
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager, suppress

import pytest
import torch

from ablate.training import RunHooks
from ablate.workers.pipeline import execute
from tests.end_to_end.studies import outcome
from tests.records import a_failure

LABEL = "A h=1"


def take_back(run):
    """Undo the end of a run."""
    run.result.unlink()
    shutil.rmtree(run.checkpoints)


@contextmanager
def files_of_at_most(size):
    """Let this process and the workers that it starts write no larger file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def statuses(trained):
    runs = trained.data("status")["runs"]
    return {(run["row"], run["seed"]): run for run in runs}


def test_a_failed_run_is_listed_and_runs_again_only_with_retry_failed(copy, calm, monkeypatch):
    run = copy.folder(LABEL)
    take_back(run)
    with files_of_at_most(20_000), monkeypatch.context() as patch:
        # bytes: less than the optimizer state, more than any record
        patch.setattr("ablate.launch.local.subprocess", subprocess)  # a forked one has no limit
        failed = copy.run()
    assert failed.code == 1
    assert "failed   A h=1 seed 1" in failed.err
    table = failed.out[failed.out.index("   PPL") :]
    assert "1 of 2 seeds done; failed" in table
    found = statuses(copy)
    assert [key for key, status in found.items() if status["state"] != "done"] == [(LABEL, 1)]
    detail = found[LABEL, 1]["detail"]
    remedy = r"the run resumes from its last checkpoint; see .*log\.txt; --retry-f"
    assert re.search(rf"checkpoints/\S+: \w.*; {remedy}", detail)
    assert str(run.log) in detail
    assert "Traceback" in run.log.read_text()

    with monkeypatch.context() as patch:
        patch.setattr("ablate.launch.local._Worker", None)  # none may start
        again = copy.run()
    assert again.code == 1
    assert again.out.startswith(table_of(copy))
    assert "1 run failed" in again.err
    assert "--retry-failed" in again.err

    repaired = copy.run("--retry-failed")
    assert repaired.code == 0
    assert "1 of 4 runs to do" in repaired.err
    assert not run.failure.exists()
    assert outcome(copy.root) == outcome(calm.root)


def test_a_run_whose_workers_were_killed_is_tried_again_by_the_same_command(copy, calm):
    """A kill from outside gives no reason to expect another one."""
    run = copy.folder(LABEL)
    take_back(run)
    a_failure(reason="the worker was ended by SIGKILL", killed=True, time=0.0).write(run.failure)
    assert statuses(copy)[LABEL, 1]["state"] == "failed"
    assert statuses(copy)[LABEL, 1]["detail"].endswith("; the next `ablate run` runs it again")
    again = copy.run()
    assert (again.code, run.failure.exists()) == (0, False)
    assert outcome(copy.root) == outcome(calm.root)


def table_of(trained):
    return trained.ask("table").out


@pytest.fixture
def diverged(copy, monkeypatch):
    """A run that has diverged, because the limit of the loss is set very low."""
    take_back(copy.folder(LABEL))
    threads = torch.get_num_threads()
    monkeypatch.setattr("ablate.training.trainer.EXPLODED", 0.1)
    try:
        assert execute(copy.assignment(LABEL), RunHooks()) == "diverged"
    finally:
        torch.set_num_threads(threads)
    return copy


def test_a_diverged_run_is_a_result_and_is_never_tried_again(diverged, no_workers):
    for words in ([], ["--retry-failed"]):
        done = diverged.run(*words)
        assert done.code == 0
        assert "1 of 2 seeds done; diverged at step 10: the loss exploded to" in done.out
    found = statuses(diverged)
    assert [key for key, status in found.items() if status["state"] != "done"] == [(LABEL, 1)]
    assert found[LABEL, 1]["state"] == "diverged"
    assert re.fullmatch(
        r"10 steps in \d+ s: the loss exploded to [\d.]+ nats a token", found[LABEL, 1]["detail"]
    )
    row = diverged.data("table")["rows"][1]
    assert (row["state"], row["bleu"]["n"]) == ("diverged", 1)
    assert not list(diverged.folder(LABEL).checkpoints.glob("*"))


def in_a_terminal(words, columns):
    """Run a command in a terminal of this width: (exit code, output)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | {
        "TERM": "xterm"
    }
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    with suppress(OSError):  # raised when the other end closes
        while part := os.read(ours, 1 << 16):
            sent += part
    os.close(ours)
    return process.wait(), sent.decode()


def test_a_terminal_shows_live_progress_and_then_a_table_of_its_width(copy):
    take_back(copy.folder(LABEL))
    # the run may take less than a tick
    often = "from ablate.launch import scheduler; scheduler.TICK_SECONDS = 0.02"
    begin = f"{often}; from ablate.cli import main; main()"
    words = [sys.executable, "-c", begin, "run", str(copy.file), "--results", str(copy.root)]
    code, sent = in_a_terminal(words, columns=80)
    assert code == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent).replace("\r\n", "\n")
    assert "tiny: 3 of 4 runs" in text
    assert re.search(
        r"A h=1 +1/2 .*(starting|/30|measuring|decoding)", text
    )  # its row shows its progress
    table = text[text.rindex("Base reaches") :].splitlines()
    assert max(map(len, table)) <= 80
    assert "…" not in "".join(table)
    assert any(re.fullmatch(r"A h=1 +\S+ ±\S+ +0\.0 +\S+ ×÷\S+ +0\.00858", line) for line in table)


def test_run_decodes_damaged_translations_again_and_makes_room_for_files(copy, calm):
    """A damaged translation, a result that is a folder, and a file in place of a folder of
    scores.
    """
    translations = sorted(copy.root.glob("runs/*/translations/*.txt"))
    translations[0].write_text("other text\n")
    run = copy.folder("A h=1")
    run.result.unlink()
    run.result.mkdir()
    scores = copy.folder("base", 2).scores("").parent
    shutil.rmtree(scores, ignore_errors=True)
    scores.write_text("")
    table = copy.ask("table")
    assert table.code == 0
    assert (
        f"{translations[0]}: is damaged (its SHA-256 is not the one written); `ablate run` decodes "
        f"it" in table.out
    )
    assert (
        f"{run.result}: is damaged (a folder in place of a file); `ablate run` makes it again"
        in table.out
    )
    done = copy.run()
    assert done.code == 0
    assert outcome(copy.root) == outcome(calm.root)
    assert "is damaged" not in copy.ask("table").out
