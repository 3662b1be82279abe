"""Profiles: named settings of submissions to clusters, in a file outside of the study.

The file is ~/.config/ablate/clusters.yaml, or clusters.yaml in another folder by XDG_CONFIG_HOME,
or the file that ABLATE_CLUSTERS names. It maps names to profiles:

    gpu: {engine: slurm, workers: 8, sbatch: {partition: gpu, time: 4h, gpus-per-node: 4}, setup:
        ["module load cuda"]}
    lab: {engine: ray, address: auto, each: {gpus: 1, cpus: 8, memory: 32G}}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ablate.cluster.engine import Engine
from ablate.cluster.engines import ENGINES
from ablate.errors import (
    Fault,
    StoreError,
    UsageError,
    listed,
    meant_name,
    not_allowed,
    unknown_name,
    wrong_option,
)
from ablate.fields import value_text
from ablate.paths import home_path
from ablate.store.jobs import ClusterJob
from ablate.store.records import Setting
from ablate.study.error_list import ErrorList
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Node, Report, parse_yaml, read_file

FILE_VARIABLE = "ABLATE_CLUSTERS"


def profile_file() -> Path:
    """Path of the file with the profiles; it need not exist.

    Raises:
        UsageError: the home folder in the path is not known.
    """
    variable = FILE_VARIABLE if os.environ.get(FILE_VARIABLE) else "XDG_CONFIG_HOME"
    try:
        path = home_path(os.environ.get(variable) or "~/.config")
    except ValueError as error:
        raise UsageError(f"{variable}: {error}") from None
    return path if variable == FILE_VARIABLE else path / "ablate" / "clusters.yaml"


def find_profile(
    name: str, workers: int | None = None, options: Mapping[str, Setting] | None = None
) -> Engine:
    """The profile of this name (of an engine: its defaults), changed by the command line.

    Args:
        name: name of the profile.
        workers: number of pilots; None for the number in the profile.
        options: options of sbatch, which replace the options in the profile.

    Raises:
        StudyError: the file has errors, all of which are listed.
        UsageError: there is no such profile, or an option is wrong.
    """
    file = profile_file()
    profiles = read_profiles(file) if file.exists() else {}
    if name in ENGINES:
        profiles[name] = ENGINES[name](engine=name)
    if name not in profiles:
        names = (*ENGINES, *profiles)
        raise wrong_option("--on", unknown_name("profile", name, names).about(str(file)))
    profile = profiles[name].with_options(options or {})
    if workers is not None:
        profile = profile.model_copy(update={"workers": workers})
    return profile


def engine_of(job: ClusterJob) -> Engine:
    """The profile with which a job was submitted.

    Raises:
        StoreError: another version of ablate wrote the job.
    """
    try:
        return ENGINES[str(job.settings["engine"])].model_validate(job.settings)
    except (KeyError, ValidationError):
        problem = f"job {job.id}: written by another version of ablate"
        raise StoreError(Fault(problem, remedy="submit the study again")) from None


def read_profiles(path: Path) -> dict[str, Engine]:
    """Read a file of profiles.

    Raises:
        StudyError: the file has errors; each is listed with its line.
    """
    text = read_file(path)
    if not re.search(r"^\s*[^#\s]", text, re.MULTILINE):  # only comments
        return {}
    root, errors = parse_yaml(text, str(path)), ErrorList(path)
    if not isinstance(root.value, dict):
        raise root.mark.error(f"expected a mapping of names to profiles; got {root.kind}")
    profiles = {}
    for name, mark, node in root.items():
        if name in ENGINES:
            errors.report(
                mark, f'"{name}" is the name of an engine; choose another name for the profile'
            )
        profile = _read_profile(name, node, errors.report)
        if profile is not None:
            profiles[name] = profile
    if errors:
        raise errors.as_error()
    return profiles


def _read_profile(name: str, node: Node, report: Report) -> Engine | None:
    content = node.to_python()
    title = f'profile "{name}"'
    if not isinstance(content, dict):
        profile, _ = read_model(Engine, node, title, report)
        return profile
    fields = dict(node.value)
    if "engine" not in fields:
        report(node.mark, f"{title} needs engine")
        return None
    _, engine_node = fields["engine"]
    engine = engine_node.to_python()
    if str(engine) not in ENGINES:
        meant = meant_name(engine, ENGINES)
        fault = not_allowed(value_text(engine), listed(ENGINES), meant=meant)
        report(engine_node.mark, fault.about("engine"))
        return None
    for key, mark, _ in node.items():
        engines = [known for known, cls in ENGINES.items() if key in cls.model_fields]
        if engines and engine not in engines:
            report(mark, f"{key}: has no effect with the engine {engine}")
            del fields[key]
    profile, _ = read_model(ENGINES[engine], Node(fields, node.mark), title, report)
    return profile
