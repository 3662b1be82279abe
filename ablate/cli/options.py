"""Arguments and options that several commands share, and the objects that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import Progress

from ablate.analysis import missing_scores
from ablate.analysis.settle import open_study, settle
from ablate.analysis.table import Table, table_of
from ablate.data.resolve_sources import other_files
from ablate.errors import AblateError, UsageError, did_you_mean_path
from ablate.formatting import first_few
from ablate.store import Results, RunFolder, if_readable
from ablate.streams import echo, new_console
from ablate.study import Row, Selection, Study, read_study
from ablate.study.select import find_row

if TYPE_CHECKING:
    import torch


def option(help: str, metavar: str | None = None, **facts: Any) -> Any:
    """An option that has a value, and the name of its parameter."""
    return typer.Option(help=help, metavar=metavar, **facts)


def flag(name: str, help: str) -> Any:
    """An option without a value. It has a name here, or Typer would add its negation."""
    return typer.Option(name, help=help)


def argument(metavar: str, help: str, show_default: bool | str = False) -> Any:
    """An argument of a command, as Typer takes it."""
    return typer.Argument(metavar=metavar, help=help, show_default=show_default)


StudyFile = Annotated[Path, argument("STUDY", "The study's YAML file.")]
RunOrStudy = Annotated[
    str, argument("RUN|STUDY", "A run's id or its first characters, or a study's YAML file.")
]
RowOfStudy = Annotated[
    str | None,
    argument("ROW", "Row of the study: its label, or a pattern for one.", show_default="base"),
]
SeedOfRow = Annotated[
    int | None,
    option("Seed of the row.", "N", min=0, max=2**32 - 1, show_default="the study's first"),
]


def _local_folder(folder: Path) -> Path:
    """Refuse the address of a server, which would become a folder `s3:`."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(folder)):
        raise typer.BadParameter(
            f'"{folder}" is an address; results are in a folder of this machine'
        )
    return folder


ResultsRoot = Annotated[
    Path,
    option(
        "Folder with the results of all studies.", "DIR", file_okay=False, callback=_local_folder
    ),
]
Overrides = Annotated[
    list[str] | None,
    option("Set a field of base, or data.FIELD, for this command. Repeatable.", "FIELD=VALUE"),
]
Rows = Annotated[
    list[str] | None,
    option("Base and these rows only: groups, labels, patterns; with commas.", "ROWS"),
]
Seeds = Annotated[str | None, option("Seeds instead of the study's: 1,2,3 or 1-3.", "SEEDS")]
Format = Annotated[Literal["rich", "json"], option("Output to read (rich) or for scripts (json).")]
Device = Annotated[
    Literal["auto", "cpu", "cuda"], option("Device; auto uses a GPU if there is one.")
]
Offline = Annotated[bool, flag("--offline", "Download nothing; use files that are already here.")]
BudgetText = Annotated[
    str | None, option("Only what fits in 2h, 90min or 8gpu-hours: fewer seeds, then rows.", "TIME")
]
DEFAULT_RESULTS = Path("results")
STUDIES = (".yaml", ".yml")  # endings of their files


@dataclass(frozen=True)
class StudyOptions:
    """The options of a command that reads a study, as given."""

    results: ResultsRoot = DEFAULT_RESULTS
    set: Overrides = None
    rows: Rows = None
    seeds: Seeds = None

    @property
    def selection(self) -> Selection:
        """The options that change the study, or select a part of it."""
        return Selection(self.set or (), self.rows or (), self.seeds)

    def given(self, but: Collection[str] = ()) -> list[str]:
        """The options that are not at their defaults, but for those named."""
        names = [field.name for field in fields(self) if field.name not in but]
        return [f"--{name}" for name in names if getattr(self, name) != getattr(type(self), name)]

    def open(self, study: Path, *, may_be_new: bool = False) -> tuple[Study, Results]:
        """As `read`, with the choices that trials have made so far.

        Raises:
            StoreError: the result of a trial cannot be read.
        """
        content, root = self.read(study, may_be_new=may_be_new)
        return settle(content, root), root

    def read(self, study: Path, *, may_be_new: bool = False) -> tuple[Study, Results]:
        """Read the study, select its rows and seeds, and open its results root.

        A note says if the results root does not exist; if it may be new, only where a folder has a
        similar name.

        Raises:
            StudyError: a fault in the study or in --set.
            UsageError: a fault in --rows or --seeds.
        """
        root = Results(self.results)
        content = read_study(study, self.selection)
        if self.results != DEFAULT_RESULTS and not self.results.exists():
            near = did_you_mean_path(self.results, Path.is_dir)
            if near or not may_be_new:
                echo(f"note: --results {self.results} does not exist{near or ' yet'}", err=True)
        return content, root


def print_notes(study: Study) -> None:
    """Print what the study file probably does not mean, on standard error."""
    for line in study.notes:
        echo(f"note: {line}", err=True)


def warn_of_changed_data(study: Study, results: Results) -> None:
    """Warn if the study's files may have changed since its base was trained."""
    used: set[str] = set()
    # All rows share the files of the study, so that base's runs are enough.
    for run in study.runs_of(study.base):
        # A damaged result is reported by the command itself.
        result = if_readable(results.run(run.id).read_result)
        if result is not None:
            used.update(decoding.corpus for decoding in result.decodings.values())
    if not used:
        return
    data = study.data_of(study.base)
    others = other_files(data, study.data_folder, results.corpora, used)
    if others:
        echo(
            f"note: {first_few(others)} may have changed since these results were made; "
            f"`ablate run` compares the content",
            err=True,
        )


