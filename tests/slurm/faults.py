"""`python -m tests.slurm.faults`: disturb a study on a Slurm of one node in every way, and print a table.

lost: runs without a result; wrong: weights, logs, translations that differ from those of an undisturbed local run;
twice: runs that were published more than once. `--only WORD` injects the faults whose name has the word.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.slurm.one_node import OneNodeSlurm, why_not
from tests.slurm.trials import Trial

ARRAY = 3  # the most tasks of an array, fewer than pilots


def nothing(trial: Trial) -> None:
    trial.submit()
    trial.let_end()


def preemption(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    trial.slurm.ask("sbatch", "--parsable", "-p", "high", "-c", "2", "-o", "/dev/null", "--wrap", "sleep 1")
    trial.slurm.wait_for(lambda: any("wrap" in job and "RUNNING" in job for job in trial.slurm.jobs()), "preemption")
    trial.let_end()
    assert any(report.starts > 1 for report in trial.job.read_pilots())


def time_limit(trial: Trial) -> None:
    job = trial.submit("--time", "30min")
    trial.wait_until_training()
    (array,) = job.read_submissions()[0].ids
    trial.slurm.ask("scontrol", "update", f"jobid={array}", "TimeLimit=1")
    trial.slurm.wait_for(
        lambda: any("left: " in log.read_text() for log in job.logs.glob("pilot*")), "the warning", 120
    )
    trial.slurm.ask("scontrol", "update", f"jobid={array}", "TimeLimit=30")
    trial.let_end()
    again(trial)


def scancel(trial: Trial) -> None:
    job = trial.submit()
    trial.wait_until_training()
    trial.slurm.ask("scancel", job.read_submissions()[0].ids[0])
    trial.let_end()
    assert trial.lost(), "the study had ended before"
    assert len(job.read_submissions()) == 1, "a cancelled job was submitted again"
    again(trial)


def stop(trial: Trial) -> None:
    job = trial.submit()
    trial.wait_until_training()
    trial.ablate("stop", "small.yaml")
    trial.let_end()
    assert trial.lost(), "the study had ended before"
    assert job.read_end() is not None
    again(trial)


def stop_now(trial: Trial) -> None:
    trial.submit(workers=4)
    trial.wait_until_training()
    trial.ablate("stop", "small.yaml", "--now")
    trial.let_end()
    again(trial)


def kill_pilot(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    os.kill(trial.pids("ablate work")[0], signal.SIGKILL)
    trial.let_end()


def kill_all_pilots(trial: Trial) -> None:
    job = trial.submit()
    trial.wait_until_training()
    for pid in trial.pids("ablate work"):
        os.kill(pid, signal.SIGKILL)
    trial.let_end()
    assert len(job.read_submissions()) > 1, "the closing job has not submitted again"


def kill_worker(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    for pid in trial.pids("ablate.run.worker"):
        os.kill(pid, signal.SIGKILL)
    trial.let_end()


def controller(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    trial.slurm.kill("slurmctld")
    time.sleep(3)
    trial.slurm.start_controller(forget=False)
    trial.slurm.wait_for(lambda: trial.slurm.ask("sinfo", "-h"), "the controller")
    trial.let_end()


def refused_requeue(trial: Trial) -> None:
    job = trial.submit("--sbatch", "no-requeue")
    trial.wait_until_training()
    for id in job.read_submissions()[0].ids:
        trial.slurm.ask("scancel", "--batch", "--signal=USR1", id)
    trial.let_end()
    assert any("not requeued" in log.read_text() for log in job.logs.glob("pilot*"))
    assert len(job.read_submissions()) > 1


def small_arrays(trial: Trial) -> None:
    job = trial.submit(workers=4)
    assert len(job.read_submissions()[0].ids) == 2
    trial.let_end()


def two_jobs(trial: Trial) -> None:
    trial.submit(workers=1)
    trial.submit(workers=1)
    trial.let_end()


def edited_study(trial: Trial) -> None:
    trial.submit()
    trial.path.write_text(trial.path.read_text().replace("train_steps: 400", "train_steps: 7"))
    trial.let_end()


def again(trial: Trial) -> None:
    """Submit what is left, as a person would."""
    if trial.lost():
        trial.submit()
        trial.let_end()


FAULTS: dict[str, Callable[[Trial], None]] = {
    "none": nothing,
    "preempted and requeued": preemption,
    "time limit": time_limit,
    "scancel, submitted again": scancel,
    "ablate stop, submitted again": stop,
    "ablate stop --now, submitted again": stop_now,
    "kill -9 of a pilot": kill_pilot,
    "kill -9 of all pilots": kill_all_pilots,
    "kill -9 of all workers": kill_worker,
    "slurmctld killed and restarted": controller,
    "requeueing refused": refused_requeue,
    f"4 pilots, MaxArraySize={ARRAY}": small_arrays,
    "two jobs on one results root": two_jobs,
    "study edited after submission": edited_study,
}


def main() -> None:
    """Inject each fault once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    reason = why_not()
    if reason:
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as name, OneNodeSlurm(Path(name) / "slurm", max_array=ARRAY) as slurm:
        local = Trial(slurm, Path(name) / "local")
        local.run_here()
        print(
            "| fault | runs | lost | wrong | twice | seconds |\n| --- | ---: | ---: | ---: | ---: | ---: |", flush=True
        )
        for number, (fault, inject) in enumerate(FAULTS.items()):
            if only not in fault:
                continue
            trial = Trial(slurm, Path(name) / str(number))
            trial.share_corpus(local)
            began = time.monotonic()
            try:
                inject(trial)
                note = ""
            except AssertionError as error:
                note = f" (not as expected: {str(error).splitlines()[0]})"
                slurm.ask("scancel", "--me")
                trial.let_end()
            seconds = time.monotonic() - began
            print(
                f"| {fault}{note} | {len(trial.ids)} | {trial.lost()} | {trial.wrong(local)} | {trial.twice()} "
                f"| {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
