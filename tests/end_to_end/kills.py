"""Kill a study at random moments, and compare its results with those of an undisturbed one.

python -m tests.end_to_end.kills --kills 100
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.end_to_end.studies import ablate, alive_in, command, outcome, write_study


def launch(study: Path, results: Path) -> subprocess.Popen[bytes]:
    """Begin to run a study."""
    return subprocess.Popen(command("run", study, "--results", results), stdout=subprocess.DEVNULL)


def disturbed(
    study: Path, results: Path, kills: int, seed: int, pause: tuple[float, float], launch: Any
) -> list[str]:
    """Run the study, killing launcher or workers `kills` times, some seconds apart; returns the
    kills.
    """
    draw = random.Random(seed)
    done: list[str] = []
    process = launch(study, results)
    while sum(what.endswith("killed") for what in done) < kills:
        time.sleep(draw.uniform(*pause))
        workers = alive_in(results)
        if process.poll() is not None:
            # It finished first: remove a result, so that the next launch has work.
            draw.choice(sorted(results.glob("runs/*/result.json"))).unlink()
            done.append("result removed")
            process.communicate()
            process = launch(study, results)
        elif workers and draw.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(workers), signal.SIGKILL)
            done.append("worker killed")
        else:
            process.kill()
            process.communicate()
            done.append("launcher killed")
            process = launch(study, results)
    process.kill()
    process.communicate()
    return done


def compare(
    kills: int,
    seed: int,
    folder: Path,
    pause: tuple[float, float] = (0.5, 10.0),
    undisturbed: Path | None = None,
    launch: Any = launch,
) -> tuple[list[str], list[str]]:
    """(kills, differing files).

    Args:
        kills: how many.
        seed: of their kinds and moments.
        folder: for the study and its results.
        pause: the fewest and the most seconds between two kills.
        undisturbed: existing results to compare with.
        launch: begins to run a study; returns its process.
    """
    study = write_study(folder)
    if undisturbed is None:
        undisturbed = folder / "calm"
        ablate("run", study, "--results", undisturbed)
    done = disturbed(study, folder / "rough", kills, seed, pause, launch)
    ablate("run", study, "--results", folder / "rough")
    calm, rough = outcome(undisturbed), outcome(folder / "rough")
    return done, sorted(name for name in {*calm, *rough} if calm.get(name) != rough.get(name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        done, differing = compare(arguments.kills, arguments.seed, Path(folder))
        counts = {what: done.count(what) for what in dict.fromkeys(done)}
        print(
            f"{len(done)} disturbances {counts} in {time.monotonic() - started:.0f} s; differing "
            f"files: {differing}"
        )
        raise SystemExit(bool(differing))
