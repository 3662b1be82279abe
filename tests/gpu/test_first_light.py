"""The script for a first GPU, with tiny sizes on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/first_light/run.sh"
CHECKS = {"correct": 12, "runs": 3, "figures": 4, "lm": 5}


@pytest.mark.parametrize("code", [0, 1])
def test_a_part_that_fails_is_named_and_the_script_fails(code, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    environment = {**os.environ, "PY": str(python), "OUT": str(tmp_path), "WORK": str(tmp_path)}
    done = subprocess.run(
        ["bash", SCRIPT, "--dry", "--only", "figures,lm"],
        env={**environment, "WHL": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert ("failed: figures lm" in done.stdout) == bool(code)


@pytest.mark.parametrize("is_right", [True, False])
def test_a_part_fails_if_one_of_its_checks_does(is_right, tmp_path):
    checks = f"""\
import common
lines = common.Lines("some.jsonl")
lines.check("first", lambda: {{"ok": {is_right}}})
lines.check("second", lambda: {{}})
lines.end()
"""
    environment = {**os.environ, "OUT": str(tmp_path), "PYTHONPATH": str(SCRIPT.parent)}
    command = [sys.executable, "-c", checks]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == (not is_right)


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
