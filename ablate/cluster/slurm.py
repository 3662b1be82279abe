"""Slurm: submit arrays of pilots, ask for the state of this allocation, requeue and cancel.

Everything is done by Slurm's commands. Slurm is never asked whether a run is at work: after a
restart of its controller it may report that jobs are running which have ended.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator
from pydantic_core import InitErrorDetails
from typing_extensions import override

from ablate.cluster.engine import START_SECONDS, Allocation, Engine, refuse_too_little_memory
from ablate.errors import Fault, Invalid, MachineError, Mark, UsageError, meant_name
from ablate.formatting import duration, seconds_of
from ablate.store.files import write_bytes
from ablate.store.jobs import ClusterJob, JobFolder, Submission
from ablate.store.machine import DEFAULT_RESOURCES, Resources
from ablate.store.records import Setting
from ablate.study import Run

COMMAND_SECONDS = 60.0  # longest time for a command: a controller under load answers slowly
REQUEUE_ATTEMPTS = 4
REQUEUE_PAUSE = 3.0  # seconds between two attempts
ELSEWHERE = "submit from a login node of the cluster, or leave out --on to train here"
# The closing job runs for seconds. It needs no GPU, but the same accounting as the pilots.
CLOSING_TIME = "30min"
CLOSING_INHERITS = ("account", "partition", "qos", "reservation", "constraint")
# By one of these options, the user chooses the cores of a pilot. Otherwise it gets a whole node.
_CHOOSES_CORES = frozenset(
    ("cpus-per-task", "mincpus", "exclusive", "gpus", "gpus-per-node", "gpus-per-task", "gres")
)
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# Messages of scancel about jobs that have ended.
_HAS_ENDED = re.compile("Invalid job id|already completing or completed")
_TIMES = ("time", "time-min")
_SLURM_TIME = re.compile(
    r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}|infinite|unlimited", re.IGNORECASE
)

# Names of the options of sbatch that a profile may set.
_OPTIONS = """
    account acctg-freq batch bb bbf begin comment constraint contiguous core-spec cores-per-socket
    cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot exclude exclusive extra-node-info
    get-user-env gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags
    hint hold licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus
    network nice no-requeue nodefile nodelist oversubscribe partition power priority profile
    propagate qos reboot reservation sockets-per-node spread-job switches threads-per-core time
    time-min tmp tres-per-task use-min-nodes wckey
