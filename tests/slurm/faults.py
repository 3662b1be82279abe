"""`python -m tests.slurm.faults`: disturb a study on a Slurm of one node in every way, and print a
table.

lost: runs without a result; wrong: weights, logs, translations that differ from those of an
    undisturbed local run;
twice: runs that were published more than once; seconds: of each try. `--only WORD` injects the
    faults whose name has
the word, `--tries N` each of them N times.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.slurm.one_node import OneNodeSlurm, why_not
from tests.slurm.trials import ROOT, Trial

ARRAY = 3  # the most tasks of an array, fewer than pilots
SKEW_SECONDS = 3600.0
# Loaded by every interpreter of a sick host: its GPU fails each training at once.
SICK = """\
import sys

if "ablate.workers.worker" in sys.orig_argv:
    from ablate.training.trainer import Trainer

    def fail(*_, **__):
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    Trainer.fit = fail
"""


def nothing(trial: Trial) -> None:
    trial.submit()
    trial.let_end()


def preemption(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    trial.slurm.ask(
        "sbatch", "--parsable", "-p", "high", "-c", "2", "-o", "/dev/null", "--wrap", "sleep 1"
    )
    trial.slurm.wait_for(
        lambda: any("wrap" in job and "RUNNING" in job for job in trial.slurm.jobs() or ()),
        "preemption",
    )
    trial.let_end()
    assert any(report.starts > 1 for report in trial.job.read_pilots())


def time_limit(trial: Trial) -> None:
    job = trial.submit("--time", "30min")
    trial.wait_until_training()
    (array,) = job.read_submissions()[0].ids
    trial.slurm.ask("scontrol", "update", f"jobid={array}", "TimeLimit=1")
    trial.slurm.wait_for(
        lambda: any("left: " in log.read_text() for log in job.logs.glob("pilot*")),
        "the warning",
        120,
    )
    trial.slurm.ask("scontrol", "update", f"jobid={array}", "TimeLimit=30")
    trial.let_end()
    again(trial)


def scancel(trial: Trial) -> None:
    job = trial.submit()
    trial.wait_until_training()
    trial.slurm.order("scancel", job.read_submissions()[0].ids[0])
    trial.let_end()
    assert len(job.read_submissions()) == 1, "a cancelled job was submitted again"
    assert trial.lost(), "the study had ended before"
    again(trial)


def stop(trial: Trial) -> None:
    job = trial.submit()
    trial.wait_until_training()
    trial.ablate("cluster", "stop", "small.yaml")
    trial.let_end()
    assert trial.lost(), "the study had ended before"
    assert job.read_end() is not None
    again(trial)


def stop_now(trial: Trial) -> None:
    trial.submit(workers=4)
    trial.wait_until_training()
    trial.ablate("cluster", "stop", "small.yaml", "--now")
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
    for pid in trial.pids("ablate.workers.worker"):
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
        trial.slurm.order("scancel", "--batch", "--signal=USR1", id)
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


def edited_while_running(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    trial.path.write_text(trial.path.read_text().replace("train_steps: 400", "train_steps: 7"))
    trial.let_end()


def stopped_worker(trial: Trial) -> None:
    trial.submit()
    trial.wait_until_training()
    pid, id = next(iter(trial.training().items()))
    os.kill(pid, signal.SIGSTOP)
    try:
        trial.slurm.wait_for(
            lambda: trial.results.run(id).result.exists(), "another pilot to take the run over", 600
        )
    finally:
        with suppress(ProcessLookupError):  # Slurm or its pilot may have killed it
            os.kill(pid, signal.SIGCONT)
    trial.let_end()


def foreign_lease(trial: Trial) -> None:
    with on_host("elsewhere", trial, "run", "small.yaml", "--device", "cpu", "--jobs", "1"):
        trial.wait_until_training()
        for word in ("ablate run", "ablate.workers.worker"):
            for pid in trial.pids(word):
                os.kill(pid, signal.SIGKILL)
    assert [id for id in trial.ids if trial.results.run(id).lease.exists()], "no lease was left"
    trial.submit()
    trial.let_end()


def clock_skew(trial: Trial) -> None:
    """The clock of the file system is an hour behind, for two pilots on hosts of different
    names.
    """
    job = trial.submit(workers=1)
    with (
        shifted_leases(trial),
        on_host("elsewhere", trial, "work", "--job", str(job.path), "--index", "1") as pilot,
    ):
        trial.slurm.wait_for(lambda: len(trial.training()) > 1, "both hosts in training", 300)
        trial.let_end()
        pilot.wait(600)
    reports = job.read_pilots()
    assert {report.host for report in reports} == {trial.slurm.host, "elsewhere"}, reports
    logs = "".join(trial.results.run(id).log.read_text() for id in trial.ids)
    assert "another process" not in logs, "a lease was taken from a living host"


def sick_host(trial: Trial) -> None:
    (trial.folder / "sick").mkdir()
    (trial.folder / "sick" / "sitecustomize.py").write_text(SICK)
    job = trial.submit(workers=1)
    words = ("work", "--job", str(job.path), "--index", "1")
    with on_host("sick", trial, *words, PYTHONPATH=f"{trial.folder / 'sick'}:{ROOT}") as pilot:
        pilot.wait(600)
        trial.let_end()
    (report,) = (each for each in job.read_pilots() if each.host == "sick")
    assert report.reason == "2 runs in a row failed at once on sick", report
    assert report.ended == 0


@contextmanager
def on_host(
    name: str, trial: Trial, *words: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of ablate with one core on a host of this name; killed at the end."""
    environment = {
        **trial.slurm.environment,
        "PYTHONPATH": str(ROOT),
        "SLURM_CPUS_ON_NODE": "1",
        **variables,
    }
    command = [
        "unshare",
        "--uts",
        "sh",
        "-c",
        f'hostname {name}; exec "$@"',
        "sh",
        sys.executable,
        "-m",
        "ablate",
    ]
    with (trial.folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, *words], cwd=trial.folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def shifted_leases(trial: Trial) -> Iterator[None]:
    """Shift the time of each lease, whenever its holder has renewed it."""
    ended = threading.Event()

    def shift() -> None:
        while not ended.wait(0.05):
            for lease in (trial.results.run(id).lease for id in trial.ids):
                with suppress(OSError):
                    time_of = lease.stat().st_mtime
                    if time_of > time.time() - SKEW_SECONDS / 2:
                        os.utime(lease, (time_of - SKEW_SECONDS,) * 2)

    thread = threading.Thread(target=shift)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
    "ablate cluster stop, submitted again": stop,
    "ablate cluster stop --now, submitted again": stop_now,
    "kill -9 of a pilot": kill_pilot,
    "kill -9 of all pilots": kill_all_pilots,
    "kill -9 of all workers": kill_worker,
    "slurmctld killed and restarted": controller,
    "requeueing refused": refused_requeue,
    f"4 pilots, MaxArraySize={ARRAY}": small_arrays,
    "two jobs on one results root": two_jobs,
    "study edited after submission": edited_study,
    "study edited while its runs train": edited_while_running,
    "SIGSTOP of a worker beyond its lease": stopped_worker,
    "leases left by a host that died": foreign_lease,
    "two hosts, the clock of the files an hour behind": clock_skew,
    "a host on which every run fails": sick_host,
}