def find_run(
    results: Results, run: str, row: str | None = None, seed: int | None = None
) -> tuple[RunFolder, Row | None, str]:
    """Find a run by its id or the first characters of its id, or by study, row (base by default)
    and seed (the first one by default).

    Returns:
        The run, the row that names it (None if its id does, because rows that differ in decoding
        share a run), and the command that trains it.

    Raises:
        StudyError: the study file has errors.
        UsageError: no run matches, or several.
    """
    if row is not None or Path(run).is_file() or Path(run).suffix in STUDIES:
        return _run_of_row(results, Path(run), row or "base", seed)
    if seed is not None:
        raise UsageError(
            "--seed has no effect with a run's id, which has one seed; name a run by STUDY ROW "
            "--seed N"
        )
    matches = [id for id in results.run_ids() if id.startswith(run)]
    if len(matches) != 1 or not run:
        count = "no run" if not matches else f"{len(matches)} runs"
        raise UsageError(
            f'{results.root}: {count} with an id that begins with "{run}"; '
            "`ablate status STUDY` lists them, and pending ones have no files yet"
        )
    return results.run(matches[0]), None, "ablate run STUDY"


def _run_of_row(
    results: Results, path: Path, name: str, seed: int | None
) -> tuple[RunFolder, Row, str]:
    study, command = open_study(path, results), f"ablate run {path}"
    if seed is not None and seed not in study.seeds:  # a seed of an earlier --seeds
        study = open_study(path, results, Selection(seeds=str(seed)))
        command = f"{command} --seeds {seed}"
    row = find_row(study, name)
    run = next(run for run in study.runs_of(row) if seed in (None, run.seed))
    folder = results.run(run.id)
    if not folder.path.is_dir():
        raise UsageError(
            f'{results.root}: row "{row.label}" with seed {run.seed} is pending; `{command}` '
            f"trains it"
        )
    return folder, row, command


def find_finished_run(
    results: Results, run: str, row: str | None, seed: int | None
) -> tuple[RunFolder, Row | None]:
    """As `find_run`, of a finished run: the run, and the row that names it.

    Raises:
        StudyError: the study file has errors.
        UsageError: no run matches, or several, or the run is not finished.
    """
    folder, named, command = find_run(results, run, row, seed)
    result = folder.read_result()
    if result is not None and result.outcome == "done":
        return folder, named
    what = f'row "{named.label}": ' if named else ""
    if result is not None:
        raise UsageError(
            f"{what}run {folder.id} has diverged, so there is no trained model; choose another run"
        )
    failure = if_readable(folder.read_failure)
    if failure is not None and not failure.killed:  # the scheduler does not repeat such runs
        command += " --retry-failed"
    raise UsageError(f"{what}run {folder.id} is not done; `{command}` finishes it")


@dataclass(frozen=True)
class TrainedRun:
    """A trained run, as given to a command that may also take a text."""

    run: RunOrStudy
    row: RowOfStudy = None
    results: ResultsRoot = DEFAULT_RESULTS
    seed: SeedOfRow = None

    def find(self, text: str) -> tuple[RunFolder, Results, Row | None]:
        """As `find_finished_run`, with the results root.

        `text`: what takes a text, for an argument that names no row because it may be one.
        """
        root = Results(self.results)
        try:
            folder, named = find_finished_run(root, self.run, self.row, self.seed)
        except AblateError as error:
            is_usage, is_study = isinstance(error, UsageError), Path(self.run).suffix in STUDIES
            if self.row is None or (is_study and not is_usage):
                raise
            *before, last = error.lines
            raise UsageError(*before, f'{last}; if "{self.row}" is a text: {text}') from None
        return folder, root, named


def torch_device(choice: Device) -> torch.device:
    """The torch device for --device.

    Raises:
        UsageError: cuda was requested and torch finds no GPU.
    """
    import torch

    from ablate.launch.devices import usable_gpus

    return torch.device("cuda" if usable_gpus(choice) else "cpu")


def go_offline(requested: bool) -> None:
    """Forbid downloads of huggingface_hub, which reads this variable when it is first imported."""
    if requested:
        os.environ["HF_HUB_OFFLINE"] = "1"


def scored_table(study: Study, results: Results) -> Table:
    """The table of a study, with the scores that were missing and a warning of changed files."""
    warn_of_changed_data(study, results)
    return table_of(study, results, score_with_progress(study, results))


def print_faults(table: Table) -> None:
    """Print the files that a table could not use, on standard error."""
    for line in table.faults:
        echo(line, err=True)


def score_with_progress(study: Study, results: Results) -> list[str]:
    """Score finished translations in the study's metrics where a score is missing, with a progress
    bar.

    Returns:
        A line for each fault on account of which scores are missing, for the table.
    """
    console = new_console(err=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        # Most commands have no score to compute.
        task = bar.add_task("scoring translations", visible=False)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return missing_scores.score_missing(study, results, report)
