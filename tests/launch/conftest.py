"""Workers that only play: processes which answer as a script tells them to, and start in no time."""

import json
import subprocess
import sys

import pytest

from ablate.launch import local
from ablate.launch.devices import Place
from ablate.launch.local import Pool
from ablate.run.job import Unit
from ablate.store import Results

# Reads units as a worker does; what it does with a run's first, second ... attempt stands in the run's folder.
PLAYER = """
import json, os, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
def note(what):
    with open(os.path.join(folder, "..", "notes"), "a") as notes:
        notes.write(json.dumps([what, os.path.basename(folder), os.getpid()]) + "\\n")
for line in sys.stdin:
    folder = json.loads(line)["folder"]
    plan = os.path.join(folder, "plan.json")
    first, *rest = json.load(open(plan))
    json.dump(rest, open(plan, "w"))
    note("began")
    if first == "sleep": time.sleep(0.2); first = "done"
    if first == "hang": time.sleep(60)
    if first == "until asked":
        while not asked: time.sleep(0.01)
        first = "interrupted"
    if isinstance(first, int): sys.exit(first) if first >= 0 else os.kill(os.getpid(), -first)
    note("ended")
    print(json.dumps({"run": os.path.basename(folder), "outcome": first}), flush=True)
    if first in ("interrupted", "failed"): break
"""


class Told:
    """A watcher that remembers."""

    def __init__(self):
        self.started_runs, self.outcomes, self.ticks = [], [], 0
        self.on_start = lambda run: None

    def started(self, run):
        self.started_runs.append(run)
        self.on_start(run)

    def finished(self, run, outcome, reason=""):
        self.outcomes.append((run, outcome))

    def tick(self):
        self.ticks += 1


class Play:
    """A pool of players."""

    def __init__(self, folder):
        self.results, self.told, self.elsewhere = Results(folder), Told(), {}
        self.runs = folder / "runs"
        self.runs.mkdir(parents=True)

    def __call__(self, plans, places=2):
        """Carry out these runs, each with the answers to its attempts."""
        for run, plan in plans.items():
            (self.runs / run).mkdir()
            (self.runs / run / "plan.json").write_text(json.dumps(plan))
        pool = Pool([Place("cpu", 1, 1e9)] * places, self.unit, self.results.run, self.elsewhere.get, self.told)
        pool.carry_out(list(plans))
        return self.told

    def unit(self, run, place):
        return Unit(str(self.runs / run), "", "", {}, place.device, {}, place.threads, 1)

    def notes(self, what="began"):
        """(run, process) of each attempt that the players noted, in order."""
        lines = (self.runs / "notes").read_text().splitlines()
        return [(run, pid) for kind, run, pid in map(json.loads, lines) if kind == what]

    def failure(self, run):
        return json.loads((self.runs / run / "failure.json").read_text())["reason"]


@pytest.fixture
def play(tmp_path, monkeypatch):
    start = subprocess.Popen

    def popen(command, **options):
        assert command[1:3] == ["-m", "ablate.run.worker"]
        return start([sys.executable, "-S", "-E", "-c", PLAYER], **options)

    monkeypatch.setattr(local.subprocess, "Popen", popen)
    monkeypatch.setattr(local, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(local, "TICK_SECONDS", 0.02)
    return Play(tmp_path)
