"""What is asked of Slurm, without a Slurm: durations, options, scripts, refusals."""

import math
import shlex
import subprocess

import pytest

from ablate.cluster import slurm
from ablate.cluster.slurm import Slurm, SlurmTask, seconds_of_slurm_time, write_scripts
from ablate.errors import UsageError
from ablate.store.jobs import ClusterJob, JobFolder
from ablate.store.machine import Resources
from ablate.study import read_study, runs_of

STUDY = """\
study: tiny
data: {corpus: toy, vocab_size: 100}
base: {train_steps: 20, n_layers: 1, d_model: 16, d_ff: 32, n_heads: 2}
"""


@pytest.fixture
def answers(monkeypatch):
    """Answer commands of Slurm: the beginning of a command line -> (exit code, output)."""
    asked = []

    def answers(**given):
        def answer(*command):
            asked.append(shlex.join(command))
            reply = given[command[0]]
            code, text = reply.pop(0) if isinstance(reply, list) else reply
            return subprocess.CompletedProcess(
                command, code, text if not code else "", text if code else ""
            )

        monkeypatch.setattr(slurm, "slurm", answer)
        return asked

    return answers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784), ("02:03:04", 7384), ("3:04", 184), ("0:00", 0), ("UNLIMITED", math.inf), ("", math.inf),
     ("INVALID", math.inf)],
)  # fmt: skip
def test_durations_are_read_as_slurm_prints_them(text, seconds):
    assert seconds_of_slurm_time(text) == seconds


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return read_study(tmp_path / "tiny.yaml")


@pytest.mark.parametrize(
    ("options", "place", "figure"),
    [
        ({}, None, ""),
        ({"partition": "gpu", "time": "4h", "mem": "200G"}, None, ""),
        ({"time": "5h"}, "time: 5h", "4 h 00 min"),
        ({"partition": "short,gpu", "time": "4h"}, None, ""),  # one of them is enough
        ({"time": "0-5"}, "time: 0-5", "4 h 00 min"),
        ({"time": "3min"}, "time: 3min", "60 s to start and 120 s (grace) to save"),
        ({"mem": "50M"}, "mem: 50M", "give 480M"),
        ({"mem-per-cpu": 100, "cpus-per-task": 2}, "mem-per-cpu: 100", "give 480M"),
        ({"mem-per-cpu": 500, "cpus-per-task": 2}, None, ""),
        ({"mem": 0}, None, ""),
        ({"mem": "50M", "gpus-per-node": 1}, None, ""),  # weights are on the GPU
    ],
)
def test_what_slurm_would_let_wait_for_ever_is_refused_with_the_figure_needed(
    answers, study, options, place, figure
):
    answers(sinfo=(0, "short|1:00\ngpu*|4:00:00\n"), sbatch=(0, ""))
    if place is None:
        Slurm(sbatch=options).check(runs_of(study))
        return
    with pytest.raises(UsageError) as error:
        Slurm(sbatch=options).check(runs_of(study))
    assert str(error.value).startswith(place)
    assert figure in str(error.value)


def test_slurm_itself_is_asked_whether_it_takes_the_pilots_and_the_closing_job(answers, study):
    asked = answers(
        sbatch=[
            (0, ""),
            (1, "sbatch: error: invalid partition specified: tiny\nallocation failure"),
        ],
        scontrol=(0, "Slurmctld(primary) at head is UP"),
    )
    profile = Slurm(sbatch={"partition": "low", "qos": "q"}, closing={"partition": "tiny"})
    with pytest.raises(UsageError, match=r"^sbatch: invalid partition specified: tiny; alloc"):
        profile.check(runs_of(study))
    pilots, closing = (set(line.split()) for line in asked if line.startswith("sbatch"))
    assert {"--test-only", "--partition=low", "--array=0-0", "--exclusive"} <= pilots
    assert {"--test-only", "--partition=tiny", "--qos=q"} <= closing


def test_variables_of_a_site_are_kept_as_options_or_named(monkeypatch):
    for name in [name for name in slurm.os.environ if name.startswith("SBATCH_")]:
        monkeypatch.delenv(name)
    given = {"PARTITION": "low", "TIMELIMIT": "4h", "MEM_PER_NODE": "8G", "ACCOUNT": "nlp"}
    for name, value in {**given, "EXPORT": "NONE", "ARRAY_INX": "1", "WAIT": "1"}.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    profile = Slurm(sbatch={"account": "cv"}).with_options({"time": "2h"})
    assert profile.sbatch == {"partition": "low", "time": "2h", "mem": "8G", "account": "cv"}
    unused = [note.split()[1] for note in profile.notes()]
    assert unused == ["SBATCH_ARRAY_INX", "SBATCH_EXPORT", "SBATCH_WAIT"]


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ({}, 0),
        ({"gpus-per-node": 2}, 2),
        ({"gpus-per-node": "a100:4"}, 4),
        ({"gpus-per-node": "a100:2,v100:1"}, 3),
        ({"gpus": "a100"}, 1),
        ({"gpus-per-node": 0}, 0),
        ({"gpus": ""}, 0),
        ({"gpus": False, "gres": "gpu:2"}, 2),
        ({"gres": "gpu:v100:3"}, 3),
        ({"gres": "gpu"}, 1),
        ({"gres": "shard:2,gpu:a100,gpu:v100:2(S:0)"}, 3),
    ],
)
def test_the_gpus_of_a_pilot_are_counted(options, gpus):
    assert Slurm(sbatch=options).gpus == gpus


