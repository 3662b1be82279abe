"""A part of the fault suite, at each commit: `python -m tests.faults` is the whole.

All crash points of a run are killed at, each kind of file and operation once; damage, want of memory, and a worker
that is stopped beyond its lease. A disk that refuses, signals, and launchers that fight over runs take minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = ("kills", "publishing", "corruption", "memory", "takeovers")


@pytest.fixture(scope="module")
def tallies():
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--quick", "--json", *FAULTS],
        cwd=ROOT, capture_output=True, text=True, env=environment, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    return dict(zip(FAULTS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_and_nothing_comes_out_wrong(tallies, fault):
    tally = tallies[fault]
    assert tally["tries"] > 0
    assert (tally["lost"], tally["wrong"], tally["notes"]) == (0, 0, [])
