"""The files of a cluster job: a study, frozen at submission, and the pilots that work on it.

A pilot is a process that the cluster starts, and that executes runs of the study. A closing job is
a job of the cluster that starts after all pilots have ended, and submits pilots again or closes.

results/<study>/jobs/<id>/
  job.json               the submission: options, selection of rows and seeds, ids of the runs
  study/                 the study file and the sources of its classes, as they were at submission
  submission-<n>.json    the n-th submission of pilots
  pilots/<name>.json     last report of each pilot
  logs/                  output of the pilots and of the closing job
  stop                   exists if the pilots must save and exit
  closed.json            written at the end of the job, when no further submission follows
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from ablate.errors import StoreError, UsageError
from ablate.store.files import read_bytes, write_bytes
from ablate.store.layout import Inside, Reader, Results
from ablate.store.machine import Resources
from ablate.store.processes import is_working
from ablate.store.records import ProcessMark, Record, none_if_unreadable

REPORT_SECONDS = 10.0  # seconds between two reports of a pilot
MAX_JOBS_IN_A_SECOND = 99

# Only digits, because the ids are arguments of scancel.
ClusterId = Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
PilotPhase = Literal["starting", "working", "saving", "left"]
ExitKind = Literal["", "finished", "stopped", "cancelled", "requeued", "failed"]


@dataclass(frozen=True)
class Exit:
    """Why a pilot exits or a job ends: a `kind` for programs, and a `text` for people."""

    kind: ExitKind
    text: str


STOPPED = Exit("stopped", "stopped on request")  # by `ablate cluster stop`
NOTHING_LEFT = Exit("finished", "nothing is left to do")
CANCELLED = Exit("cancelled", "cancelled")  # by somebody, through the cluster
REQUEUED = Exit("requeued", "requeued")  # the cluster will start the pilot again


class ClusterJob(Record):
    """job.json: everything that the pilots of a job need.

    id: name of the job's folder.
    study: name of the study.
    profile: name of the cluster profile.
    settings: content of the profile.
    python: absolute path of the interpreter.
    origin: path of the study file at submission.
    overrides: the `--set` options.
    rows: labels of the selected rows; empty for all rows.
    seeds: the `--seeds` option; None without it.
    data_folder: absolute path of `data.folder`; None if the study does not set it.
    resources: resources that each pilot may occupy.
    runs: ids of the runs of the study.
    time: time of the submission, in seconds since the epoch.
    """

    id: str
    study: str
    profile: str
    settings: dict[str, JsonValue]
    python: str = ""
    origin: str = ""
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: str | None = None
    data_folder: str | None = None
    resources: Resources
    runs: tuple[str, ...]
    time: float


class Submission(Record):
    """submission-<n>.json: pilots that were submitted together.

    pilots: number of pilots.
    ids: the cluster's ids of the job arrays, or of Ray's driver.
    closing: the cluster's id of the closing job; None without one.
    work: number of steps that all runs of the study had made at the time of the submission. The
        job is not submitted again without further steps.
    time: time of the submission, in seconds since the epoch.
    """

    pilots: int = 0
    ids: tuple[ClusterId, ...]
    closing: ClusterId | None = None
    work: int
    time: float

    @property
    def all_ids(self) -> tuple[str, ...]:
        """The cluster's ids of the pilots, and of the closing job if there is one."""
        return self.ids if self.closing is None else (*self.ids, self.closing)


