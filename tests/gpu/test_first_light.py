"""The script for a first GPU, with tiny sizes on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/first_light/run.sh"
CHECKS = {"correct": 12, "runs": 3, "figures": 4, "lm": 5}


@pytest.mark.slow
def test_every_part_of_a_dry_run_is_there_and_right(tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    environment = {
        **os.environ, "PY": sys.executable, "OUT": str(out), "WORK": str(work), "OMP_NUM_THREADS": "1",
        "WHL": str(tmp_path),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", SCRIPT, "--dry"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for part, count in CHECKS.items():
        lines = [json.loads(line) for line in (out / f"{part}.jsonl").read_text().splitlines()]
        checks = {line["check"]: line for line in lines if "check" in line}
        assert {name: line for name, line in checks.items() if not line.get("ok")} == {}
        assert len(checks) == count, checks.keys()
    assert (out / "study.md").read_text().splitlines()[0].endswith("exit code 0")
    assert (out / "study.tar.gz").is_file()
