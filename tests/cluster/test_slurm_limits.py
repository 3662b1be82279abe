"""What is asked of Slurm and what it can give, without a Slurm: durations, partitions, scripts,
refusals.
"""

import math
import shlex
import subprocess

import pytest

from ablate.cluster import slurm
from ablate.cluster.profiles import Profile
from ablate.cluster.slurm import (
    Partition,
    Task,
    asked_gpus,
    parse_seconds,
    partitions,
    pilot_arguments,
    refusals,
)
from ablate.store.jobs import ClusterJob, JobFolder

GB = 1024**3
FOUND = {name: Partition("gpu", 4 * 3600.0, 3, 64, 4, 256.0 * GB) for name in ("gpu", "")}


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
    assert parse_seconds(text) == seconds


def test_partitions_are_read_with_the_most_of_their_different_nodes(answers):
    answers(sinfo=(0, "gpu*|1-00:00:00|4|32|gpu:a100:4(S:0-1)|128000\ngpu*|1-00:00:00|2|64+|(null)|512000\n"
                   "cpu|infinite|10|16|(null)|64000\n"))  # fmt: skip
    found = partitions()
    assert found[""] == found["gpu"] == Partition("gpu", 86400.0, 6, 64, 4, 512000.0 * 1024**2)
    assert found["cpu"] == Partition("cpu", math.inf, 10, 16, 0, 64000.0 * 1024**2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        (
            {
                "partition": "gpu",
                "time": "4h",
                "gpus-per-node": 4,
                "cpus-per-task": 64,
                "mem": "200G",
            },
            None,
        ),
        ({"partition": "gup"}, 'partition: no partition "gup"; did you mean "gpu"?'),
        ({"time": "5h"}, "time: 5h is longer than the limit of gpu, 4 h 00 min"),
        ({"time": "0-5"}, "time: 0-5 is longer than the limit of gpu"),
        ({"time": "1min"}, "time: 1min is too short: 60 s to start and 120 s (grace) to save"),
        ({"gpus-per-node": "a100:8"}, "gpus-per-node: 8 is more than the 4 GPUs of a node of gpu"),
        ({"gres": "gpu:5"}, "gpus-per-node: 5 is more than the 4 GPUs"),
        ({"cpus-per-task": 65}, "cpus-per-task: 65 is more than the 64 cores of a node of gpu"),
        ({"mem": "300G"}, "mem: 300G is more than the"),
        ({"mem": 512}, "mem: 512 is less than the"),
        ({"mem": 0}, None),
    ],
)
def test_what_a_partition_cannot_give_is_refused_with_the_reason(options, reason):
    faults = refusals(Profile(engine="slurm", sbatch=options), FOUND, needed=1.0 * GB)
    assert len(faults) == (reason is not None)
    assert reason is None or faults[0].startswith(reason)


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
    assert asked_gpus(Profile(engine="slurm", sbatch=options)) == gpus


def a_job(**fields):
    given = {
        "id": "j",
        "study": "tiny",
        "engine": "slurm",
        "profile": "p",
        "workers": 9,
        "runs": (),
        "time": 0.0,
    }
    return ClusterJob(**{**given, "python": "/opt/python", **fields})


def test_a_pilot_on_cpus_takes_its_node_unless_its_cores_are_chosen(tmp_path):
    folder = JobFolder(tmp_path / "tiny" / "jobs" / "j")
    assert "--exclusive" in pilot_arguments(folder, a_job(), 3)
    assert "--exclusive" not in pilot_arguments(folder, a_job(sbatch={"cpus-per-task": 2}), 3)
    assert "--exclusive" not in pilot_arguments(folder, a_job(sbatch={"gpus-per-node": 2}), 3)
    arguments = pilot_arguments(folder, a_job(grace=77), 3)
    assert {
        "--array=0-2",
        "--signal=B:USR1@77",
        "--requeue",
        "--nodes=1",
        "--open-mode=append",
    } <= {*arguments}
    assert "--requeue" not in pilot_arguments(folder, a_job(sbatch={"no-requeue": True}), 3)


def test_arrays_are_no_larger_than_the_cluster_allows(tmp_path, answers):
    folder = JobFolder(tmp_path / "tiny" / "jobs" / "j")
    asked = answers(
        scontrol=(0, "MaxArraySize            = 4\n"), sbatch=[(0, f"{n}\n") for n in (7, 8, 9, 10)]
    )
    assert slurm.submit_pilots(folder, a_job(), 9) == (("7", "8", "9"), "10")
    arrays = [word for line in asked for word in line.split() if word.startswith("--array")]
    assert arrays == ["--array=0-3", "--array=0-3", "--array=0-0"]
    assert [line.split()[-1] for line in asked if "--array" in line] == ["0", "4", "8"]
    assert "--dependency=afterany:7:8:9" in asked[-1]
    script = (folder.path / "pilot.sh").read_text()
    assert "\nexec /opt/python -m ablate work --job " in script
    assert subprocess.run(["bash", "-n", folder.path / "pilot.sh"], check=False).returncode == 0


def test_a_refused_array_takes_back_those_before_it(tmp_path, answers):
    asked = answers(
        scontrol=(0, "MaxArraySize = 2"),
        sbatch=[(0, "7"), (1, "sbatch: error: QOSMaxSubmit\n")],
        scancel=(0, ""),
    )
    with pytest.raises(slurm.UsageError, match="sbatch: QOSMaxSubmit"):
        slurm.submit_pilots(JobFolder(tmp_path / "tiny" / "jobs" / "j"), a_job(), 4)
    assert asked[-1] == "scancel 7"


def test_the_task_of_an_array_is_named_as_slurms_commands_take_it(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert Task.here() is None
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert Task.here() == Task("12", 0)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")  # the last task of an array has the array's id
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert Task.here() == Task("12_3", 2)


def test_requeueing_waits_for_a_controller_that_restarts(answers, monkeypatch):
    monkeypatch.setattr(slurm, "REQUEUE_PAUSE", 0.0)
    lost = (1, "Unable to contact slurm controller (connect failure)")
    answers(scontrol=[lost, lost, (0, "")])
    assert Task("7_0", 0).requeue() == ""
    answers(scontrol=[(1, "Requested operation is presently disabled\n")])
    assert Task("7_0", 0).requeue() == "Requested operation is presently disabled"


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
