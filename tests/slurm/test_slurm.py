"""A study on a real Slurm of one node gives the files of a local run, undisturbed and preempted."""

import re

import pytest

from tests.slurm.faults import again, preemption, time_limit
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
    logs = trial.ablate("status", "small.yaml", "--logs")
    assert "left: nothing is left to do" in logs
    assert "published: done after 400 steps" in trial.ablate(
        "status", "small.yaml", "base", "--logs"
    )


def test_a_preempted_pilot_saves_is_requeued_and_loses_nothing(slurm, local, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    preemption(trial)
    assert (trial.lost(), trial.wrong(local), trial.twice()) == (0, 0, 0)


def test_a_pilot_at_its_time_limit_saves_and_goes_on_in_a_new_allocation(slurm, local, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    time_limit(trial)
    assert (trial.lost(), trial.wrong(local), trial.twice()) == (0, 0, 0)
    pilots = trial.job.read_pilots()
    if all((report.starts, report.reason) == (1, "nothing is left to do") for report in pilots):
        pytest.skip("this machine has ended the study before the limit")
    assert any(report.starts > 1 for report in pilots)


def test_pilots_that_work_save_and_leave_when_they_are_asked_to_stop(slurm, local, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    trial.submit(workers=1)  # two would end so small a study before they are asked
    trial.wait_until_training()
    alive = [report.name for report in trial.job.read_pilots() if report.is_alive]
    assert f"{len(alive)} pilot" in trial.ablate("cluster", "stop", "small.yaml")
    trial.let_end()
    reasons = {report.name: report.reason for report in trial.job.read_pilots()}
    assert alive
    assert {reasons[name] for name in alive} == {"stopped on request"}
    assert (trial.job.read_end().reason, trial.lost() > 0) == ("stopped on request", True)
    again(trial)
    assert (trial.lost(), trial.wrong(local), trial.twice()) == (0, 0, 0)


def test_a_pilot_in_the_queue_with_nothing_to_do_is_not_waited_for(slurm, local, tmp_path):
    """Two of three have a core. The third would start once they have left."""
    trial = Trial(slurm, tmp_path / "t")
    trial.share_corpus(local)
    job = trial.submit(workers=3)
    trial.wait_until_training()
    assert re.search(r"[12] in the queue or about to start", trial.ablate("status", "small.yaml"))
    trial.let_end()
    assert len(job.read_pilots()) == 2
    assert job.read_end().reason == "nothing is left to do"
    assert (job.results.study("small") / "table.md").exists()


def test_a_list_of_partitions_is_slurms_to_judge(slurm, tmp_path):
    trial = Trial(slurm, tmp_path / "t")
    options = ("plan", "small.yaml", "--on", "slurm", "--partition")
    assert "1 pilot (--partition=low,high)" in trial.ablate(*options, "low,high")
    both = trial.ablate(*options[:-1], SBATCH_PARTITION="high", SBATCH_WAIT="1")
    assert "(--partition=high)" in both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition", "lo"], "invalid partition specified: lo"),
        (["--partition", "low", "--time", "2h"], "time: 2h is longer than the limit of partition low, 60 min"),
        (["--gpus-per-node", "1"], "sbatch: Invalid generic resource"),
        (["--sbatch", "cpus-per-task=3"], "sbatch: allocation failure: Requested node configuration is not available"),
    ],
)  # fmt: skip
def test_a_plan_refuses_what_the_partition_cannot_give(slurm, tmp_path, options, message):
    trial = Trial(slurm, tmp_path / "t")
    assert message in trial.ablate("plan", "small.yaml", "--on", "slurm", *options, code=2)