class PilotReport(ProcessMark):
    """pilots/<name>.json: the last report of a pilot.

    name: name of the pilot.
    phase: what the pilot does; `left` if it works no longer.
    time: time of the report, in seconds since the epoch.
    slots: number of runs that the pilot executes at once.
    device: device of the first slot.
    running: labels of the runs that it executes now.
    ended: number of runs that have ended in this pilot.
    starts: number of times that the cluster has started the pilot: 1, plus the requeues.
    left_for: why the pilot exited, for programs (`Exit.kind`); empty while it works.
    reason: why the pilot exited, for people (`Exit.text`).
    """

    name: str
    phase: PilotPhase
    time: float
    slots: int = 0
    device: str = ""
    running: tuple[str, ...] = ()
    ended: int = 0
    starts: int = 1
    left_for: ExitKind = ""
    reason: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the pilot still works: by its process if it is on this host, otherwise by the age
        of its report.
        """
        return self.phase != "left" and is_working(self, self.time)


class JobEnd(Record):
    """closed.json: the end of a job, and its reason."""

    reason: str
    time: float


@dataclass(frozen=True)
class JobFolder:
    """The files of one cluster job."""

    path: Path

    job = Inside("job.json")  # a `ClusterJob`
    study = Inside("study/study.yaml")  # as it was at submission
    logs = Inside("logs")
    stop = Inside("stop")  # exists if the pilots must save and exit
    closed = Inside("closed.json")  # a `JobEnd`

    @property
    def id(self) -> str:
        """The id of the job: the name of its folder."""
        return self.path.name

    @property
    def results(self) -> Results:
        """The results root of the job, at the path where this machine mounts it."""
        # By the path results/<study>/jobs/<id>, because a node may mount the root elsewhere.
        return Results(self.path.absolute().parents[2])

    def pilot_command(self, python: str) -> list[str]:
        """The command that starts a pilot of the job."""
        return [python, "-m", "ablate", "work", "--job", str(self.path)]

    def submission(self, number: int) -> Path:
        """File of a `Submission`; the first has number 1."""
        return self.path / f"submission-{number}.json"

    def pilot(self, name: str) -> Path:
        """File of the last report of a pilot: a `PilotReport`."""
        return self.path / "pilots" / f"{name}.json"

    def read_job(self) -> ClusterJob:
        """Read job.json.

        Raises:
            UsageError: the folder is not the folder of a job.
            StoreError: the file is damaged, or another version wrote it.
        """
        job = ClusterJob.read(self.job)
        if job is None:
            raise UsageError(f"{self.path}: not the folder of a job: job.json is missing")
        return job

    def read_submissions(self) -> list[Submission]:
        """Read all submissions, in their order."""
        submissions: list[Submission] = []
        while (last := Submission.read(self.submission(len(submissions) + 1))) is not None:
            submissions.append(last)
        return submissions

    def pilot_files(self) -> list[Path]:
        """The files of the pilots' reports."""
        return sorted((self.path / "pilots").glob("*.json"))

    def read_pilots(self) -> list[PilotReport]:
        """Read the last report of each pilot. Unreadable reports are skipped."""
        # A working pilot replaces a damaged report within seconds.
        reports = (
            none_if_unreadable(partial(PilotReport.read, path)) for path in self.pilot_files()
        )
        return [report for report in reports if report is not None]

    def awaited(self) -> int:
        """Number of pilots that wait in the queue, or have not yet written their first report.

        The next submission follows only when all pilots of the last one have ended, so a report
        that is newer than a submission is a report of its pilots.
        """
        submissions = self.read_submissions()
        if self.is_closed or not submissions:
            return 0
        last = submissions[-1]
        started = sum(
            report.time >= last.time and report.left_for != REQUEUED.kind
            for report in self.read_pilots()
        )
        return max(0, last.pilots - started)

    read_end = Reader(JobEnd, closed)

    @property
    def is_closed(self) -> bool:
        """Whether the job has ended: no further submission follows."""
        return os.path.lexists(self.closed)  # also a broken link takes the name

    def request_stop(self, reason: Exit = STOPPED) -> None:
        """Ask all pilots to save and exit."""
        write_bytes(self.stop, f"{reason.kind}\n".encode())

    def stop_reason(self) -> Exit | None:
        """Why the pilots must exit; None without a request. A request that cannot be read, or that
        somebody has made by hand, means STOPPED.
        """
        try:
            kind = read_bytes(self.stop)
        except StoreError:
            return STOPPED
        if kind is None:
            return None
        return NOTHING_LEFT if kind.strip() == NOTHING_LEFT.kind.encode() else STOPPED

    def close(self, reason: str) -> None:
        """Record the end of the job and its reason, unless an end is already recorded."""
        with suppress(FileExistsError):
            JobEnd(reason=reason, time=time.time()).write(self.closed, once=True)


def jobs_of(results: Results, study: str) -> list[JobFolder]:
    """The jobs of a study, oldest first."""
    folder = results.study(study) / "jobs"
    jobs = [JobFolder(path) for path in sorted(folder.glob("*"))]
    return [job for job in jobs if os.path.lexists(job.job)]


def open_jobs(results: Results, study: str) -> list[JobFolder]:
    """The jobs of a study that have not ended."""
    return [job for job in jobs_of(results, study) if not job.is_closed]


def starting_pilots(results: Results, study: str) -> int:
    """Number of pilots of a study that wait in a cluster's queue, or that are starting."""
    count = 0
    for folder in open_jobs(results, study):
        with suppress(StoreError):  # `ablate status` reports the error
            count += folder.awaited()
            count += sum(
                report.is_alive and report.phase == "starting" for report in folder.read_pilots()
            )
    return count


def new_job(results: Results, study: str) -> JobFolder:
    """Create the folder of a job. Its id is the time; if another job has this id, a number is
    added.
    """
    parent = results.study(study).absolute() / "jobs"
    parent.mkdir(parents=True, exist_ok=True)
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, MAX_JOBS_IN_A_SECOND + 1):
        path = parent / (now if number == 1 else f"{now}-{number}")
        try:
            path.mkdir()  # fails if another submission has this folder
        except FileExistsError:
            continue
        (path / "logs").mkdir()
        return JobFolder(path)
    raise StoreError(f"{parent}: too many jobs in one second")
