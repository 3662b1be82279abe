"""Arguments and options that several commands share, and how they read a study."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ablate.analysis.choices import runs_with_choices
from ablate.cli.arguments import argument, flag, option
from ablate.errors import (
    NO_SUCH_FILE,
    Fault,
    MachineError,
    Mark,
    nearest_path,
    wrong_option,
)
from ablate.stdio import echo
from ablate.store import Results
from ablate.store.layout import ARCHIVE
from ablate.study import Runs, Selection, Study, read_study

if TYPE_CHECKING:
    import torch


DEFAULT_STUDY = Path("study.yaml")
DEFAULT_RESULTS = Results().root


def present_study(param: typer.CallbackParam, study: Path, context: typer.Context) -> Path:
    """Refuse a command line without STUDY if there is no study.yaml in this folder."""
    source = context.get_parameter_source(param.name or "")
    is_default = source is not None and source.name == "DEFAULT"
    if is_default and not study.exists():
        problem = f"is missing: this folder has no {study}"
        remedy = "give a study's file, or write one by `ablate init`"
        raise wrong_option("STUDY", Fault(problem, remedy=remedy))
    return study


StudyFile = Annotated[
    Path, argument("STUDY", "The study's YAML file.", show_default=True, callback=present_study)
]


def local_folder(param: typer.CallbackParam, folder: Path) -> Path:
    """Refuse a file, the address of a server, for which a folder such as `s3:` would be created,
    and a path that is not valid text, which records and jobs could not contain.
    """
    problem, remedy = "", "give a folder"
    if folder.is_file():
        problem = "is a file"
    elif folder.is_symlink() and not folder.exists():
        problem = "is a link to a folder that does not exist"
    elif any(map(Path.is_file, folder.parents)):
        problem = "is a path in a file"
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(folder)):
        problem, remedy = "is an address", "give a folder of this machine"
    elif re.search("[\ud800-\udfff]", str(folder.absolute())):
        problem, remedy = "has a path that is not text in UTF-8", "choose another folder"
    if problem:
        fault = Fault(problem, given=f'"{folder}"', remedy=remedy)
        raise wrong_option(param.opts[0], fault)
    return folder


def _is_results_root(folder: Path) -> bool:
    return (folder / "runs").is_dir()


ResultsRoot = Annotated[
    Path,
    option(
        "Folder with the results of all studies.",
        "DIR",
        callback=local_folder,
        envvar="ABLATE_RESULTS",
    ),
]
Overrides = Annotated[
    list[str] | None,
    option("Set a field of base or data (data.FIELD) for this command. Repeatable.", "FIELD=VALUE"),
]
Rows = Annotated[
    list[str] | None,
    option("Only base and these rows: groups, labels or patterns, separated by commas.", "ROWS"),
]
Seeds = Annotated[
    str | None, option("Seeds such as 1,2,3 or 1-3, instead of the seeds in the study.", "SEEDS")
]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], option("Device; auto uses a GPU if there is one.")
]
Offline = Annotated[bool, flag("--offline", "Download nothing; use files that are already here.")]
BudgetText = Annotated[
    str | None,
    option(
        "Leave out seeds, then rows, that do not fit into this time: 2h, 90min, 8gpu-hours.", "TIME"
    ),
]


@dataclass(frozen=True)
class StudyOptions:
    """The options of a command that reads a study."""

    results: ResultsRoot = DEFAULT_RESULTS
    set: Overrides = None
    rows: Rows = None
    seeds: Seeds = None

    @property
    def selection(self) -> Selection:
        """The values of the options that change the study or select a part of it."""
        return Selection(self.set or (), self.rows or (), self.seeds)

    def given(self) -> list[str]:
        """The names of the given options that change the study or select a part of it."""
        return [f"--{name}" for name in ("set", "rows", "seeds") if getattr(self, name)]

    def open(self, study: Path) -> tuple[Runs, Results]:
        """Read a study, with the choices of its tuning runs so far; see `read`.

        Returns:
            The runs of the study, and the results root.

        Raises:
            StoreError: the result of a tuning run cannot be read.
        """
        content, root = self.read(study)
        return runs_with_choices(content, root), root

    def read(self, study: Path, *, may_be_new: bool = False) -> tuple[Study, Results]:
        """Read a study with its selection, open the results root, and print notes on it. A results
        root that may be new need not exist.

        Raises:
            StudyError: a fault in the study or in --set.
            UsageError: a fault in --rows or --seeds.
        """
        content = read_study(study, self.selection)
        for line in self._notes(study, content.name, may_be_new):
            echo(f"note: {line}", err=True)
        return content, Results(self.results)

    def refuse_missing_results(self) -> None:
        """Refuse a results root that is given and does not exist.

        Raises:
            UsageError: there is no such folder. The message has the nearest name.
        """
        if self.results != DEFAULT_RESULTS and not self.results.exists():
            meant = nearest_path(self.results, _is_results_root)
            given = f'"{self.results}"'
            fault = Fault("does not exist", given=given, code=NO_SUCH_FILE, meant=meant)
            raise wrong_option("--results", fault)

    def _notes(self, study: Path, name: str, may_be_new: bool) -> Iterator[str]:
        """Yield notes on a results root that is probably not the one that is meant."""
        is_given = self.results != DEFAULT_RESULTS
        here = Results(self.results).study(name)
        archives = [path / ARCHIVE for path in (here, self.results) if (path / ARCHIVE).is_file()]
        if is_given and not self.results.exists():
            meant = nearest_path(self.results, _is_results_root)
            if meant or not may_be_new or not self.results.absolute().parent.exists():
                question = f'; did you mean "{meant}"?' if meant else " yet"
                yield f"--results {self.results} does not exist{question}"
        elif archives and not _is_results_root(self.results):
            command = f"`python3 -m zipfile -e {archives[0]} unpacked`"
            yield f"{archives[0]} has records of runs; {command}, then --results unpacked"
        elif is_given and self.results.is_dir():
            names = {entry.name for entry in self.results.iterdir()}
            if names and names.isdisjoint(("runs", "corpora", name)):
                yield f"--results {self.results} has files, but no runs"
        beside = Results(study.parent / DEFAULT_RESULTS)
        if not is_given and not here.is_dir() and beside.study(name).is_dir():
            there = beside.study(name)
            yield f"{here} does not exist, and {there} does; --results {beside.root} selects it"


def print_notes(study: Study) -> None:
    """Print notes on settings that are probably mistakes, on standard error."""
    for line in study.source.notes:
        echo(f"note: {line}", err=True)


def print_changes(planned: Runs, results: Results) -> None:
    """Print what has changed since the study was judged, on standard error."""
    from ablate.analysis.judgments import error_bound

    bound = error_bound(planned, results)
    for line in filter(None, (bound.remark, bound.fault)):
        echo(f"note: {line}", err=True)


def torch_device(choice: Device) -> torch.device:
    """The device of torch for a value of --device.

    Raises:
        MachineError: cuda was requested, and torch finds no GPU.
    """
    import torch

    cuda = choice != "cpu" and torch.cuda.is_available()
    if choice == "cuda" and not cuda:
        fault = Fault("torch finds no CUDA device", remedy="use --device cpu")
        raise MachineError(fault.located(Mark("--device cuda")))
    return torch.device("cuda" if cuda else "cpu")


def go_offline(requested: bool) -> None:
    """Forbid downloads by huggingface_hub, if requested."""
    if requested:
        os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported
