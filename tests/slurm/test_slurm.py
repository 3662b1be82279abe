"""A study on a real Slurm of one node gives the files of a local run, undisturbed and preempted."""

import pytest

from tests.slurm.faults import preemption
from tests.slurm.one_node import OneNodeSlurm, why_not
from tests.slurm.trials import Trial

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(why_not() is not None, reason=f"no Slurm: {why_not()}"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with OneNodeSlurm(tmp_path_factory.mktemp("slurm") / "s") as slurm:
        yield slurm


@pytest.fixture(scope="module")
def local(slurm, tmp_path_factory):
    trial = Trial(slurm, tmp_path_factory.mktemp("local") / "t")
    trial.run_here()
    return trial


def test_a_study_on_slurm_gives_the_files_and_the_table_of_a_local_one(slurm, local, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    assert "2 pilots (--partition=low --cpus-per-task=1) for 4 runs" in trial.ablate(
        "plan",
        "small.yaml",
        "--on",
        "slurm",
        "--workers",
        "2",
        "--sbatch",
        "cpus-per-task=1",
        "--partition",
        "low",
    )
    job = trial.submit()
    trial.let_end()
    assert (trial.lost(), trial.wrong(local), trial.twice()) == (0, 0, 0)
    assert len(trial.files()) >= 3 * len(trial.ids)
    table = [(each.results.root / "small" / "table.md").read_text() for each in (trial, local)]
    assert table[0] == table[1]
    assert {report.reason for report in job.read_pilots()} == {"nothing is left to do"}
    assert job.read_end().reason == "nothing is left to do"
    status = trial.ablate("status", "small.yaml")
    assert f"job {job.id} on slurm: closed: nothing is left to do" in status
    logs = trial.ablate("logs", "small.yaml")
    assert "left: nothing is left to do" in logs
    assert "published: done after 400 steps" in trial.ablate("logs", "small.yaml", "base")


def test_a_preempted_pilot_saves_is_requeued_and_loses_nothing(slurm, local, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    preemption(trial)
    assert (trial.lost(), trial.wrong(local), trial.twice()) == (0, 0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "lo"], 'partition: no partition "lo"; did you mean "low"?'),
        (
            ["--partition", "low", "--time", "2h"],
            "time: 2h is longer than the limit of low, 60 min",
        ),
        (["--gpus-per-node", "1"], "gpus-per-node: 1 is more than the 0 GPUs of a node of low"),
        (
            ["--sbatch", "cpus-per-task=3"],
            "cpus-per-task: 3 is more than the 2 cores of a node of low",
        ),
    ],
)
def test_a_plan_refuses_what_the_partition_cannot_give(slurm, tmp_path, options, message):
    trial = Trial(slurm, tmp_path / "t")
    assert message in trial.ablate("plan", "small.yaml", "--on", "slurm", *options, code=2)
