"""Kill a study at random moments, and compare its results with those of an undisturbed one.

python -m tests.end_to_end.kills --kills 100
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.end_to_end.studies import TINY, alive_in, outcome, write_study
from tests.forked import Forked

# Long enough to be killed between two checkpoints.
LONGER = TINY.replace("train_steps: 30", "train_steps: 300").replace("every: 10", "every: 50")


def launch(study: Path, results: Path) -> Forked:
    """Begin to run a study; its launcher and workers are forked, so that each begins at once."""
    return Forked("ablate.cli", "run", study, "--results", results)


def disturbed(
    study: Path, results: Path, kills: int, seed: int, pause: tuple[float, float]
) -> list[str]:
    """Run the study, killing launcher or workers `kills` times, some seconds apart; returns the
    kills.
    """
    draw = random.Random(seed)
    done: list[str] = []
    process = launch(study, results)
    while sum(what.endswith("killed") for what in done) < kills:
        await_checkpoint(process, results)
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


def await_checkpoint(process: Forked, results: Path) -> None:
    """Wait until a run has a new checkpoint, so that a kill leaves something to resume; at most 10
    seconds, as a run may have come to its translations.
    """
    before = set(results.glob("runs/*/checkpoints/*"))
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        if set(results.glob("runs/*/checkpoints/*")) - before:
            return
        time.sleep(0.02)


def compare(
    kills: int,
    seed: int,
    folder: Path,
    pause: tuple[float, float] = (0.5, 10.0),
) -> tuple[list[str], list[str]]:
    """(kills, differing files).

    Args:
        kills: how many.
        seed: of their kinds and moments.
        folder: for the study and its results.
        pause: the fewest and the most seconds between two kills.
    """
    study = write_study(folder, LONGER)
    launch(study, folder / "calm").communicate()
    done = disturbed(study, folder / "rough", kills, seed, pause)
    launch(study, folder / "rough").communicate()
    calm, rough = outcome(folder / "calm"), outcome(folder / "rough")
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