def submit(folder, pilots, **settings):
    profile = Slurm(**settings)
    job = ClusterJob(
        id="j", study="tiny", profile="p", resources=Resources(), runs=(), time=0.0, python="/opt/python",
        settings=profile.model_dump(),
    )  # fmt: skip
    return profile.submit(folder, job, pilots)


@pytest.mark.parametrize(
    ("settings", "is_there", "is_absent"),
    [
        ({}, {"--exclusive", "--array=0-2", "--requeue", "--nodes=1", "--open-mode=append"}, set()),
        ({"sbatch": {"cpus-per-task": 2}}, set(), {"--exclusive"}),
        ({"sbatch": {"gpus-per-node": 2}}, set(), {"--exclusive"}),
        ({"grace": 77}, {"--signal=B:USR1@77"}, set()),
        ({"sbatch": {"no-requeue": True}}, {"--no-requeue"}, {"--requeue"}),
    ],
)
def test_a_pilot_on_cpus_takes_its_node_unless_its_cores_are_chosen(
    tmp_path, answers, settings, is_there, is_absent
):
    asked = answers(scontrol=(0, ""), sbatch=[(0, "1"), (0, "2")])
    submit(JobFolder(tmp_path / "100%j" / "jobs" / "j"), 3, **settings)
    words = set(asked[1].split())
    assert is_there <= words
    assert not is_absent & words
    # A percent sign of a path is no pattern of sbatch.
    assert f"--output={tmp_path}/100%%j/jobs/j/logs/pilot-%A_%a.log" in words


def test_arrays_are_no_larger_than_the_cluster_allows(tmp_path, answers):
    folder = JobFolder(tmp_path / "tiny" / "jobs" / "j")
    asked = answers(
        scontrol=(0, "MaxArraySize            = 4\n"), sbatch=[(0, f"{n}\n") for n in (7, 8, 9, 10)]
    )
    assert submit(folder, 9) == (("7", "8", "9"), "10")
    arrays = [word for line in asked for word in line.split() if word.startswith("--array")]
    assert arrays == ["--array=0-3", "--array=0-3", "--array=0-0"]
    assert [line.split()[-1] for line in asked if "--array" in line] == ["0", "4", "8"]
    assert "--dependency=afterany:7:8:9" in asked[-1]


def test_a_refused_array_takes_back_those_before_it(tmp_path, answers):
    asked = answers(
        scontrol=(0, "MaxArraySize = 2"),
        sbatch=[(0, "7"), (1, "sbatch: error: QOSMaxSubmit\n")],
        scancel=(0, ""),
    )
    with pytest.raises(UsageError, match="sbatch: QOSMaxSubmit"):
        submit(JobFolder(tmp_path / "tiny" / "jobs" / "j"), 4)
    assert asked[-1] == "scancel -- 7"


@pytest.mark.parametrize(
    ("setup", "pilot", "closing"),
    [
        (["true", "X=there"], "work --job", "work --job"),
        (["module load cuda"], "setup failed: module load cuda", "work --job"),
        (["if false; then", "no", "fi"], "work --job", "work --job"),
        (["false || true"], "work --job", "work --job"),
    ],
)
def test_a_failing_line_of_the_setup_ends_a_pilot_but_not_the_closing_job(
    tmp_path, setup, pilot, closing
):
    program = tmp_path / "a python"
    program.write_text('#!/bin/sh\necho "$@" $X\n')
    program.chmod(0o755)
    folder = JobFolder(tmp_path / "tiny" / "jobs" / "j")
    write_scripts(folder, ["export X", *setup], str(program))
    for name, expected in (("pilot.sh", pilot), ("closing.sh", closing)):
        done = subprocess.run(
            ["bash", folder.path / name, "4"], capture_output=True, text=True, check=False
        )
        assert expected in done.stdout + done.stderr
        assert (done.returncode == 0) is expected.startswith("work")
        assert ("--index 4" in done.stdout) is (expected.startswith("work") and name == "pilot.sh")


def test_the_task_of_an_array_is_named_as_slurms_commands_take_it(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert SlurmTask.current(9) is None
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert SlurmTask.current(9) == SlurmTask("12", 0, 9)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")  # the last task of an array has the array's id
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert SlurmTask.current(9) == SlurmTask("12_3", 2, 9)


def test_requeueing_waits_for_a_controller_that_restarts(answers, monkeypatch):
    monkeypatch.setattr(slurm, "REQUEUE_PAUSE", 0.0)
    lost = (1, "Unable to contact slurm controller (connect failure)")
    answers(scontrol=[lost, lost, (0, "")])
    assert SlurmTask("7_0", 0, 9).requeue() == ""
    answers(scontrol=[(1, "Requested operation is presently disabled\n")])
    assert SlurmTask("7_0", 0, 9).requeue() == "Requested operation is presently disabled"


def test_commands_do_not_inherit_the_variables_of_an_allocation(monkeypatch, tmp_path):
    program = tmp_path / "sbatch"
    program.write_text('#!/bin/sh\nenv | grep -E "^(SLURM|SBATCH|ABLATE)" | sort\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in (
        "SLURM_JOB_ID",
        "SLURM_MEM_PER_NODE",
        "SBATCH_PARTITION",
        "SLURM_CONF",
        "ABLATE_CORPORA",
    ):
        monkeypatch.setenv(name, "x")
    assert slurm.slurm("sbatch").stdout == "ABLATE_CORPORA=x\nSLURM_CONF=x\n"
