"""Faults of whole studies: several launchers at once, signals, kills at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

from tests.end_to_end.kills import compare
from tests.end_to_end.studies import ablate, command, outcome, write_study
from tests.faults.tally import Tally

TERM = 3.0  # seconds; the lease's term in these tests
SITE = Path(__file__).parent / "site"

MANY = """\
study: many
data: {corpus: toy, vocab_size: 200, max_length: 64}
base:
  {N: 1, d_model: 8, d_ff: 8, h: 1, train_steps: 4, batch_tokens: 256, warmup_steps: 2, eval_every: 4,
   checkpoint_every: 4, beam: 1, max_extra_length: 0}
seeds: [%s]
"""


def several_launchers(folder: Path, runs: int, launchers: int = 4, stops: int = 6) -> Tally:
    """Several launchers at one results root, with workers suspended for longer than the lease's
    term.
    """
    tally, draw = Tally(f"{launchers} launchers, some workers stopped"), random.Random(1)
    study = write_study(folder, MANY % ", ".join(map(str, range(1, runs + 1))), "many.yaml")
    root = folder / "many"
    path = os.pathsep.join([str(SITE), str(SITE.parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "ABLATE_TEST_TERM": str(TERM)}
    words = command("run", study, "--results", root, "--jobs", "1", "--device", "cpu")
    at_work = [
        subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(launchers)
    ]
    stopped: dict[int, float] = {}
    while any(process.poll() is None for process in at_work):
        time.sleep(0.1)
        working = [pid for pid in _holders(root) if pid not in stopped]
        if stops and len(stopped) < launchers - 1 and working and draw.random() < 0.5:
            pid, stops = draw.choice(working), stops - 1
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                stopped[pid] = time.monotonic() + TERM * draw.uniform(1.5, 3)
                tally.count("stopped")
        for pid, until in list(stopped.items()):
            if time.monotonic() > until:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
                del stopped[pid]
    said = [process.communicate()[0] for process in at_work]
    for process, text in zip(at_work, said, strict=True):
        if process.returncode != 0:
            tally.note(f"a launcher ended with {process.returncode}: {text[-300:]}", lost=True)
    logs = [path.read_text() for path in root.glob("runs/*/log.txt")]
    published = Counter(log.count(" published: ") for log in logs)
    tally.tries = runs
    tally.lost += runs - len(list(root.glob("runs/*/result.json")))
    tally.wrong += sum(count for times, count in published.items() if times > 1)
    tally.counts["taken over"] = sum(
        log.count("another process has taken over this run") for log in logs
    )
    if len({text[text.index("   PPL") :] for text in said if "   PPL" in text}) != 1:
        tally.note("the launchers print different tables", wrong=True)
    return tally


def _holders(root: Path) -> list[int]:
    """Ids of the processes that hold the lease of a run."""
    found = []
    for lease in root.glob("runs/*/lease"):
        with suppress(OSError):
            found += [
                int(line[4:]) for line in lease.read_text().splitlines() if line.startswith("pid=")
            ]
    return found


def random_kills(folder: Path, kills: int, seed: int = 1) -> Tally:
    """Kill launcher or workers with SIGKILL at random moments, and compare with an undisturbed
    study.
    """
    tally = Tally("kill -9 of launcher or worker, at random")
    folder.mkdir(parents=True, exist_ok=True)
    done, differing = compare(kills, seed, folder)
    tally.tries = sum(what.endswith("killed") for what in done)
    tally.counts.update(done)
    if differing:
        tally.note(f"differing: {differing}", wrong=True)
    return tally


def signals(folder: Path, tries: int, seed: int = 1) -> Tally:
    """SIGTERM or SIGINT to the launcher at random moments: state saved, exit within 5 s, no worker
    left.
    """
    tally, draw = Tally("SIGTERM or SIGINT, at random"), random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    study, root = write_study(folder), folder / "rough"
    ablate("run", study, "--results", folder / "calm")
    slowest = 0.0
    while tally.tries < tries:
        process = subprocess.Popen(
            command("run", study, "--results", root),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        time.sleep(draw.uniform(0.5, 9))
        if process.poll() is not None:
            process.communicate()
            draw.choice(sorted(root.glob("runs/*/result.json"))).unlink()
            continue
        workers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        began = time.monotonic()
        process.send_signal(draw.choice([signal.SIGTERM, signal.SIGINT]))
        said, _ = process.communicate()
        took = time.monotonic() - began
        slowest, tally.tries = max(slowest, took), tally.tries + 1
        if process.returncode not in (0, 130) or "Traceback" in said:
            tally.note(f"ended with {process.returncode}: {said[-200:]}", wrong=True)
        if took > 5 or any(psutil.pid_exists(pid) for pid in workers):
            tally.note(f"took {took:.1f} s", lost=True)
    ablate("run", study, "--results", root)
    calm, rough = outcome(folder / "calm"), outcome(root)
    if calm != rough:
        tally.note(
            f"differing: {[n for n in {*calm, *rough} if calm.get(n) != rough.get(n)]}", wrong=True
        )
    tally.counts[f"s the slowest: {slowest:.1f}"] = 1
    return tally
