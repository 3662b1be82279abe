"""The commands for clusters, with pilots that are started by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.analysis.stages import next_stage
from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.cli.cluster_options import submission_text
from ablate.cluster import slurm
from ablate.cluster.ray_cluster import Ray
from ablate.errors import UsageError
from ablate.plan.plan import plan_of
from ablate.plan.progress import ProgressReader
from ablate.report.live_table import summary_line
from ablate.store import Results, machine
from ablate.store.files import write_json
from ablate.store.jobs import ClusterJob, PilotReport, Submission, jobs_of, new_job
from ablate.store.machine import Resources
from ablate.store.processes import process_mark
from ablate.study import Selection, read_study, runs_of
from tests.cli.inside import inside
from tests.report.fakes import Fake

ROOT = Path(__file__).parents[2]
STUDY = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 10, batch_tokens: 512, warmup_steps: 10, eval_every: 10}
seeds: [1]
rows:
  A: {each: {h: [1]}}
"""


def a_job(folder, engine="slurm"):
    ClusterJob(
        id=folder.id,
        study="small",
        profile="x",
        settings={"engine": engine},
        resources=Resources(),
        runs=(),
        time=0.0,
    ).write(folder.job)


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
        (["run", "small.yaml", "--on", "gpu"], 'unknown profile "gpu"'),
        (["plan", "small.yaml", "--on", "slurm", "--time", "x"], '--time: "x" is not a time'),
        (["run", "small.yaml", "--gpus-per-run", "2"], "there is no GPU here; --processes-per-run 2 trains each run by 2"),
        (["plan", "small.yaml", "--gpus-per-run", "2"], "--gpus-per-run 2: there is no GPU here"),
        (
            ["plan", "small.yaml", "--on", "slurm", "--gpus-per-node", "2", "--gpus-per-run", "4"],
            "--gpus-per-run 4: a pilot has 2 GPUs; set gpus-per-node",
        ),
    ],
)  # fmt: skip
def test_options_that_a_profile_or_a_device_decides_are_refused_in_one_line(
    here, monkeypatch, words, message
):
    monkeypatch.setattr(machine, "DEVICE_FILES", here / "no devices")
    done = inside(*words)
    assert message in done.refusal
    assert done.code == (4 if "there is no GPU here" in message else 2)  # the machine's


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--gpus-per-run", "2"], "Each run is trained on 2 GPUs, 2 runs at once on 5 GPUs."),
        (["--gpus-per-run", "4"], "Each run is trained on 4 GPUs, 1 run at once on 5 GPUs."),
        (["--gpus-per-run", "auto"], "Each run is trained on 2 GPUs, 2 runs at once on 5 GPUs."),
        (["--gpus-per-run", "auto", "--set", "train_steps=9"], "Each run is trained on 2 GPUs, 2 runs at once on"),
        (["--processes-per-run", "2"], "Each run is trained by 2 processes."),
        (["--gpus-per-run", "8"], "--gpus-per-run 8: there are 5 GPUs here"),
        (["--gpus-per-run", "1"], ""),
    ],
)  # fmt: skip
def test_the_plan_says_how_the_runs_share_the_devices(here, monkeypatch, words, expected):
    for number in range(5):
        (here / "dev").mkdir(exist_ok=True)
        (here / "dev" / f"nvidia{number}").touch()
    monkeypatch.setattr(machine, "DEVICE_FILES", here / "dev")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    done = inside("plan", "small.yaml", *words)
    assert expected in done.out + done.err
    assert done.code == (4 if expected.startswith("--gpus-per-run 8") else 0)
    if not expected:
        assert "Each run" not in done.out
    (here / "small.yaml").write_text(STUDY.replace("seeds: [1]", "seeds: [1, 2, 3]"))
    more = inside("plan", "small.yaml", "--gpus-per-run", "auto")
    assert "--gpus-per-run auto: 1, because there are not two GPUs for each run." in more.out


def test_a_login_node_is_needed_for_slurm(here, monkeypatch):
    monkeypatch.setenv("PATH", str(here))
    done = inside("plan", "small.yaml", "--on", "slurm")
    said = (
        "Slurm is not installed on this machine: there is no command sbatch; submit from a login "
        "node of the cluster, or leave out --on to train here\n"
    )
    assert (done.code, done.err, done.out) == (4, said, "")


