"""Find the run that a command line names: by its id, or by study, row and seed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from ablate.analysis.choices import runs_with_choices
from ablate.cli.arguments import argument, option
from ablate.cli.options import DEFAULT_RESULTS, Overrides, ResultsRoot
from ablate.config import DecodingConfig
from ablate.errors import (
    NO_SUCH_FILE,
    PENDING,
    UNKNOWN_NAME,
    AblateError,
    Fault,
    UsageError,
    ineffective_option,
    wrong_option,
)
from ablate.formatting import setting_text
from ablate.stdio import echo
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.records import Decoding, Result
from ablate.study import Row, Selection, read_study
from ablate.study.choice import AWAITS
from ablate.study.select import find_row
from ablate.study.yaml_nodes import is_yaml

RunOrStudy = Annotated[
    str, argument("RUN|STUDY", "A run's id or its first characters, or a study's YAML file.")
]
RowOfStudy = Annotated[
    str | None,
    argument("ROW", "Row of the study: its label, or a pattern for one.", show_default="base"),
]
SeedOfRow = Annotated[
    int | None,
    option("Seed of the row.", "N", min=0, show_default="the study's first"),
]


@dataclass(frozen=True)
class NamedRun:
    """A run that a command line names.

    row: row of the study; None if the run was named by its id, because several rows that differ in
        decoding may share a run.
    rows: all rows of the study; empty if the run was named by its id.
    command: command that trains the run.
    """

    folder: RunFolder
    row: Row | None
    rows: tuple[Row, ...]
    command: str


def find_run(
    results: Results,
    run: str,
    row: str | None = None,
    seed: int | None = None,
    overrides: Sequence[str] = (),
) -> NamedRun:
    """Find a run.

    Args:
        results: the results root.
        run: the id of the run or its first characters, or the path of a study file.
        row: label of the row in the study, or a pattern for one; None for base.
        seed: seed of the row; None for the first seed of the study.
        overrides: fields of base or data of the study, `FIELD=VALUE`, as in --set.

    Raises:
        StudyError: the study file or an override has errors.
        UsageError: no run matches, or several match.
    """
    if row is not None or Path(run).is_file() or is_yaml(Path(run)):
        return _run_of_row(results, Path(run), row or "base", seed, overrides)
    if overrides:
        problem = "has no effect with a run's id, which has its settings"
        raise ineffective_option("--set", problem, "name a run by STUDY ROW --set FIELD=VALUE")
    if seed is not None:
        problem = "has no effect with a run's id, which has one seed"
        raise ineffective_option("--seed", problem, "name a run by STUDY ROW --seed N")
    matches = [id for id in results.run_ids() if id.startswith(run)]
    if len(matches) != 1 or not run:
        count = "no run" if not matches else f"{len(matches)} runs"
        problem = f'{count} with an id that begins with "{run}"'
        remedy = (
            f"`{results.command('status', 'STUDY')}` lists the ids; a pending run has no files yet"
        )
        raise wrong_option(str(results.root), Fault(problem, remedy=remedy))
    return NamedRun(results.run(matches[0]), None, (), results.command("run", "STUDY"))


def _run_of_row(
    results: Results, path: Path, name: str, seed: int | None, overrides: Sequence[str]
) -> NamedRun:
    command = results.command("run", path)
    for override in overrides:
        command += f" --set {shlex.quote(override)}"
    runs = runs_with_choices(read_study(path, Selection(overrides)), results)
    row = find_row(runs, name)
    if seed is not None and seed not in runs.seeds_of(row):  # as trained by `run --seeds`
        selection = Selection(overrides, seeds=str(seed))
        runs = runs_with_choices(read_study(path, selection), results)
        row = runs.by_label[row.label]
        command = f"{command} --seeds {seed}"
    run = next(run for run in runs.of(row) if seed in (None, run.seed))
    folder = results.run(run.id)
    if not folder.path.is_dir():
        problem = f'row "{row.label}" with seed {run.seed} is pending'
        fault = Fault(problem, remedy=f"`{command}` trains it", code=PENDING)
        raise wrong_option(str(results.root), fault)
    return NamedRun(folder, row, runs.rows, command)


def find_finished_run(
    results: Results,
    run: str,
    row: str | None,
    seed: int | None,
    overrides: Sequence[str] = (),
) -> NamedRun:
    """Find a finished run; arguments and errors as in `find_run`.

    Raises:
        UsageError: the run is not finished, or has diverged, or its decoding is not chosen yet.
    """
    found = find_run(results, run, row, seed, overrides)
    folder = found.folder
    result = folder.read_result()
    if result is not None and result.outcome == "done":
        if found.row is None:
            _say_which_row(folder, result)
        elif found.row.awaits_decoding:
            remedy = f"`{found.command}` chooses its decoding"
            raise UsageError(Fault(f'row "{found.row.label}" {AWAITS}', remedy=remedy))
        return found
    subject = f"run {folder.id}"
    if found.row is not None:
        subject = f'row "{found.row.label}": {subject}'
    if result is not None:
        problem = f"{subject} has diverged, so there is no trained model"
        raise UsageError(Fault(problem, remedy="choose another run"))
    command = found.command
    failure = none_if_unreadable(folder.read_failure)
    if failure is not None and not failure.killed:  # else `ablate run` repeats it anyway
        command += " --retry-failed"
    raise UsageError(Fault(f"{subject} is not done", remedy=f"`{command}` finishes it"))


def _say_which_row(folder: RunFolder, result: Result) -> None:
    """Print a note if a run that is named by its id belongs to rows with different decoding: it
    predicts with the settings of the row that began it.
    """
    record, decodings = folder.read_run(), result.decodings.values()
    names = [name for name in DecodingConfig.model_fields if name in Decoding.model_fields]
    varied = []
    for name in names:
        if len({getattr(decoding, name) for decoding in decodings}) > 1:
            varied.append(name)
    if record is not None and varied:
        began = ", ".join(f"{name}={setting_text(getattr(record.config, name))}" for name in varied)
        echo(
            f"run {folder.id}: several rows share it; its id stands for the row that began it "
            f"({began}). Name another by STUDY ROW",
            err=True,
        )


@dataclass(frozen=True)
class TrainedRun:
    """The arguments and options that name a trained run."""

    run: RunOrStudy
    row: RowOfStudy = None
    results: ResultsRoot = DEFAULT_RESULTS
    seed: SeedOfRow = None
    set: Overrides = None

    @property
    def root(self) -> Results:
        """The results root."""
        return Results(self.results)

    def find(self, *, lacks_text: bool) -> NamedRun:
        """Find the run; arguments and errors as in `find_finished_run`.

        `lacks_text` says whether the option --text of the command is not given: if ROW is no row,
        the message then says that --text takes a text.
        """
        try:
            return find_finished_run(self.root, self.run, self.row, self.seed, self.set or ())
        except AblateError as error:
            *before, last = error.faults
            is_fault_of_study = is_yaml(Path(self.run)) and not isinstance(error, UsageError)
            is_name = last.code in (UNKNOWN_NAME, NO_SUCH_FILE) and not is_fault_of_study
            if not lacks_text or self.row is None or not is_name:
                raise
            hint = f'if "{self.row}" is a text: --text takes it'
            remedy = f"{last.remedy}; {hint}" if last.remedy else hint
            raise UsageError(*before, replace(last, remedy=remedy)) from None
