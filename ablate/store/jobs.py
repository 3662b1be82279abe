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

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from ablate.errors import StoreError, UsageError
from ablate.store.files import write_bytes
from ablate.store.layout import Results
from ablate.store.machine import is_working
from ablate.store.records import ProcessMark, Record, Setting

REPORT_SECONDS = 10.0  # between two reports of a pilot
STOPPED = "stopped on request"  # reason of a pilot, and of a job, that `ablate stop` has ended

PilotPhase = Literal["starting", "working", "saving", "left"]


class ClusterJob(Record):
    """job.json: a submission with everything that its pilots need.

    engine: `slurm`, `ray`, or `manual` for pilots that something else starts.
    profile: name of the profile, for people.
    workers: number of pilots.
    sbatch: options of the pilots' array; closing: those of the closing job.
    setup: lines of shell before the program, such as `module load cuda`.
    grace: seconds before the end of the allocation at which pilots save.
    idle: seconds that a pilot waits with nothing to do before it leaves.
    resubmissions: how often the closing job may submit again.
    python: absolute path of the interpreter.
    origin: path of the study file at submission.
    overrides, rows, seeds: the selection, as given on the command line.
    data_folder: absolute path of `data.folder`; None if the study has none.
    device, slots: of each pilot.
    processes: for each run, on a device each; None for as many as leave no device idle.
    runs: ids of the runs of the study.
    time: of the submission, in seconds since the epoch.
    address: of the Ray cluster; cpus, gpus, memory (bytes): of each pilot there.
    node_wait: seconds in which a node that fits a pilot must start there.
    """

    id: str
    study: str
    engine: Literal["slurm", "ray", "manual"]
    profile: str
    workers: int
    sbatch: dict[str, Setting] = Field(default_factory=dict)
    closing: dict[str, Setting] = Field(default_factory=dict)
    setup: tuple[str, ...] = ()
    grace: int = 120
    idle: int = 90
    resubmissions: int = 3
    python: str = ""
    origin: str = ""
    overrides: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: str | None = None
    data_folder: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    slots: int | None = None
    processes: int | None = 1
    runs: tuple[str, ...]
    time: float
    address: str = "auto"
    cpus: int = 1
    gpus: int = 0
    memory: int | None = None
    node_wait: int = 0


class Submission(Record):
    """submission-<n>.json: pilots that were submitted together.

    ids: of the arrays, as the cluster names them, or of the driver of Ray; closing: of the closing
        job.
    work: steps made by the study's runs so far, from which progress is measured.
    """

    ids: tuple[str, ...]
    closing: str | None = None
    work: int
    time: float


class PilotReport(ProcessMark):
    """pilots/<name>.json: the last report of a pilot.

    time: of the report, in seconds since the epoch.
    slots: number of jobs at once; device: of the first.
    running: labels of the runs in its slots.
    ended: number of runs that have ended here.
    starts: how often the pilot was started: 1, and one more for each requeueing.
    reason: why it left.
    """

    name: str
    phase: PilotPhase
    time: float
    slots: int = 0
    device: str = ""
    running: tuple[str, ...] = ()
    ended: int = 0
    starts: int = 1
    reason: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the pilot still works, by its process on this host and by the age of its report
        on others.
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

    @property
    def id(self) -> str:
        """The job's id."""
        return self.path.name

    @property
    def results(self) -> Results:
        """The results root that the job belongs to, wherever this machine mounts it."""
        # results/<study>/jobs/<id>: from the path and not from job.json, because nodes may mount
        # the root elsewhere.
        return Results(self.path.absolute().parents[2])

    @property
    def job(self) -> Path:
        """The submission: a `ClusterJob`."""
        return self.path / "job.json"

    @property
    def study(self) -> Path:
        """The frozen study file."""
        return self.path / "study" / "study.yaml"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.path / "logs"

    @property
    def stop(self) -> Path:
        """Exists if the pilots are to save and leave."""
        return self.path / "stop"

    @property
    def closed(self) -> Path:
        """The end of the job and its reason: a `JobEnd`."""
        return self.path / "closed.json"

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
        found: list[Submission] = []
        while (submission := Submission.read(self.submission(len(found) + 1))) is not None:
            found.append(submission)
        return found

    def read_pilots(self) -> list[PilotReport]:
        """The last report of each pilot; unreadable ones are left out."""
        reports = []
        for path in sorted((self.path / "pilots").glob("*.json")):
            try:
                # A damaged report counts for nothing: its pilot writes the next one within seconds.
                report = PilotReport.read(path)
            except StoreError:
                continue
            reports += [report] if report is not None else []
        return reports

    @property
    def is_closed(self) -> bool:
        """Whether the job has ended: no further submission follows."""
        return self.closed.exists()

    def read_end(self) -> JobEnd | None:
        """The end of the job; None if a further submission may follow."""
        return JobEnd.read(self.closed)

    def request_stop(self, reason: str) -> None:
        """Ask all pilots to save and leave."""
        write_bytes(self.stop, f"{reason}\n".encode())

    def close(self, reason: str) -> None:
        """Record the end of the job; the first reason is kept."""
        try:
            JobEnd(reason=reason, time=time.time()).write(self.closed, once=True)
        except FileExistsError:
            return


def jobs_of(results: Results, study: str) -> list[JobFolder]:
    """The jobs of a study, oldest first."""
    folder = results.study(study) / "jobs"
    return [JobFolder(path.parent) for path in sorted(folder.glob("*/job.json"))]


def open_jobs(results: Results, study: str) -> list[JobFolder]:
    """The jobs of a study that have not ended."""
    return [job for job in jobs_of(results, study) if not job.is_closed]


def new_job(results: Results, study: str) -> JobFolder:
    """Create the folder of a job. Its id is the time, and a number if several are made in one
    second.
    """
    parent = results.study(study).absolute() / "jobs"
    parent.mkdir(parents=True, exist_ok=True)
    now = time.strftime("%Y%m%d-%H%M%S")
    for name in _names(now):
        try:
            # mkdir fails if the folder exists: of two submissions in one second, each gets a
            # folder.
            (parent / name).mkdir()
        except FileExistsError:
            continue
        (parent / name / "logs").mkdir()
        return JobFolder(parent / name)
    raise StoreError(f"{parent}: too many jobs in one second")


def _names(first: str) -> Iterable[str]:
    return (first, *(f"{first}-{number}" for number in range(2, 100)))
