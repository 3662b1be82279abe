"""Slurm: submit arrays of pilots, find out about this allocation, requeue, cancel.

Uses the commands of Slurm only. The state of runs is never taken from Slurm, which after a restart
of its controller may report jobs that have ended as running.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablate.cluster.profiles import Profile, sbatch_arguments, slurm_time
from ablate.errors import UsageError, did_you_mean, listed
from ablate.formatting import duration, plural, size
from ablate.store.files import write_bytes
from ablate.store.jobs import ClusterJob, JobFolder
from ablate.store.records import Setting

COMMAND_SECONDS = 60.0  # a controller under load answers slowly
START_SECONDS = 60.0  # a run that has less than this before the warning is not started
REQUEUE_TRIES = 4
REQUEUE_PAUSE = 3.0
# The closing job runs for seconds; it needs no GPU, but the accounting of the pilots.
CLOSING_TIME = "30min"
CLOSING_INHERITS = ("account", "partition", "qos", "reservation", "constraint")
# With one of these, the pilots' cores are chosen. Otherwise a pilot on CPUs takes its whole node.
_CHOOSES_CORES = {
    "cpus-per-task",
    "mincpus",
    "exclusive",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
}
_HAS_ENDED = re.compile("Invalid job id|already completing or completed")  # of scancel
_SIZES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm. An allocation's own variables are left out: sbatch would take them
    for options.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_"))
    }
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    try:
        return subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(
            command, 124, "", f"{command[0]}: no answer in {COMMAND_SECONDS:.0f} s"
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: not found")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """The reason that a failed command gives, in one line without its name: its fatal error, if it
    names one.
    """
    lines = [
        line.strip().removeprefix(f"{done.args[0]}: ")
        for line in done.stderr.splitlines()
        if line.strip()
    ]
    fatal = [line for line in lines if line.startswith("fatal: ")]
    reasons = (line.removeprefix("fatal: ").removeprefix("error: ") for line in fatal or lines)
    return "; ".join(reasons) or f"exit code {done.returncode}"


def require_slurm() -> None:
    """Check that Slurm's commands are here.

    Raises:
        UsageError: they are not.
    """
    if shutil.which("sbatch") is None:
        raise UsageError("sbatch not found: submit from a login node of the cluster")


# Submission


def submit_pilots(folder: JobFolder, job: ClusterJob, pilots: int) -> tuple[tuple[str, ...], str]:
    """Submit pilots, as one array or as several if the cluster limits arrays, and the closing job
    after them.

    Returns:
        (Ids of the arrays, id of the closing job.)

    Raises:
        UsageError: sbatch refuses.
    """
    write_scripts(folder, job)
    largest = max_array_size()
    ids: list[str] = []
    for first in range(0, pilots, largest):
        count = min(largest, pilots - first)
        arguments = pilot_arguments(folder, job, count)
        try:
            ids.append(sbatch(arguments, folder.path / "pilot.sh", str(first)))
        except BaseException:  # an interruption too: nobody would know the ids of these pilots
            cancel(ids)
            raise
    options: dict[str, Setting] = {
        name: job.sbatch[name] for name in CLOSING_INHERITS if name in job.sbatch
    }
    arguments = [
        f"--job-name=ablate-{job.study}-close",
        # afterany, because the closing job must also follow pilots that failed or were canceled.
        f"--dependency=afterany:{':'.join(ids)}",
        f"--output={_literal(folder.logs)}/closing-%j.log",
        f"--chdir={folder.path}",
        "--nodes=1",
        "--ntasks=1",
        "--requeue",
        *sbatch_arguments({"time": CLOSING_TIME, **options, **job.closing}),
    ]
    try:
        return tuple(ids), sbatch(arguments, folder.path / "closing.sh")
    except BaseException:
        cancel(ids)
        raise


def _literal(path: Path) -> str:
    """A path for `--output`, in which sbatch replaces `%j` and the like."""
    return str(path).replace("%", "%%")


def pilot_arguments(folder: JobFolder, job: ClusterJob, count: int) -> list[str]:
    """The options of sbatch for an array of pilots."""
    fills_node = [] if _CHOOSES_CORES & job.sbatch.keys() else ["--exclusive"]
    return [
        f"--job-name=ablate-{job.study}",
        f"--array=0-{count - 1}",
        # B: to the process of the batch script, which `exec` has replaced by the pilot.
        f"--signal=B:USR1@{job.grace}",
        *([] if job.sbatch.get("no-requeue") else ["--requeue"]),
        # A requeued pilot goes on in the same log file instead of replacing it.
        "--open-mode=append",
        f"--output={_literal(folder.logs)}/pilot-%A_%a.log",
        f"--chdir={folder.path}",
        "--nodes=1",
        "--ntasks=1",
        *fills_node,
        *sbatch_arguments(job.sbatch),
    ]


def write_scripts(folder: JobFolder, job: ClusterJob) -> None:
    """Write the batch scripts of the pilots and of the closing job."""
    program = f"{shlex.quote(job.python)} -m ablate work --job {shlex.quote(str(folder.path))}"
    head = ["#!/bin/bash", *job.setup]
    # `exec`: Slurm signals the script's own process. USR1 would end it before the program handles
    # that signal.
    pilot = [
        *head,
        "trap '' USR1",
        f"exec {program} --index $((${{1:-0}} + ${{SLURM_ARRAY_TASK_ID:-0}}))",
    ]
    closing = [*head, f"exec {program} --close"]
    for name, lines in (("pilot.sh", pilot), ("closing.sh", closing)):
        write_bytes(folder.path / name, "".join(f"{line}\n" for line in lines).encode())


def sbatch(arguments: Sequence[str], script: object, *rest: str) -> str:
    """Submit a script; the id of its job.

    Raises:
        UsageError: sbatch refuses; with its reason.
    """
    done = slurm("sbatch", "--parsable", *arguments, str(script), *rest)
    if done.returncode:
        raise UsageError(f"sbatch: {_reason(done)}")
    # With several clusters, --parsable prints `id;cluster`.
    return done.stdout.strip().partition(";")[0]


def max_array_size() -> int:
    """The most tasks that one array may have."""
    found = re.search(
        r"^MaxArraySize\s*=\s*(\d+)", slurm("scontrol", "show", "config").stdout, re.MULTILINE
    )
    return max(1, int(found[1])) if found else 1000


def cancel(ids: Sequence[str]) -> str:
    """Cancel jobs; the reason if Slurm refuses, else empty. Jobs that have ended already are no
    reason.
    """
    if not ids:
        return ""
    done = slurm("scancel", *ids)
    lines = [
        line for line in done.stderr.splitlines() if line.strip() and not _HAS_ENDED.search(line)
    ]
    done.stderr = "\n".join(lines)
    return _reason(done) if lines else ""


# This allocation


@dataclass(frozen=True)
class Task:
    """The allocation that this process runs in.

    name: as Slurm's commands take it: `12_3` for a task of an array, whose SLURM_JOB_ID may be the
        array's.
    restarts: how often it was requeued before.
    """

    name: str
    restarts: int

    @staticmethod
    def here() -> Task | None:
        """The allocation of this process; None outside of Slurm."""
        id = os.environ.get("SLURM_JOB_ID")
        if id is None:
            return None
        array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
        return Task(
            f"{array}_{index}" if array and index else id,
            int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        )

    def seconds_left(self) -> float | None:
        """Seconds until the time limit: infinite if there is none, None if Slurm does not
        answer.
        """
        done = slurm("squeue", "-h", "-j", self.name, "-o", "%L")
        return parse_seconds(done.stdout.strip()) if done.returncode == 0 else None

    def state(self) -> tuple[str, int]:
        """(State, number of restarts) that Slurm reports; empty and this one's if it does not
        answer.
        """
        text = slurm("scontrol", "show", "job", self.name, "--oneliner").stdout
        state, restarts = re.search(r"\bJobState=(\w+)", text), re.search(r"\bRestarts=(\d+)", text)
        return (state[1] if state else ""), (int(restarts[1]) if restarts else self.restarts)

    def requeue(self) -> str:
        """Put this task back into the queue; Slurm then ends it. The reason if Slurm refuses, else
        empty.
        """
        for attempt in range(REQUEUE_TRIES):
            done = slurm("scontrol", "requeue", self.name)
            if done.returncode == 0:
                return ""
            if (
                "nable to contact" not in done.stderr
            ):  # refused for good; else the controller is restarting
                break
            if attempt < REQUEUE_TRIES - 1:
                time.sleep(REQUEUE_PAUSE)
        return _reason(done)


def parse_seconds(text: str) -> float:
    """Seconds of a duration as Slurm prints it: `1-02:03:04`, `02:03:04`, `03:04`; infinite for any
    other text.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 86_400.0 * days + 3600 * hours + 60 * minutes + seconds


