"""Profiles: how a study is submitted to a cluster, in a file outside of the study.

~/.config/ablate/clusters.yaml (XDG_CONFIG_HOME is respected, ABLATE_CLUSTERS overrides) maps names
to profiles:

    gpu: {engine: slurm, workers: 8, sbatch: {partition: gpu, time: 4h, gpus-per-node: 4}, setup:
        ["module load cuda"]}
    lab: {engine: ray, address: auto, each: {gpus: 1, cpus: 8, memory: 32G}}
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, ValidationError

from ablate.cluster.engine import Engine
from ablate.cluster.manual import Manual
from ablate.cluster.ray_cluster import Ray, Resources
from ablate.cluster.slurm import Slurm
from ablate.config.fields import field_errors
from ablate.errors import StoreError, StudyError, UsageError, did_you_mean, listed, unknown_name
from ablate.paths import home_path
from ablate.store.jobs import ClusterJob
from ablate.store.records import Setting
from ablate.study.yaml_nodes import Mark, Node, parse_yaml, read_file

ENGINES: dict[str, type[Engine]] = {"slurm": Slurm, "ray": Ray, "manual": Manual}
FILE_VARIABLE = "ABLATE_CLUSTERS"


def profile_file() -> Path:
    """Path of the file with the profiles; it need not exist.

    Raises:
        UsageError: the home folder in it is not known.
    """
    name = FILE_VARIABLE if os.environ.get(FILE_VARIABLE) else "XDG_CONFIG_HOME"
    try:
        path = home_path(os.environ.get(name) or "~/.config")
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return path if name == FILE_VARIABLE else path / "ablate" / "clusters.yaml"


def find_profile(
    name: str, workers: int | None = None, options: Mapping[str, Setting] | None = None
) -> Engine:
    """The profile of this name, with options of the command line over it. The name of an engine is
    a profile without settings.

    Args:
        name: of a profile, or of an engine.
        workers: number of pilots; None for the profile's.
        options: of sbatch.

    Raises:
        StudyError: the file has errors; it holds all of them.
        UsageError: there is no such profile, or an option is wrong.
    """
    file = profile_file()
    profiles = {name: engine(engine=name) for name, engine in ENGINES.items()}
    if file.exists():
        profiles |= read_profiles(file)
    if name not in profiles:
        known = did_you_mean(name, profiles) or f"; profiles: {listed(profiles)}"
        raise UsageError(f'--on: no profile "{name}" in {file}{known}')
    profile = profiles[name].with_options(options or {})
    return profile if workers is None else profile.model_copy(update={"workers": workers})


def engine_of(job: ClusterJob) -> Engine:
    """The profile that a job was submitted with.

    Raises:
        StoreError: another version of ablate wrote it.
    """
    try:
        return ENGINES[str(job.settings["engine"])].model_validate(job.settings)
    except (KeyError, ValidationError):
        raise StoreError(
            f"job {job.id}: written by another version of ablate; submit the study again"
        ) from None


def read_profiles(path: Path) -> dict[str, Engine]:
    """Read all profiles of a file.

    Raises:
        StudyError: all errors of the file, each with its line.
    """
    root = parse_yaml(read_file(path), str(path))
    if not isinstance(root.value, dict):
        raise StudyError(
            root.mark.error_line(f"expected a mapping of names to profiles; got {root.kind}")
        )
    faults: list[tuple[Mark, str]] = []
    profiles = {}
    for name, mark, node in root.items():
        if name in ENGINES:
            taken = f'"{name}" is the name of an engine; choose another name for the profile'
            faults.append((mark, taken))
        if not isinstance(node.value, dict):
            faults.append((node.mark, f'profile "{name}" must be a mapping; got {node.kind}'))
            continue
        engine = _engine_named(node)
        try:
            profiles[name] = engine.model_validate(node.to_python())
        except ValidationError as error:
            faults += _located(error, engine, node, mark)
    if faults:
        faults.sort(key=lambda fault: (fault[0].line, fault[0].column))
        raise StudyError(*(mark.error_line(message) for mark, message in faults))
    return profiles


class Unknown(Engine):
    """A profile whose engine is missing or wrong: only that is reported."""

    model_config = ConfigDict(extra="ignore")

    engine: Literal["slurm", "ray", "manual"] = Field(description=listed(ENGINES))


def _engine_named(node: Node) -> type[Engine]:
    _, name = node.value.get("engine", (None, node))
    return ENGINES.get(name.value, Unknown) if isinstance(name.value, str) else Unknown


def _located(
    error: ValidationError, engine: type[Engine], node: Node, mark: Mark
) -> Iterator[tuple[Mark, str]]:
    """The position and the message of each error of a profile: at a key that is wrong itself, or
    that is in a mapping of options, else at its value.
    """
    for details, (_, message) in zip(error.errors(), field_errors(error, engine), strict=True):
        field, *inside = (str(part) for part in details["loc"])
        if details["type"] == "extra_forbidden":
            if inside:
                message = unknown_name("field", inside[0], Resources.model_fields)
            elif any(field in known.model_fields for known in ENGINES.values()):
                message = f"{field}: has no effect with this engine"
            else:
                message = unknown_name("field", field, engine.model_fields)
        elif details["type"] == "option":
            message = details["msg"]
        else:
            message = f"{': '.join((field, *inside))}: {message}"
        key, value = node.value.get(field, (mark, None))
        if inside and inside[0] in value.value:
            key, value = value.value[inside[0]]
        at_key = value is None or details["type"] in ("extra_forbidden", "option")
        yield key if at_key else value.mark, message