"""
SBATCH_OPTIONS = frozenset(_OPTIONS.split())
# Options of sbatch that only ablate sets, each with a reason for the message.
RESERVED = {
    "array": "`workers` is the number of pilots",
    "chdir": "pilots work in the folder of their job",
    "dependency": "the closing job depends on the pilots",
    "error": "logs are in the folder of the job",
    "export": "pilots get the environment of the submission; use `setup` for more",
    "input": "pilots read nothing",
    "job-name": "the name of the study is used",
    "nodes": "each pilot has one node; `workers` is their number",
    "ntasks": "each pilot is one task",
    "ntasks-per-node": "each pilot is one task",
    "open-mode": "logs are appended to",
    "output": "logs are in the folder of the job",
    "parsable": "it is always set",
    "requeue": "pilots are requeued unless no-requeue is set",
    "signal": "`grace` sets the time of the warning",
    "wrap": "pilots have a script",
}
# Environment variables of sbatch whose names differ from the names of their options.
_OPTION_OF_VARIABLE = {"SBATCH_TIMELIMIT": "time", "SBATCH_MEM_PER_NODE": "mem"}


def option_fault(name: str, value: object) -> Fault | None:
    """The fault of an option of sbatch; None if it has none."""
    if name in RESERVED:
        return Fault(f"is set by ablate: {RESERVED[name]}")
    if name not in SBATCH_OPTIONS:
        return Fault("not an option of sbatch", meant=meant_name(name, SBATCH_OPTIONS))
    if isinstance(value, (dict, list)):
        return Fault("must be a single value")
    if name in _TIMES:
        try:
            to_slurm_time(value)
        except ValueError as error:
            return Fault(str(error))
    return None


def option_faults(options: Mapping[str, object]) -> dict[str, Fault]:
    """The fault of each option of sbatch that has one."""
    faults = {name: option_fault(name, value) for name, value in options.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def to_slurm_time(value: object) -> str:
    """A time limit in a form that sbatch reads: `4h`, `90min` and `1d 12h` become minutes, and
    forms of Slurm stay as they are.

    Raises:
        ValueError: the text is no time.
    """
    text = str(value).strip()
    seconds = seconds_of(text)
    if seconds is not None and seconds % 60 == 0:  # sbatch takes whole minutes
        return str(int(seconds // 60))
    if _SLURM_TIME.fullmatch(text):
        return text
    raise ValueError(f'"{value}" is not a time such as 4h, 90min, 1d 12h or 1-12:00:00')


def sbatch_arguments(options: Mapping[str, Setting]) -> list[str]:
    """Options as arguments of sbatch: `true` gives an argument without a value, `false` none."""
    arguments = []
    for name, value in options.items():
        if value is True:
            arguments.append(f"--{name}")
        elif name in _TIMES and value:
            arguments.append(f"--{name}={to_slurm_time(value)}")
        elif value is not False and value is not None:  # 0 has a meaning: `mem: 0` is a whole node
            arguments.append(f"--{name}={value}")
    return arguments


def site_options() -> tuple[dict[str, Setting], list[str]]:
    """The options of sbatch that a site sets by environment variables SBATCH_.

    Returns:
        The options, and the names of the variables that ablate does not use.
    """
    options: dict[str, Setting] = {}
    unused = []
    for variable, value in sorted(os.environ.items()):
        if variable.startswith("SBATCH_"):
            name = variable.removeprefix("SBATCH_").lower().replace("_", "-")
            name = _OPTION_OF_VARIABLE.get(variable, name)
            if option_fault(name, value):
                unused.append(variable)
            else:
                options[name] = value or True
    return options, unused


class Slurm(Engine):
    """Submits pilots as arrays of Slurm, and a closing job after them, which prints the table."""

    engine: Literal["slurm"] = "slurm"
    sbatch: dict[str, Setting] = Field(
        default_factory=dict, description="options of sbatch for the pilots"
    )
    closing: dict[str, Setting] = Field(
        default_factory=dict, description="options of sbatch for the closing job"
    )
    setup: list[str] = Field(default_factory=list, description="lines of shell before the program")
    grace: int = Field(
        120, ge=10, le=3600, description="seconds before the end at which pilots save"
    )

    gpus_setting: ClassVar[str] = "gpus-per-node"
    queues: ClassVar[bool] = True

    @field_validator("sbatch", "closing", mode="before")
    @classmethod
    def _known_options(cls, options: object) -> object:
        """Check each option separately, so that each fault has the line of its option. The fault
        depends on the name as well, which a validator of the values would not get.
        """
        if not isinstance(options, dict):
            return options
        errors: list[InitErrorDetails] = []
        for name, fault in option_faults(options).items():
            ctx = {"error": Invalid(fault)}
            errors.append(
                {"type": "value_error", "loc": (name,), "input": options[name], "ctx": ctx}
            )
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return options

    @property
    @override
    def gpus(self) -> int:
        for option in ("gpus-per-node", "gpus-per-task", "gpus"):
            value = self.sbatch.get(option)
            if value is not None and value is not False:
                return sum(_count(part) for part in str(value).split(",") if part)
        kinds = str(self.sbatch.get("gres") or "").split(",")
        return sum(_count(kind) for kind in kinds if re.match(r"gpu\b", kind))

    @override
    def with_options(self, options: Mapping[str, Setting]) -> Self:
        faults = option_faults(options)
        if faults:
            places = {name: Mark(f"--{name}") for name in ("partition", "time", "gpus-per-node")}
            places |= {name: Mark(f"--sbatch {name}") for name in faults.keys() - places.keys()}
            raise UsageError(*(fault.located(places[name]) for name, fault in faults.items()))
        # In sbatch's order of precedence, lowest first: environment, script (here the profile),
        # command line.
        from_site, _ = site_options()
        return self.model_copy(update={"sbatch": {**from_site, **self.sbatch, **options}})

    @override
    def options_text(self) -> str:
        return " ".join(sbatch_arguments(self.sbatch)) or super().options_text()

    @override
    def notes(self) -> list[str]:
        _, unused = site_options()
        remedy = "see `ablate run --help` for the options of pilots"
        return [f"note: {variable} is not used; {remedy}" for variable in unused]

    @override
    def check(self, runs: Iterable[Run], resources: Resources = DEFAULT_RESOURCES) -> None:
        super().check(runs, resources)
        if shutil.which("sbatch") is None:
            problem = "Slurm is not installed on this machine: there is no command sbatch"
            raise MachineError(Fault(problem, remedy=ELSEWHERE))
        self._check_time()
        if not self.gpus:
            self._check_memory(runs)
        for options in (self._pilot_options(1), self._closing_options()):
            # The script is the command `true`.
            done = slurm("sbatch", "--test-only", *options, "--output=/dev/null", "--wrap=true")
            if done.returncode:
                reason = f"sbatch: {_reason(done)}"
                if slurm("scontrol", "ping").returncode:  # the options are not the cause
                    problem = f"Slurm does not answer on this machine ({reason})"
                    raise MachineError(Fault(problem, remedy=ELSEWHERE))
                raise UsageError(reason)

    def _check_time(self) -> None:
        """Refuse a time limit that is too short to start a run, or above the partition's limit."""
        given = self.sbatch.get("time")
        if given is None:
            return
        seconds = seconds_of_slurm_time(to_slurm_time(given))
        if seconds <= self.grace + START_SECONDS:
            need = f"{START_SECONDS:.0f} s to start and {self.grace} s (grace) to save"
            raise UsageError(f"time: {given} is too short: {need}")
        # By default, Slurm accepts a time above the partition's limit, and never starts the job.
        name = self.sbatch.get("partition")
        command = ["sinfo", "-h", "-o", "%P|%l"]
        if name:
            command.append(f"--partition={name}")
        longest = 0.0
        for line in slurm(*command).stdout.splitlines():
            title, limit = line.split("|")
            if name or title.endswith("*"):
                longest = max(longest, seconds_of_slurm_time(limit))
        if longest and seconds > longest:
            raise UsageError(
                f"time: {given} is longer than the limit of partition {name or 'default'}, "
                f"{duration(longest)}"
            )

    def _check_memory(self, runs: Iterable[Run]) -> None:
        """Refuse a memory limit that is too small to train one of these runs on a CPU."""
        cores = str(self.sbatch.get("cpus-per-task") or 1)
        for option, factor in (("mem", "1"), ("mem-per-cpu", cores)):
            limit = _bytes(self.sbatch.get(option))
            if limit is not None and factor.isdecimal():
                bytes = limit * int(factor)
                refuse_too_little_memory(option, self.sbatch[option], bytes, runs)

    @override
    def submit(
        self, folder: JobFolder, job: ClusterJob, pilots: int
    ) -> tuple[tuple[str, ...], str | None]:
        """Submit pilots in as few arrays as Slurm allows, and the closing job after them."""
        write_scripts(folder, self.setup, job.python)
        logs = str(folder.logs).replace("%", "%%")  # sbatch replaces %j and the like in a path
        chdir = f"--chdir={folder.path}"
        largest = max_array_size()
        ids: list[str] = []
        try:
            for first in range(0, pilots, largest):
                options = self._pilot_options(min(largest, pilots - first), job.study)
                output = f"--output={logs}/pilot-%A_%a.log"
                ids.append(_sbatch(*options, output, chdir, f"{folder.path}/pilot.sh", f"{first}"))
            # afterany: the closing job also starts if pilots have failed or were cancelled.
            after = f"--dependency=afterany:{':'.join(ids)}"
            output = f"--output={logs}/closing-%j.log"
            options = self._closing_options(job.study)
            return tuple(ids), _sbatch(*options, after, output, chdir, f"{folder.path}/closing.sh")
        except BaseException:  # also an interruption: without ids, nobody could cancel the pilots
            cancel(ids)
            raise

    def _pilot_options(self, count: int, study: str = "study") -> list[str]:
        """The options of sbatch for an array of pilots."""
        options = [
            f"--job-name=ablate-{study}",
            f"--array=0-{count - 1}",
            # B: send the signal to the process of the script, which is the pilot after `exec`.
            f"--signal=B:USR1@{self.grace}",
            # A requeued pilot appends to its log file instead of replacing it.
            "--open-mode=append",
            "--nodes=1",
            "--ntasks=1",
        ]
        if not self.sbatch.get("no-requeue"):
            options.append("--requeue")
        if not _CHOOSES_CORES & self.sbatch.keys():
            options.append("--exclusive")
        return [*options, *sbatch_arguments(self.sbatch)]

    def _closing_options(self, study: str = "study") -> list[str]:
        """The options of sbatch for the closing job."""
        inherited = {name: self.sbatch[name] for name in CLOSING_INHERITS if name in self.sbatch}
        return [
            f"--job-name=ablate-{study}-close",
            "--nodes=1",
            "--ntasks=1",
            "--requeue",
            *sbatch_arguments({"time": CLOSING_TIME, **inherited, **self.closing}),
        ]

    @override
    def submitted_text(self, folder: JobFolder, submission: Submission) -> str:
        arrays = "array" if len(submission.ids) == 1 else "arrays"
        return (
            f"{arrays} {', '.join(submission.ids)} of Slurm; job {submission.closing} prints the "
            f"table at the end"
        )

    @override
    def cancel(self, submission: Submission, waiting_only: bool = False) -> str:
        if waiting_only:  # without the closing job, which waits for the pilots
            return cancel(submission.ids, "--state=PENDING")
        return cancel(submission.all_ids)

    @override
    def allocation(self) -> Allocation:
        return SlurmTask.current(self.grace) or super().allocation()


