"""The run that a command is given: by its id, or by a study, a row and a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from ablate.analysis.settle import settle
from ablate.cli.arguments import argument, option
from ablate.cli.options import DEFAULT_RESULTS, ResultsRoot
from ablate.config import DecodingConfig
from ablate.errors import AblateError, UsageError
from ablate.formatting import setting_text
from ablate.store import Results, RunFolder, none_if_unreadable
from ablate.store.records import Decoding, Result
from ablate.streams import echo
from ablate.study import Row, Selection, read_study
from ablate.study.select import find_row

STUDIES = (".yaml", ".yml")  # endings of their files
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
    study, command = read_study(path), f"ablate run {path}"
    if seed is not None and seed not in study.seeds.rows:  # a seed of an earlier --seeds
        study = read_study(path, Selection(seeds=str(seed)))
        command = f"{command} --seeds {seed}"
    runs = settle(study, results)
    row = find_row(runs, name)
    run = next(run for run in runs.of(row) if seed in (None, run.seed))
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
        if named is None:
            _say_which_row(folder, result)
        return folder, named
    what = f'row "{named.label}": ' if named else ""
    if result is not None:
        raise UsageError(
            f"{what}run {folder.id} has diverged, so there is no trained model; choose another run"
        )
    failure = none_if_unreadable(folder.read_failure)
    if failure is not None and not failure.killed:  # the scheduler does not repeat such runs
        command += " --retry-failed"
    raise UsageError(f"{what}run {folder.id} is not done; `{command}` finishes it")


def _say_which_row(folder: RunFolder, result: Result) -> None:
    """Say by which of its rows a run predicts that is named by its id, if they predict in several
    ways.
    """
    record, decodings = folder.read_run(), result.decodings.values()
    names = [name for name in DecodingConfig.model_fields if name in Decoding.model_fields]
    varied = [name for name in names if len({getattr(one, name) for one in decodings}) > 1]
    if record is not None and varied:
        began = ", ".join(f"{name}={setting_text(getattr(record.config, name))}" for name in varied)
        echo(
            f"run {folder.id}: several rows share it; its id stands for the row that began it "
            f"({began}). Name another by STUDY ROW",
            err=True,
        )


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
            *before, last = error.faults
            hint = f'if "{self.row}" is a text: {text}'
            remedy = f"{last.remedy}; {hint}" if last.remedy else hint
            raise UsageError(*before, replace(last, remedy=remedy)) from None
        return folder, root, named
