"""Profiles: how a study is submitted to a cluster, in a file outside of the study.

~/.config/ablate/clusters.yaml (XDG_CONFIG_HOME is respected, ABLATE_CLUSTERS overrides) maps names
to profiles:

    gpu: {engine: slurm, workers: 8, sbatch: {partition: gpu, time: 4h, gpus-per-node: 4}, setup:
        ["module load cuda"]}
    lab: {engine: ray, address: auto, each: {gpus: 1, cpus: 8, memory: 32G}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ablate.config.fields import Section, field_errors
from ablate.errors import StudyError, UsageError, did_you_mean, listed, unknown_name
from ablate.paths import home_path
from ablate.store.records import Setting
from ablate.study.yaml_nodes import Mark, Node, parse_yaml, read_file

Engine = Literal["slurm", "ray", "manual"]
ENGINES: tuple[Engine, ...] = ("slurm", "ray", "manual")
# Fields that have an effect with one engine only.
ENGINE_OF = {
    "sbatch": "slurm", "closing": "slurm", "setup": "slurm", "grace": "slurm",
    "address": "ray", "each": "ray", "node_wait": "ray",
}  # fmt: skip
FILE_VARIABLE = "ABLATE_CLUSTERS"

# Long options of sbatch that a profile may set.
SBATCH_OPTIONS = frozenset(
    (
        "account",
        "acctg-freq",
        "batch",
        "bb",
        "bbf",
        "begin",
        "comment",
        "constraint",
        "contiguous",
        "core-spec",
        "cores-per-socket",
        "cpu-freq",
        "cpus-per-gpu",
        "cpus-per-task",
        "deadline",
        "delay-boot",
        "exclude",
        "exclusive",
        "extra-node-info",
        "get-user-env",
        "gpu-bind",
        "gpu-freq",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "gres",
        "gres-flags",
        "hint",
        "hold",
        "licenses",
        "mail-type",
        "mail-user",
        "mcs-label",
        "mem",
        "mem-bind",
        "mem-per-cpu",
        "mem-per-gpu",
        "mincpus",
        "network",
        "nice",
        "no-requeue",
        "nodefile",
        "nodelist",
        "oversubscribe",
        "partition",
        "power",
        "priority",
        "profile",
        "propagate",
        "qos",
        "reboot",
        "reservation",
        "sockets-per-node",
        "spread-job",
        "switches",
        "threads-per-core",
        "time",
        "time-min",
        "tmp",
        "tres-per-task",
        "use-min-nodes",
        "wckey",
    )
)
# Options that ablate sets itself, and why.
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
_TIME_UNITS = {"d": 1440, "h": 60, "min": 1, "m": 1}
_TIME_PART = r"(\d+)\s*(d|h|min|m)"
_SLURM_TIME = re.compile(
    r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}|infinite|unlimited", re.IGNORECASE
)


class Resources(Section):
    """Resources of a pilot on Ray."""

    cpus: int = Field(1, ge=1, le=4096, description="cores")
    gpus: int = Field(0, ge=0, le=64, description="GPUs")
    memory: str | None = Field(
        None,
        pattern=r"^[1-9]\d{0,5}[MGT]$",
        description="memory such as 32G; unset: the memory of the largest run",
    )

    @property
    def memory_bytes(self) -> int | None:
        """`memory` in bytes."""
        return (
            int(self.memory[:-1]) * 1024 ** " KMGT".index(self.memory[-1]) if self.memory else None
        )


class Profile(Section):
    """Settings of a submission. With the engine `manual`, something else starts the pilots, such as
    Kubernetes.
    """

    engine: Engine = Field(description="slurm, ray or manual")
    workers: int = Field(1, ge=1, le=10_000, description="number of pilots, each on one node")
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
    idle: int = Field(
        90, ge=1, le=86_400, description="seconds that a pilot waits for runs of other pilots"
    )
    resubmissions: int = Field(
        3, ge=0, le=100, description="how often the closing job may submit again"
    )
    address: str = Field(
        "auto", min_length=1, description="of the Ray cluster: auto, local, or as ray.init takes it"
    )
    each: Resources = Field(
        default_factory=Resources, description="resources of a pilot on Ray: cpus, gpus, memory"
    )
    node_wait: int = Field(
        0,
        ge=0,
        le=86_400,
        description="seconds in which an autoscaler of Ray must start a node that fits a pilot",
    )


def profile_file() -> Path:
    """Path of the file with the profiles; it need not exist.

    Raises:
        UsageError: the home folder in it is not known.
    """
    name = FILE_VARIABLE if os.environ.get(FILE_VARIABLE) else "XDG_CONFIG_HOME"
    value = os.environ.get(name) or "~/.config"
    try:
        path = home_path(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return path if name == FILE_VARIABLE else path / "ablate" / "clusters.yaml"


def find_profile(
    name: str, workers: int | None = None, options: Mapping[str, Setting] | None = None
) -> Profile:
    """The profile of this name, with options of the command line over it; `slurm` and `ray` are
    ones without options.

    Args:
        name: of a profile, or of an engine.
        workers: number of pilots; None for the profile's.
        options: of sbatch.

    Raises:
        StudyError: the file has errors; it holds all of them.
        UsageError: there is no such profile, or an option is wrong.
    """
    file = profile_file()
    profiles = read_profiles(file) if file.exists() else {}
    if name not in ENGINES and name not in profiles:
        names = [*profiles, *ENGINES]
        known = did_you_mean(name, names) or f"; profiles: {listed(names)}"
        raise UsageError(f'--on: no profile "{name}" in {file}{known}')
    engine = next((one for one in ENGINES if one == name), None)
    profile = Profile(engine=engine) if engine else profiles[name]
    faults = [
        f"--sbatch {key}: {text}"
        for key, value in (options or {}).items()
        if (text := _option_fault(key, value))
    ]
    if options and profile.engine != "slurm":
        faults = [f"--{next(iter(options))}: the pilots of {name} are not started by Slurm"]
    if faults:
        raise UsageError(*faults)
    update: dict[str, object] = {"sbatch": {**profile.sbatch, **(options or {})}}
    if workers is not None:
        update["workers"] = workers
    return profile.model_copy(update=update)


def read_profiles(path: Path) -> dict[str, Profile]:
    """Read all profiles of a file.

    Raises:
        StudyError: all errors of the file, each with its line.
    """
    root = parse_yaml(read_file(path), str(path))
    if not isinstance(root.value, dict):
        raise StudyError(
            root.mark.error_line(f"expected a mapping of names to profiles; got {root.kind}")
        )
    faults: dict[str, Mark] = {}
    profiles = {}
    for name, mark, node in root.items():
        if name in ENGINES:
            faults[
                mark.error_line(
                    f'"{name}" is the name of an engine; choose another name for the profile'
                )
            ] = mark
        profile = _read_profile(name, mark, node, faults)
        if profile is not None:
            profiles[name] = profile
    if faults:
        raise StudyError(*sorted(faults, key=lambda line: (faults[line].line, faults[line].column)))
    return profiles


def _read_profile(name: str, mark: Mark, node: Node, faults: dict[str, Mark]) -> Profile | None:
    """Read one profile, and collect its faults."""
    before = len(faults)

    def report(mark: Mark, message: str) -> None:
        faults.setdefault(mark.error_line(message), mark)

    if not isinstance(node.value, dict):
        report(node.mark, f'profile "{name}" must be a mapping; got {node.kind}')
        return None
    fields = Profile.model_fields
    for key, position, _ in node.items():
        if key not in fields:
            report(position, unknown_name("field", key, fields))
    known = {key: value for key, (_, value) in node.value.items() if key in fields}
    if "each" in known and isinstance(known["each"].value, dict):
        for key, position, _ in known["each"].items():
            if key not in Resources.model_fields:
                report(position, unknown_name("field", key, Resources.model_fields))
    for section in ("sbatch", "closing"):
        if section in known and not isinstance(known[section].value, dict):
            report(
                known[section].mark,
                f"{section}: must be a mapping of options; got {known[section].kind}",
            )
            del known[section]
        elif section in known:
            for key, position, value in known[section].items():
                text = _option_fault(key, value.to_python())
                if text:
                    report(position if key not in SBATCH_OPTIONS else value.mark, f"{key}: {text}")
    engine = known["engine"].value if "engine" in known else None
    for field, only in ENGINE_OF.items() if engine in ENGINES else ():
        if field in known and engine != only:
            report(known[field].mark, f"{field}: has no effect with the engine {engine}")
    try:
        profile = Profile(**{key: value.to_python() for key, value in known.items()})
    except ValidationError as error:
        for field, message in field_errors(error, Profile):
            report(known[field].mark if field in known else mark, f"{field}: {message}")
        return None
    return profile if len(faults) == before else None


def _option_fault(name: str, value: object) -> str:
    """The fault of an option of sbatch; empty if there is none."""
    if name in RESERVED:
        return f"is set by ablate: {RESERVED[name]}"
    if name not in SBATCH_OPTIONS:
        return f"not an option of sbatch{did_you_mean(name, SBATCH_OPTIONS)}"
    if isinstance(value, (dict, list)):
        return "must be a single value"
    if name in ("time", "time-min"):
        try:
            slurm_time(value)
        except ValueError as error:
            return str(error)
    return ""


def slurm_time(value: object) -> str:
    """A time limit as sbatch reads it: `4h`, `90min` and `1d 12h` in minutes; Slurm's own forms
    unchanged.

    Raises:
        ValueError: another text.
    """
    text = str(value).strip().lower()
    if re.fullmatch(rf"({_TIME_PART}\s*)+", text):
        return str(
            sum(int(count) * _TIME_UNITS[unit] for count, unit in re.findall(_TIME_PART, text))
        )
    if _SLURM_TIME.fullmatch(text):
        return str(value).strip()
    raise ValueError(f'"{value}" is not a time such as 4h, 90min, 1d 12h or 1-12:00:00')


def sbatch_arguments(options: Mapping[str, Setting]) -> list[str]:
    """Options as arguments of sbatch: `true` is an option without a value, `false` and nothing
    leave it out.
    """
    arguments = []
    for name, value in options.items():
        if value is True:
            arguments.append(f"--{name}")
        elif (
            value is not False and value is not None
        ):  # 0 == False, but `mem: 0` is all memory of a node
            arguments.append(
                f"--{name}={slurm_time(value) if name in ('time', 'time-min') else value}"
            )
    return arguments