# Commands


def write_scripts(folder: JobFolder, setup: Sequence[str], python: str) -> None:
    """Write the batch scripts of the pilots and of the closing job."""
    program = shlex.join(folder.pilot_command(python))
    pilot = [
        "#!/bin/bash",
        # Stop if `setup` fails: without its modules, a pilot would fail every run or use the CPU.
        """trap 'echo "setup failed: $BASH_COMMAND" >&2' ERR""",
        "set -eE",
        *setup,
        "set +eE",
        "trap - ERR",
        # Slurm signals the process of the script, which becomes the pilot by `exec`. Until then,
        # USR1 must not end it.
        "trap '' USR1",
        f"exec {program} --index $((${{1:-0}} + ${{SLURM_ARRAY_TASK_ID:-0}}))",
    ]
    # Without the check of `setup`: the job must also be closed if the pilots could not be set up.
    closing = ["#!/bin/bash", *setup, f"exec {program} --close"]
    for name, lines in (("pilot.sh", pilot), ("closing.sh", closing)):
        write_bytes(folder.path / name, "".join(f"{line}\n" for line in lines).encode())


def slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm, without the variables that Slurm has set for this allocation."""
    environment = {}
    for name, value in os.environ.items():
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SBATCH_")):
            environment[name] = value
    try:
        return subprocess.run(
            command,
            timeout=COMMAND_SECONDS,
            check=False,
            env=environment,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        silent = f"{command[0]}: no answer in {COMMAND_SECONDS:.0f} s"
        return subprocess.CompletedProcess(command, 124, "", silent)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: not found")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command has failed, in one line: its fatal errors, or else all of its messages, such as
    `sbatch: error: invalid partition specified: gpu`, without the command and the word `error`.
    """
    texts = []
    for line in done.stderr.splitlines():
        if text := line.strip().removeprefix(f"{done.args[0]}: "):
            texts.append(text)
    fatal = [text.removeprefix("fatal: ") for text in texts if text.startswith("fatal: ")]
    reasons = [text.removeprefix("error: ") for text in fatal or texts]
    return "; ".join(reasons) or f"exit code {done.returncode}"


