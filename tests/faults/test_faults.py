"""The quick part of the fault suite (`python -m tests.faults`), run at each commit.

It kills a run at one operation of each kind and file, damages files, lets memory run out, and
suspends a worker beyond its lease. Disk errors, signals and several launchers take minutes, and are
left to the whole suite.
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
def test_no_work_is_lost_and_no_output_is_wrong(tallies, fault):
    tally = tallies[fault]
    assert tally["tries"] > 0
    assert (tally["lost"], tally["wrong"], tally["notes"]) == (0, 0, [])