def main() -> int:
    """Inject each fault, and print a line for it; 1 if a run was lost, is wrong, or was published
    twice, or if a fault did not take the course that it should.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--tries", type=int, default=1)
    options = parser.parse_args()
    reason = why_not()
    if reason:
        raise SystemExit(reason)
    with (
        tempfile.TemporaryDirectory() as name,
        OneNodeSlurm(Path(name) / "slurm", max_array=ARRAY) as slurm,
    ):
        local = Trial(slurm, Path(name) / "local")
        local.run_here()
        print("| fault | tries | runs | lost | wrong | twice | seconds |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
        holds = True
        for number, (fault, inject) in enumerate(FAULTS.items()):
            if options.only in fault:
                folders = [Path(name) / f"{number}-{n}" for n in range(options.tries)]
                text, as_expected = line_of(inject, slurm, local, folders)
                holds = holds and as_expected
                print(f"| {fault}{text} |", flush=True)
    return 0 if holds else 1


def line_of(
    inject: Callable[[Trial], None], slurm: OneNodeSlurm, local: Trial, folders: list[Path]
) -> tuple[str, bool]:
    """Inject a fault once in each folder; the columns of its line, and whether all is well."""
    counts, seconds, notes = [0, 0, 0, 0], [], ""
    for folder in folders:
        trial = Trial(slurm, folder)
        trial.share_corpus(local)
        began = time.monotonic()
        try:
            inject(trial)
        except AssertionError as error:
            notes += f" (not as expected: {str(error).splitlines()[0]})"
            slurm.ask("scancel", "--me")
            trial.let_end()
        seconds.append(f"{time.monotonic() - began:.0f}")
        found = (len(trial.ids), trial.lost(), trial.wrong(local), trial.twice())
        counts = [a + b for a, b in zip(counts, found, strict=True)]
    text = f"{notes} | {len(folders)} | {' | '.join(map(str, counts))} | {', '.join(seconds)}"
    return text, not notes and not any(counts[1:])


if __name__ == "__main__":
    sys.exit(main())
