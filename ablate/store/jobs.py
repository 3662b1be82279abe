"""The files of a cluster job: a study frozen at submission, and the reports of the pilots that work
on it.

results/<study>/jobs/<id>/
  job.json               the submission: options, selection of rows and seeds, ids of the runs
  study/                 the study file and its plug-ins, as they were at submission
  submission-<n>.json    one for each time that pilots were submitted
  pilots/<name>.json     last report of each pilot
  logs/                  output of the pilots and of the closing job
  stop                   exists if the pilots are to save and leave
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
from ablate.store.processes import is_working
from ablate.store.records import ProcessMark, Record, none_if_unreadable

REPORT_SECONDS = 10.0  # between reports of a pilot
MOST_IN_A_SECOND = 99

# Only digits, because the ids are arguments of scancel.
ClusterId = Annotated[str, Field(pattern=r"^[0-9]{1,20}$")]
Device = Literal["auto", "cpu", "cuda"]
PilotPhase = Literal["starting", "working", "saving", "left"]
LeaveKind = Literal["", "finished", "stopped", "cancelled", "requeued", "failed"]


@dataclass(frozen=True)
class Leave:
    """Why a pilot leaves or a job ends: `kind` for programs, `text` for people."""

    kind: LeaveKind
    text: str


STOPPED = Leave("stopped", "stopped on request")  # by `ablate cluster stop`
NOTHING_LEFT = Leave("finished", "nothing is left to do")
CANCELLED = Leave("cancelled", "cancelled")  # by somebody, through the cluster
REQUEUED = Leave("requeued", "requeued")  # the cluster starts the pilot once more


class Resources(Record):
    """What runs may occupy.

    device: `auto` uses GPUs if there are any.
    jobs: runs at once; None for one on each device, or on each core.
    processes: for each run, on a device each; a power of two. None for the most with which no run
        has to wait longer.
    """

    device: Device = "auto"
    jobs: int | None = None
    processes: int | None = 1


DEFAULT_RESOURCES = Resources()


class ClusterJob(Record):
    """job.json: a submission with everything that its pilots need.

    profile: its name, for people; settings: its content, as `cluster.profiles` reads it.
    python: absolute path of the interpreter.
    origin: path of the study file at submission.
    overrides, rows, seeds: the selection, as given on the command line.
    data_folder: absolute path of `data.folder`; None if the study has none.
    resources: of each pilot.
    runs: ids of the runs of the study.
    time: of the submission, in seconds since the epoch.
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

    pilots: their number.
    ids: of the arrays, as the cluster names them, or of the driver of Ray; closing: of the closing
        job.
    work: steps made by the study's runs so far, from which progress is measured.
    """

    pilots: int = 0
    ids: tuple[ClusterId, ...]
    closing: ClusterId | None = None
    work: int
    time: float

    @property
    def all_ids(self) -> tuple[str, ...]:
        """Those of the pilots, and that of the closing job if there is one."""
        return tuple(filter(None, (*self.ids, self.closing)))


class PilotReport(ProcessMark):
    """pilots/<name>.json: the last report of a pilot.

    time: of the report, in seconds since the epoch.
    slots: number of jobs at once; device: of the first.
    running: labels of the runs in its slots.
    ended: number of runs that have ended here.
    starts: how often the pilot was started: 1, and one more for each requeueing.
    left_for, reason: why it left, for programs and for people.
    """

    name: str
    phase: PilotPhase
    time: float
    slots: int = 0
    device: str = ""
    running: tuple[str, ...] = ()
    ended: int = 0
    starts: int = 1
    left_for: LeaveKind = ""
    reason: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the pilot works, by its process here, or by the age of its report."""
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
    stop = Inside("stop")  # exists if the pilots are to save and leave
    closed = Inside("closed.json")  # a `JobEnd`

    @property
    def id(self) -> str:
        """The id of the job: the name of its folder."""
        return self.path.name

    @property
    def results(self) -> Results:
        """The results root that the job belongs to, wherever this machine mounts it."""
        # From the path results/<study>/jobs/<id>: nodes may mount the root elsewhere.
        return Results(self.path.absolute().parents[2])

    def work_command(self, python: str) -> list[str]:
        """The command that starts a pilot of the job."""
        return [python, "-m", "ablate", "work", "--job", str(self.path)]

    def submission(self, number: int) -> Path:
        """The n-th `Submission`, from 1."""
        return self.path / f"submission-{number}.json"

    def pilot(self, name: str) -> Path:
        """The last report of a pilot: a `PilotReport`."""
        return self.path / "pilots" / f"{name}.json"

    def read_job(self) -> ClusterJob:
        """Read job.json.

        Raises:
            UsageError: the folder is not a job's.
            StoreError: the file is damaged, or another version wrote it.
        """
        job = ClusterJob.read(self.job)
        if job is None:
            raise UsageError(f"{self.path}: not the folder of a job: job.json is missing")
        return job

    def read_submissions(self) -> list[Submission]:
        """All submissions, in their order."""
        submissions: list[Submission] = []
        while (last := Submission.read(self.submission(len(submissions) + 1))) is not None:
            submissions.append(last)
        return submissions

    def pilot_files(self) -> list[Path]:
        """The files of the pilots' reports."""
        return sorted((self.path / "pilots").glob("*.json"))

    def read_pilots(self) -> list[PilotReport]:
        """The last report of each pilot; unreadable ones are left out."""
        # A pilot replaces a damaged report within seconds.
        reports = (
            none_if_unreadable(partial(PilotReport.read, path)) for path in self.pilot_files()
        )
        return [report for report in reports if report is not None]

    def awaited(self) -> int:
        """Number of pilots that are in the queue, or about to write their first report."""
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
        return os.path.lexists(self.closed)  # a link that leads nowhere takes the name, too

    def request_stop(self, why: Leave = STOPPED) -> None:
        """Ask all pilots to save and leave."""
        write_bytes(self.stop, f"{why.kind}\n".encode())

    def stop_reason(self) -> Leave | None:
        """Why the pilots must leave; None without a request."""
        try:
            kind = read_bytes(self.stop)
        except StoreError:
            kind = b""
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
    """Number of pilots of a study that wait in a cluster's queue, or start."""
    count = 0
    for folder in open_jobs(results, study):
        with suppress(StoreError):  # which `ablate status` reports
            count += folder.awaited()
            count += sum(
                report.is_alive and report.phase == "starting" for report in folder.read_pilots()
            )
    return count


def new_job(results: Results, study: str) -> JobFolder:
    """Create the folder of a job. Its id is the time, with a number if the time is taken."""
    parent = results.study(study).absolute() / "jobs"
    parent.mkdir(parents=True, exist_ok=True)
    now = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, MOST_IN_A_SECOND + 1):
        path = parent / (now if number == 1 else f"{now}-{number}")
        try:
            path.mkdir()  # fails if another submission has this folder
        except FileExistsError:
            continue
        (path / "logs").mkdir()
        return JobFolder(path)
    raise StoreError(f"{parent}: too many jobs in one second")