NO_SETTINGS = """\
#!/bin/sh
echo "sbatch: error: fetch_config: DNS SRV lookup failed" >&2
echo "sbatch: fatal: Could not establish a configuration source" >&2
exit 1
"""


@pytest.fixture
def slurm_without_settings(tmp_path, monkeypatch):
    """Slurm's programs on the path, whose settings are missing."""
    for name in ("sbatch", "sinfo"):
        (tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(NO_SETTINGS)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_slurm_without_settings_is_one_line(here, slurm_without_settings, verb):
    done = inside(verb, "small.yaml", "--on", "slurm")
    said = (
        "Slurm does not answer on this machine (sbatch: Could not establish a configuration "
        "source); submit from a login node of the cluster, or leave out --on to train here\n"
    )
    assert (done.code, done.err) == (4, said)


def test_options_that_slurm_refuses_are_faults_of_the_command_line(here, slurm_without_settings):
    """If Slurm's controller answers, the options of sbatch are the cause."""
    ping = here / "bin" / "scontrol"
    ping.write_text('#!/bin/sh\n[ "$*" = ping ]\n')
    ping.chmod(0o755)
    done = inside("plan", "small.yaml", "--on", "slurm")
    assert (done.code, done.err) == (2, "sbatch: Could not establish a configuration source\n")


def test_slurm_is_not_asked_if_no_run_is_missing(fake, given, slurm_without_settings):
    fake.all_done()
    done = inside("plan", *given, "--on", "slurm")
    assert done.code == 0
    assert done.out.endswith("--on slurm: nothing to submit\n")


def test_a_job_without_a_scheduler_is_carried_out_by_pilots_that_somebody_starts(
    here, slurm_without_settings
):
    words = (
        "--workers", "8", "--device", "cpu", "--processes-per-run", "2", "--jobs", "1",
        "--detach",
    )  # fmt: skip
    done = inside("run", "small.yaml", "--on", "manual", *words)
    assert done.code == 0
    job = jobs_of(Results(here / "results"), "small")[0]
    assert f"job {job.id}: 2 pilots on manual, which you start" in done.err
    assert f"\nablate work --job {job.path}" in done.err
    assert "2 in the queue or about to start" in inside("status", "small.yaml").out
    progress = ProgressReader(runs_of(read_study(here / "small.yaml")), job.results).read()
    assert summary_line(progress) == "small: 0 of 2 runs, 2 pilots in the queue or starting"
    (here / "small.yaml").write_text(
        STUDY.replace("train_steps: 10", "train_steps: 7")
    )  # the job is frozen
    command = [sys.executable, "-m", "ablate", "work", "--job", str(job.path)]
    pilot = subprocess.run(
        command,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (pilot.returncode, pilot.stderr) == (0, "")
    lines = [re.sub(r"^[\d-]+ [\d:]+ ", "", line) for line in pilot.stdout.splitlines()]
    assert lines[0] == "2 runs to do, 1 at once on cpu (2 processes each)"
    assert "left: nothing is left to do" in lines
    assert lines[-1] == "closed: nothing is left to do"
    assert (here / "results" / "small" / "table.md").exists()
    assert {"done     base", "done     A h=1"} <= set(lines)
    assert job.read_end().reason == "nothing is left to do"
    assert {job.results.run(id).read_execution().parts for id in job.read_job().runs} == {2}
    (here / "small.yaml").write_text(STUDY)
    assert {
        run["state"]
        for run in json.loads(inside("status", "small.yaml", "--format", "json").out)["runs"]
    } == {"done"}
    assert "closed: nothing is left to do" in inside("status", "small.yaml").out
    assert "published: done after 10 steps" in inside("status", "small.yaml", "base", "--logs").out
    nothing = inside("run", "small.yaml", "--on", "manual", "--detach")
    assert "nothing to submit: every run has ended" in nothing.err
    on_slurm = inside("run", "small.yaml", "--on", "slurm", "--detach")
    assert on_slurm.code == 0
    assert "nothing to submit: every run has ended" in on_slurm.err
    assert "no job is open" in inside("cluster", "stop", "small.yaml").out
    closing = inside("work", "--job", str(job.path), "--close")
    assert closing.code == 0
    assert (here / "results" / "small" / "table.md").exists()


def test_retry_failed_forgets_the_failures_of_every_look_so_that_pilots_repeat_them(here):
    study = STUDY.replace("seeds: [1]", "seeds: {looks: [2, 3]}")
    (here / "small.yaml").write_text(study)
    fake = Fake(here / "results", read_study(here / "small.yaml"))
    failed = [fake.folder("A h=1", 1), fake.folder("A h=1", 3)]  # of the first look and the last
    for seed in (1, 3):
        fake.failed("A h=1", seed, "RuntimeError: out of luck")
    words = ("run", "small.yaml", "--on", "manual", "--device", "cpu", "--detach")
    assert inside(*words).code == 0
    assert all(folder.failure.exists() for folder in failed)
    assert inside(*words, "--retry-failed").code == 0
    assert not any(folder.failure.exists() for folder in failed)


def test_with_detach_a_logger_of_the_environment_is_ignored_and_a_given_one_refused(
    here, monkeypatch
):
    words = ("run", "small.yaml", "--on", "manual", "--device", "cpu", "--detach")
    monkeypatch.setenv("ABLATE_LOG", "tensorboard")
    done = inside(*words)
    assert done.code == 0
    assert "note: ABLATE_LOG has no effect with --detach\n" in done.err
    refused = inside(*words, "--log", "tensorboard")
    assert refused.refusal == "--log has an effect only while this command runs; leave out --detach"


def test_nothing_of_a_damaged_file_is_passed_to_slurm(here, monkeypatch):
    job = new_job(Results(here / "results"), "small")
    a_job(job)
    content = {"pilots": 1, "ids": ["--user=root", "--me"], "work": 0, "time": 0.0}
    write_json(job.submission(1), content)
    monkeypatch.setattr(slurm, "slurm", lambda *command: pytest.fail(f"asked Slurm: {command}"))
    done = inside("cluster", "stop", "small.yaml", "--now")
    assert (done.code, job.stop.exists()) == (2, True)
    assert "submission-1.json: " in done.err


def test_a_job_that_is_stopped_says_who_was_asked(here):
    assert inside("run", "small.yaml", "--on", "manual", "--workers", "2", "--detach").code == 0
    job = jobs_of(Results(here / "results"), "small")[0]
    mark = process_mark().model_dump()
    PilotReport(**mark, name="me", phase="working", time=0.0, running=("base",)).write(
        job.pilot("me")
    )
    assert "1 pilot working" in inside("status", "small.yaml").out
    assert (
        inside("cluster", "stop", "small.yaml").out
        == f"job {job.id}: 1 pilot asked to save and leave\n"
    )
    assert job.stop.exists()
    assert "asked to stop" in inside("status", "small.yaml").out


def test_a_tuned_study_is_stopped_and_its_logs_are_shown_though_a_result_is_unreadable(here):
    results = Results(here / "results")
    tune = "tune: {grid: {learning_rate: [0.1, 0.2]}, seeds: [9]}\n"
    (here / "small.yaml").write_text(STUDY + tune)
    tuning = tuning_runs_of(runs_of(read_study(here / "small.yaml")))
    for run in tuning:
        write_json(results.run(run.id).result, {"format": 99})  # of a later version
    job = new_job(results, "small")
    a_job(job)
    (job.logs / "a.log").write_text("a line\n")
    assert "a line" in inside("status", "small.yaml", "--logs").out
    assert (inside("cluster", "stop", "small.yaml").code, job.stop.exists()) == (0, True)
    done = inside("run", "small.yaml")  # which names the file in the place of a table alone
    assert (done.code, "written by another version of ablate" in done.err) == (1, True)
    assert "result.json: written by another version" in inside("status", "small.yaml").out


def test_logs_without_pilots_name_those_of_rows(here):
    out = inside("status", "small.yaml", "--logs").out
    assert out == "small: no pilots; `ablate status small.yaml ROW --logs` shows a row's\n"


def test_a_log_that_leads_nowhere_keeps_the_others_from_no_one(here):
    job = new_job(Results(here / "results"), "small")
    a_job(job)
    (job.logs / "a.log").symlink_to("missing")
    os.mkfifo(job.logs / "b.log")
    (job.logs / "c.log").write_text("a line\n")
    out = inside("status", "small.yaml", "--logs").out
    assert out.endswith("logs/c.log\n  a line\n")
    assert len(out.splitlines()) == 2


def test_a_damaged_job_is_named_and_keeps_the_others_neither_from_being_shown_nor_from_being_stopped(
    here,
):
    bad, good = (new_job(Results(here / "results"), "small") for _ in range(2))
    for job in (bad, good):
        a_job(job)
    bad.job.write_text("{")
    done = inside("status", "small.yaml")
    assert done.code == 0
    assert f"{bad.id}/job.json: is damaged" in done.out
    assert f"job {good.id} on x: 0 pilots working" in done.out
    done = inside("cluster", "stop", "small.yaml")
    assert (done.code, f"{bad.id}/job.json: is damaged" in done.err) == (2, True)
    assert (bad.stop.exists(), good.stop.exists()) == (True, True)


def test_a_damaged_report_of_a_pilot_is_named(here):
    job = new_job(Results(here / "results"), "small")
    a_job(job)
    job.pilot("lost").parent.mkdir()
    job.pilot("lost").write_text("{")
    job.stop.symlink_to(job.stop)  # pilots take whatever stands there for a request
    job_line, pilot_line = inside("status", "small.yaml").out.splitlines()[-2:]
    assert job_line == f"job {job.id} on x: 0 pilots working, asked to stop"
    assert pilot_line.endswith("pilots/lost.json: is damaged")


@pytest.mark.parametrize("engine", ["manual", "slurm"])
def test_a_stopped_job_without_pilots_is_closed_unless_a_closing_job_follows(here, engine):
    job = new_job(Results(here / "results"), "small")
    a_job(job, engine)
    assert inside("cluster", "stop", "small.yaml").code == 0
    assert (job.stop.exists(), job.is_closed) == (True, engine == "manual")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("", 0),
        ("scancel: error: Kill job error on job id 1: Invalid job id specified", 0),
        ("scancel: error: Kill job error on job id 1: Job/step already completing or completed", 0),
        ("scancel: error: Unable to contact slurm controller (connect failure)", 2),
    ],
)
def test_a_job_stays_open_until_slurm_has_cancelled_it(here, monkeypatch, error, code):
    job = new_job(Results(here / "results"), "small")
    a_job(job)
    Submission(ids=("1",), closing="2", work=0, time=0.0).write(job.submission(1))
    answer = subprocess.CompletedProcess(["scancel"], int(bool(error)), "", error)
    monkeypatch.setattr(slurm, "slurm", lambda *command: answer)
    done = inside("cluster", "stop", "small.yaml", "--now")
    assert (done.code, job.stop.exists(), job.is_closed) == (code, True, code == 0)
    assert ("cancelled 1, 2" in done.out) is (code == 0)
    if code:
        assert done.err == (
            f"job {job.id}: scancel: Unable to contact slurm controller (connect failure); give "
            f"the command again\n"
        )


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        (("auto", "--jobs", "1"), 2),  # as the run itself: 5 GPUs for 2 runs
        (("auto", "--jobs", "4"), 5),
        (("4", "--jobs", "1"), 4),
        (("1", "--jobs", "3"), 3),
        (("auto",), 5),
    ],
)
def test_a_budget_counts_the_gpus_of_the_jobs(here, monkeypatch, words, gpus):
    given = []

    def take(budget, gpus, log):
        given.append(gpus)
        raise UsageError("enough")

    monkeypatch.setattr("ablate.cli.run.BudgetLimit", take)
    monkeypatch.setattr("ablate.cli.run.visible_gpus", lambda: 5)
    assert inside("run", "small.yaml", "--budget", "1h", "--gpus-per-run", *words).err == "enough\n"
    assert given == [gpus]


@pytest.mark.parametrize(("workers", "together"), [(1, ""), (2, ", 2 GPUs for each run")])
def test_a_plan_for_a_cluster_shares_gpus_as_its_pilots_do(here, workers, together):
    """Runs that the command leaves out count, because the number of parts of a run must not depend
    on them.
    """
    results = Results(here / "results")
    study = read_study(here / "small.yaml", Selection(rows=("base",)))
    profile, step = Ray(workers=workers, each={"gpus": 2}), next_stage(study, results)
    line = submission_text(
        "lab", profile, plan_of(runs_of(study), results), step, results, Resources(processes=None)
    )
    assert f" for 1 run{together}, time" in line