def _sbatch(*arguments: str) -> str:
    """Submit a script, and return the id of the job.

    Raises:
        UsageError: sbatch refuses.
    """
    done = slurm("sbatch", "--parsable", *arguments)
    if done.returncode:
        raise UsageError(f"sbatch: {_reason(done)}")
    # With several clusters, --parsable prints `id;cluster`.
    return done.stdout.strip().partition(";")[0]


def max_array_size() -> int:
    """The largest number of tasks that Slurm allows in one array."""
    settings = slurm("scontrol", "show", "config").stdout
    limit = re.search(r"^MaxArraySize\s*=\s*(\d+)", settings, re.MULTILINE)
    if limit is None:
        return 1000
    return max(1, int(limit[1]))


def cancel(ids: Sequence[str], *options: str) -> str:
    """Cancel jobs. Jobs that have ended are no error.

    Returns:
        Why Slurm refuses; empty if it does not.
    """
    if not ids:
        return ""
    done = slurm("scancel", *options, "--", *ids)
    lines = [line for line in done.stderr.splitlines() if not _HAS_ENDED.search(line)]
    if not any(map(str.strip, lines)):
        return ""
    refused = subprocess.CompletedProcess(done.args, done.returncode, stderr="\n".join(lines))
    return f"scancel: {_reason(refused)}"


