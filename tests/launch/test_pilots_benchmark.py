"""The benchmark of many pilots, at its smallest size: every run is published once."""

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "pilots.py"


def test_many_pilots_publish_each_run_once():
    size = ["--pilots", "2", "--slots", "2", "--runs", "5", "--seconds", "0.1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *size],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROGRAM.parents[1],
        timeout=120,
    )
    assert re.search(r"published 5, twice 0, .* left 0\n", done.stdout)
