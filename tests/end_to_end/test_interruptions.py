"""Signals, kills and two launchers at once: the results equal those of an uninterrupted study."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.kills import compare
from tests.end_to_end.studies import alive_in, command, outcome
from tests.forked import Forked
from tests.trained import Trained

PART = ("--rows", "base", "--seeds", "1", "--jobs", "2")  # one run on one core, as in `calm`
PATIENCE = 60  # seconds; on a busy machine, work of one second may take this long


def until(happens, what):
    """Wait until a condition holds; fail with `what` after PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while not (found := happens()):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.005)
    return found


def launch(trained):
    """Start `ablate run` in a new process."""
    return subprocess.Popen(
        command("run", trained.file, "--results", trained.root, *PART),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def phases(trained):
    """Phases that the runs report."""
    found = []
    for path in trained.root.glob("runs/*/progress.json"):
        with suppress(json.JSONDecodeError, FileNotFoundError):
            found.append(json.loads(path.read_text())["phase"])
    return found


def states(trained):
    runs = trained.data("status", *PART[:4])["runs"]
    return [run["state"] for run in runs]


def runs_of(root, like=None):
    """Files of the runs that must not differ; with `like`, only of the runs that are in that root
    too.
    """
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
    """One study that is stopped in every way, one after another, with the output and state of each
    time.
    """
    folder = tmp_path_factory.mktemp("rough")
    shutil.copytree(calm.root / "corpora", folder / "results" / "corpora")
    rough, seen = Trained(Path(shutil.copy(calm.file, folder)), folder / "results"), {}

    launcher = launch(
        rough
    )  # killed after the workers have received work, but before they have loaded torch
    workers = until(lambda: children(launcher), "a worker")
    launcher.kill()
    launcher.communicate()
    until(lambda: all(is_gone(pid) for pid in workers), "orphans end")
    seen["orphans"] = sorted(path.name for path in rough.root.glob("runs/*/result.json"))

    for name, number, phase in (
        ("SIGINT", signal.SIGINT, "starting"),
        ("SIGTERM", signal.SIGTERM, "decoding"),
    ):
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


def test_workers_exit_after_their_launcher_is_killed_even_before_they_begin(history):
    assert history[1]["orphans"] == []


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_prints_how_to_resume(history, name):
    code, said, found, gone = history[1][name]
    assert code == 130
    assert re.search(
        r"Interrupted: 0 of 1 run done(; saved: base at step \d+)?\. The same command resumes\.\n$",
        said,
    )
    assert "Traceback" not in said
    assert found == ["interrupted"]
    assert gone


def test_a_second_signal_ends_the_workers_at_once(history):
    code, said, found, seconds = history[1]["twice"]
    assert code == 130
    assert "Traceback" not in said
    assert seconds < 10
    assert found == ["interrupted"]


def test_a_killed_worker_is_replaced_in_the_same_launch(history):
    code, said = history[1]["worker killed"]
    assert code == 0
    assert "failed" not in said
    assert said.count("done     ") == 1


def test_an_interrupted_run_resumes_at_its_last_step(history):
    assert "resumed at step" in logs(history[0])


def test_interrupted_runs_give_the_results_of_uninterrupted_ones(history, calm):
    rough = history[0]
    assert states(rough) == ["done"]
    came_out = runs_of(rough.root)
    kinds = sorted(Path(name).name.partition(".")[2] for name in came_out)
    assert kinds == ["jsonl", "txt", "weights.safetensors"]
    assert came_out == runs_of(calm.root, like=came_out)


def test_two_concurrent_launchers_train_every_run_once(fresh, calm):
    words = ("run", fresh.file, "--results", fresh.root, *PART)
    launchers = [Forked("ablate.cli", *words) for _ in range(2)]
    said = [launcher.communicate()[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0]
    tables = [text[text.index("   PPL") :] for text in said]
    assert tables[0] == tables[1]
    assert "pending" not in tables[0]
    assert "resumed at step" not in logs(fresh)
    assert "Traceback" not in logs(fresh)
    came_out = runs_of(fresh.root)
    assert came_out == runs_of(calm.root, like=came_out)


def test_random_kills_do_not_change_the_results(tmp_path):
    done, differing = compare(kills=5, seed=1, folder=tmp_path, pause=(0.0, 1.0))
    assert sum(what.endswith("killed") for what in done) == 5
    logs = [path.read_text() for path in tmp_path.glob("rough/runs/*/log.txt")]
    assert "resumed at step" in "".join(logs)
    assert differing == []