# The allocation of this process


class SlurmTask(Allocation):
    """The allocation of this process by Slurm. The name of a task of an array is such as `12_3`."""

    has_queue: ClassVar[bool] = True

    @classmethod
    def current(cls, grace: int) -> Self | None:
        """The allocation of this process; None if Slurm has not started it."""
        id = os.environ.get("SLURM_JOB_ID")
        if id is None:
            return None
        array = os.environ.get("SLURM_ARRAY_JOB_ID")
        index = os.environ.get("SLURM_ARRAY_TASK_ID")
        if array and index:
            id = f"{array}_{index}"
        return cls(id, int(os.environ.get("SLURM_RESTART_COUNT") or 0), grace)

    @override
    def seconds_left(self) -> float | None:
        done = slurm("squeue", "-h", "-j", self.name, "-o", "%L")
        return None if done.returncode else seconds_of_slurm_time(done.stdout.strip())

    @override
    def state(self) -> tuple[str, int]:
        text = slurm("scontrol", "show", "job", self.name, "--oneliner").stdout
        facts = dict(re.findall(r"\b(JobState|Restarts)=(\w+)", text))
        return facts.get("JobState", ""), int(facts.get("Restarts", self.restarts))

    @override
    def requeue(self) -> str:
        for attempt in range(REQUEUE_ATTEMPTS):
            if attempt > 0:
                time.sleep(REQUEUE_PAUSE)
            done = slurm("scontrol", "requeue", self.name)
            if done.returncode == 0:
                return ""
            # "Unable to contact" while the controller restarts; any other refusal is final.
            if "unable to contact" not in done.stderr.lower():
                break
        return _reason(done)


def seconds_of_slurm_time(text: str) -> float:
    """Seconds in a duration of Slurm: `1-02:03:04`, `1-02` (days-hours), `02:03:04`, `03:04`
    (minutes:seconds) or `3` (minutes). Infinite for any other text, such as UNLIMITED.
    """
    parts = re.fullmatch(r"(?:(\d+)-)?(\d+(?::\d+){0,2})", text)
    if parts is None:
        return math.inf
    days = parts[1]
    numbers = parts[2].split(":")
    # The first number is hours after a number of days, or if there are three; otherwise minutes.
    units = (3600, 60, 1) if days or len(numbers) == 3 else (60, 1)
    seconds = 86_400.0 * int(days or 0)
    return seconds + sum(int(n) * unit for n, unit in zip(numbers, units, strict=False))


def _count(part: str) -> int:
    """The number at the end of `4`, `a100:4` or `gpu:a100:4(S:0)`; 1 without a number."""
    number = part.partition("(")[0].rpartition(":")[2]
    return int(number) if number.isdecimal() else 1


def _bytes(value: Setting) -> float | None:
    """Bytes in an amount of memory of sbatch, such as `8G` or `8000` (MiB); None for 0, which means
    the whole node, and for other texts.
    """
    amount = re.fullmatch(r"(\d+)([KMGT]?)", str(value).upper().removesuffix("B"))
    if amount is None or not int(amount[1]):
        return None
    return int(amount[1]) * _SIZES[amount[2] or "M"]
