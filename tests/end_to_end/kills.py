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

from tests.end_to_end.studies import ablate, alive_in, command, outcome, write_study


def disturbed(study: Path, results: Path, kills: int, seed: int, longest: float) -> list[str]:
    """Run the study, killing launcher or workers `kills` times, up to `longest` seconds apart;
    returns the kills.
    """
    draw = random.Random(seed)
    done: list[str] = []
    process = _launch(study, results)
    while sum(what.endswith("killed") for what in done) < kills:
        time.sleep(draw.uniform(0.5, longest))
        workers = alive_in(results)
        if process.poll() is not None:
            # It finished first: remove a result, so that the next launch has work.
            draw.choice(sorted(results.glob("runs/*/result.json"))).unlink()
            done.append("result removed")
            process = _launch(study, results)
        elif workers and draw.random() < 0.5:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(workers), signal.SIGKILL)
            done.append("worker killed")
        else:
            process.kill()
            process.wait()
            done.append("launcher killed")
            process = _launch(study, results)
    process.kill()
    process.wait()
    return done


def _launch(study: Path, results: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command("run", study, "--results", results), stdout=subprocess.DEVNULL)


def compare(
    kills: int, seed: int, folder: Path, longest: float = 10.0, undisturbed: Path | None = None
) -> tuple[list[str], list[str]]:
    """(kills, differing files); `undisturbed`: existing results to compare with."""
    study = write_study(folder)
    if undisturbed is None:
        undisturbed = folder / "calm"
        ablate("run", study, "--results", undisturbed)
    done = disturbed(study, folder / "rough", kills, seed, longest)
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