# Limits of the partition


@dataclass(frozen=True)
class Partition:
    """The limits of a partition: seconds, and the most cores, GPUs and memory (bytes) of one of its
    nodes.
    """

    name: str
    seconds: float
    nodes: int
    cores: int
    gpus: int
    memory: float


def partitions() -> dict[str, Partition]:
    """The partitions of this cluster, by name. The default one is also under the name "".

    Raises:
        UsageError: Slurm does not answer.
    """
    done = slurm("sinfo", "-h", "-o", "%P|%l|%D|%c|%G|%m")
    if done.returncode:
        raise UsageError(
            f"Slurm does not answer (sinfo: {_reason(done)}): submit from a login node of the "
            f"cluster"
        )
    found: dict[str, Partition] = {}
    for line in done.stdout.splitlines():
        name, limit, nodes, cores, gres, memory = (part.strip() for part in line.split("|"))
        one = Partition(
            name=name.rstrip("*"),
            seconds=parse_seconds(limit),
            nodes=int(nodes),
            cores=int(re.sub(r"\D", "", cores) or 0),
            gpus=sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres)),
            memory=float(re.sub(r"\D", "", memory) or 0) * 1024**2,
        )
        keys = [one.name, ""] if name.endswith("*") else [one.name]
        for key in keys:
            # sinfo prints a line for each kind of node in a partition.
            found[key] = _widest(found[key], one) if key in found else one
    return found


