"""Signals, kills and two launchers at once: whatever happens, what comes out is what calm would have brought."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.conftest import Trained
from tests.end_to_end.kills import compare
from tests.end_to_end.studies import alive_in, command, outcome

PART = ("--rows", "base", "--seeds", "1", "--jobs", "2")  # one run, on one core as in calm
PATIENCE = 60  # seconds that a busy machine may need for what takes one


def until(happens, what):
    """Wait for something."""
    end = time.monotonic() + PATIENCE
    while not (found := happens()):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)
    return found


def launch(trained):
    """`ablate run`, in a process of its own."""
    return subprocess.Popen(
        command("run", trained.file, "--results", trained.root, *PART),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def phases(trained):
    """What the runs report that they are at."""
    found = []
    for path in trained.root.glob("runs/*/progress.json"):
        with suppress(json.JSONDecodeError, FileNotFoundError):
            found.append(json.loads(path.read_text())["phase"])
    return found


def states(trained):
    runs = json.loads(trained.ask("status", *PART[:4], "--format", "json").out)["runs"]
    return [run["state"] for run in runs]


def runs_of(root, like=None):
    """What must come out the same of the runs in a root; `like`: only of those that are also there."""
    found = {name: content for name, content in outcome(root).items() if name.startswith("runs/")}
    return {name: content for name, content in found.items() if like is None or name in like}


def logs(trained):
    return "".join(path.read_text() for path in trained.root.glob("runs/*/log.txt"))


def children(process):
    return [child.pid for child in psutil.Process(process.pid).children()]


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def history(calm, tmp_path_factory):
    """One study that is stopped in every way, one after the other; what was seen each time."""
    folder = tmp_path_factory.mktemp("rough")
    shutil.copytree(calm.root / "corpora", folder / "results" / "corpora")
    rough, seen = Trained(Path(shutil.copy(calm.file, folder)), folder / "results"), {}

    launcher = launch(rough)  # killed before its workers have loaded torch, but not before they have work
    workers = until(lambda: children(launcher), "a worker")
    launcher.kill()
    launcher.communicate()
    until(lambda: all(is_gone(pid) for pid in workers), "orphans end")
    seen["orphans"] = sorted(path.name for path in rough.root.glob("runs/*/result.json"))

    for name, number, phase in (("SIGINT", signal.SIGINT, "starting"), ("SIGTERM", signal.SIGTERM, "decoding")):
        launcher = launch(rough)
        until(lambda phase=phase: phase in phases(rough), phase)
        workers = children(launcher)
        launcher.send_signal(number)
        said, _ = launcher.communicate(timeout=PATIENCE)
        seen[name] = launcher.returncode, said, states(rough), all(is_gone(pid) for pid in workers)

    launcher = launch(rough)
    until(lambda: set(phases(rough)) & {"starting", "decoding"}, "work")
    began = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.05)
    launcher.send_signal(signal.SIGINT)
    said, _ = launcher.communicate(timeout=PATIENCE)
    seen["twice"] = launcher.returncode, said, states(rough), time.monotonic() - began

    launcher = launch(rough)
    victim = until(lambda: alive_in(rough.root), "a worker at work")[0]
    os.kill(victim, signal.SIGKILL)
    said, _ = launcher.communicate(timeout=4 * PATIENCE)
    seen["worker killed"] = launcher.returncode, said
    return rough, seen


def test_workers_whose_launcher_is_killed_leave_even_if_they_have_not_begun(history):
    assert history[1]["orphans"] == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_tells_how_to_go_on(history, name):
    code, said, found, gone = history[1][name]
    assert code == 130
    assert said.endswith("Interrupted. The same command resumes.\n")
    assert "Traceback" not in said
    assert found == ["interrupted"]
    assert gone


def test_a_second_signal_does_not_wait(history):
    code, said, found, seconds = history[1]["twice"]
    assert code == 130
    assert "Traceback" not in said
    assert seconds < 10
    assert found == ["interrupted"]


def test_a_worker_that_is_killed_is_replaced_in_the_same_launch(history):
    code, said = history[1]["worker killed"]
    assert code == 0
    assert "failed" not in said
    assert said.count("done     ") == 1


def test_an_interrupted_run_goes_on_from_where_it_was(history):
    assert "resumed at step" in logs(history[0])


def test_what_was_interrupted_comes_out_as_if_it_had_not_been(history, calm):
    rough = history[0]
    assert states(rough) == ["done"]
    came_out = runs_of(rough.root)
    kinds = sorted(Path(name).name.partition(".")[2] for name in came_out)
    assert kinds == ["jsonl", "txt", "weights.safetensors"]
    assert came_out == runs_of(calm.root, like=came_out)


def test_two_launchers_at_once_train_every_run_once(fresh, calm):
    launchers = [launch(fresh) for _ in range(2)]
    said = [launcher.communicate(timeout=4 * PATIENCE)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0]
    tables = [text[text.index("   PPL") :] for text in said]
    assert tables[0] == tables[1]
    assert "pending" not in tables[0]
    assert "resumed at step" not in logs(fresh)
    assert "Traceback" not in logs(fresh)
    came_out = runs_of(fresh.root)
    assert came_out == runs_of(calm.root, like=came_out)


def test_random_kills_change_nothing(calm, tmp_path):
    done, differing = compare(kills=10, seed=1, folder=tmp_path, longest=3.0, undisturbed=calm.root)
    assert sum(what.endswith("killed") for what in done) == 10
    assert differing == []
