"""The commands for clusters, with pilots that are started by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.store import Results
from ablate.store.jobs import PilotReport, jobs_of
from ablate.store.machine import process_mark
from tests.cli.inside import inside

ROOT = Path(__file__).parents[2]
STUDY = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 10, batch_tokens: 512, warmup_steps: 10, eval_every: 10}
seeds: [1]
rows:
  A: {each: {h: [1]}}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a study, and no profiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_CLUSTERS", str(tmp_path / "clusters.yaml"))
    (tmp_path / "small.yaml").write_text(STUDY)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "small.yaml", "--workers", "2"], "--workers has an effect only with --on"),
        (["plan", "small.yaml", "--partition", "x"], "--partition has an effect only with --on"),
        (["run", "small.yaml", "--sbatch", "mem=8G"], "--sbatch has an effect only with --on"),
        (["run", "small.yaml", "--detach"], "--detach has an effect only with --on"),
        (["run", "small.yaml", "--on", "manual", "--budget", "2h"], "--budget is for this machine"),
        (["run", "small.yaml", "--on", "gpu"], 'no profile "gpu" in'),
        (["plan", "small.yaml", "--on", "slurm", "--time", "x"], '--sbatch time: "x" is not a time'),
        (["work", "--job", "missing"], "missing: not the folder of a job: job.json is missing"),
        (["verify"], "STUDY is missing: give a study's file, or --filesystem DIR"),
        (["verify", "small.yaml", "--filesystem", "x"], "--filesystem checks a folder and no study"),
    ],
)
def test_options_that_would_be_without_effect_are_refused_in_one_line(here, words, message):
    done = inside(*words)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_a_login_node_is_needed_for_slurm(here, monkeypatch):
    monkeypatch.setenv("PATH", str(here))
    done = inside("plan", "small.yaml", "--on", "slurm")
    assert (done.code, done.err) == (2, "sbatch not found: submit from a login node of the cluster\n")


def test_a_job_without_a_scheduler_is_carried_out_by_pilots_that_somebody_starts(here):
    done = inside("run", "small.yaml", "--on", "manual", "--workers", "8", "--detach")
    assert done.code == 0
    job = jobs_of(Results(here / "results"), "small")[0]
    assert f"job {job.id}: ready for 2 pilots; start them with\nablate work --job {job.path}" in done.out
    (here / "small.yaml").write_text(STUDY.replace("train_steps: 10", "train_steps: 7"))  # the job is frozen
    command = [sys.executable, "-m", "ablate", "work", "--job", str(job.path)]
    pilot = subprocess.run(
        command, cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (pilot.returncode, pilot.stderr) == (0, "")
    lines = [re.sub(r"^[\d-]+ [\d:]+ ", "", line) for line in pilot.stdout.splitlines()]
    assert lines[0].startswith("2 runs to do, ")
    assert lines[-1] == "left: nothing is left to do"
    assert {"done     base", "done     A h=1"} <= set(lines)
    assert job.read_end().reason == "nothing is left to do"
    (here / "small.yaml").write_text(STUDY)
    assert {run["state"] for run in json.loads(inside("status", "small.yaml", "--format", "json").out)["runs"]} == {
        "done"
    }
    assert "closed: nothing is left to do" in inside("status", "small.yaml").out
    assert "published: done after 10 steps" in inside("logs", "small.yaml", "base").out
    nothing = inside("run", "small.yaml", "--on", "manual", "--detach")
    assert "nothing to submit: every run has ended" in nothing.out
    assert "no job is open" in inside("stop", "small.yaml").out
    closing = inside("work", "--job", str(job.path), "--close")
    assert closing.code == 0
    assert (here / "results" / "small" / "table.md").exists()


def test_a_job_that_is_stopped_says_who_was_asked(here):
    assert inside("run", "small.yaml", "--on", "manual", "--workers", "2", "--detach").code == 0
    job = jobs_of(Results(here / "results"), "small")[0]
    mark = process_mark().model_dump()
    PilotReport(**mark, name="me", phase="working", time=0.0, running=("base",)).write(job.pilot("me"))
    assert "1 pilot working" in inside("status", "small.yaml").out
    assert inside("stop", "small.yaml").out == f"job {job.id}: 1 pilot asked to save and leave\n"
    assert job.stop.exists()
    assert "asked to stop" in inside("status", "small.yaml").out