def _widest(one: Partition, other: Partition) -> Partition:
    """The larger of each limit, for a partition with different nodes."""
    return Partition(
        one.name,
        max(one.seconds, other.seconds),
        one.nodes + other.nodes,
        max(one.cores, other.cores),
        max(one.gpus, other.gpus),
        max(one.memory, other.memory),
    )


def refusals(profile: Profile, found: Mapping[str, Partition], needed: float) -> list[str]:
    """Why a partition cannot give what a profile asks for; a line each, empty if it can.

    Args:
        profile: with the options of the command line.
        found: the partitions of the cluster.
        needed: bytes of memory of the largest run.
    """
    options = profile.sbatch
    name = str(options.get("partition") or "")
    if name not in found:
        names = [each for each in found if each]
        nearest = did_you_mean(name, names) or (f"; partitions: {listed(names)}" if names else "")
        return [
            f'partition: no partition "{name}"{nearest}'
            if name
            else "partition: the cluster has no default one"
        ]
    limits = found[name]
    faults = []
    if (wanted := _seconds(options.get("time"))) is not None and wanted > limits.seconds:
        faults.append(
            f"time: {options['time']} is longer than the limit of {limits.name}, "
            f"{duration(limits.seconds)}"
        )
    if wanted is not None and wanted <= profile.grace + START_SECONDS:
        need = f"{START_SECONDS:.0f} s to start and {profile.grace} s (grace) to save"
        faults.append(f"time: {options['time']} is too short: {need}")
    for option, most in (("cpus-per-task", limits.cores), ("mincpus", limits.cores)):
        if (count := _number(options.get(option))) is not None and count > most:
            faults.append(
                f"{option}: {count} is more than the {plural(most, 'core')} of a node of "
                f"{limits.name}"
            )
    gpus = asked_gpus(profile)
    if gpus > limits.gpus:
        faults.append(
            f"gpus-per-node: {gpus} is more than the {plural(limits.gpus, 'GPU')} of a node of "
            f"{limits.name}"
        )
    memory = _megabytes(options.get("mem"))
    # A node without a configured memory is reported with 1 MB, which says nothing.
    if memory is not None and limits.memory > 1024**2 and memory > limits.memory:
        faults.append(
            f"mem: {options['mem']} is more than the {size(limits.memory)} of a node of "
            f"{limits.name}"
        )
    elif memory and not gpus and needed > memory:
        faults.append(
            f"mem: {options['mem']} is less than the {size(needed)} that the largest run needs"
        )
    return faults


def asked_gpus(profile: Profile) -> int:
    """Number of GPUs of each pilot."""
    if profile.engine == "ray":
        return profile.each.gpus
    for option in ("gpus-per-node", "gpus-per-task", "gpus"):
        value = profile.sbatch.get(option)
        if value is not None and value is not False:
            return sum(map(_count, filter(None, str(value).split(","))))
    kinds = str(profile.sbatch.get("gres") or "").split(",")
    return sum(_count(kind) for kind in kinds if re.match(r"gpu\b", kind))


def _count(part: str) -> int:
    """The number at the end of `4`, `a100:4` or `gpu:a100:4(S:0)`; 1 without a number."""
    number = part.partition("(")[0].rpartition(":")[2]
    return int(number) if number.isdecimal() else 1


def _seconds(value: Setting) -> float | None:
    if value is None:
        return None
    text = slurm_time(value)
    if text.isdecimal():
        return 60.0 * int(text)
    if re.fullmatch(r"\d+-\d+(:\d\d)?", text):  # days-hours[:minutes]
        text += ":00" * (2 - text.count(":"))
    return parse_seconds(text)


def _number(value: Setting) -> int | None:
    return int(str(value)) if str(value).isdecimal() else None


def _megabytes(value: Setting) -> float | None:
    """Bytes of an amount of memory as sbatch takes it: `8G`, or a number of MiB; None for 0, the
    whole node.
    """
    found = re.fullmatch(r"(\d+)([KMGT]?)", str(value).upper().removesuffix("B"))
    if found is None or not int(found[1]):
        return None
    return int(found[1]) * _SIZES[found[2] or "M"] * 1024**2
