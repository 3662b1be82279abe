"""Options that several verbs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.errors import StoreError, UsageError
from ablate.store import Results, RunFolder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ablate.study import Study

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study's YAML file.", show_default=False)]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.", show_default=False)]
ResultsRoot = Annotated[Path, typer.Option("--results", metavar="DIR", file_okay=False, help="The results root.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a field of base, or data.FIELD. May be repeated."),
]
Rows = Annotated[
    list[str] | None,
    typer.Option("--rows", metavar="ROWS", help="Only these rows and base: groups, labels or patterns, by commas."),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="SEEDS", help="These seeds in place of the study's: 1,2,3 or 1-3.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Download nothing: use what is there.")]
BudgetText = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Only what fits: 2h, 90min, 8gpu-hours. Cuts seeds before rows."),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log", metavar="LOGGER", envvar="ABLATE_LOG", help="Mirror to tensorboard, mlflow or wandb. May be repeated."
    ),
]
DEFAULT_RESULTS = Path("results")


def study_and_results(
    study: Path, results: Path, overrides: list[str] | None, rows: list[str] | None, seeds: str | None
) -> tuple[Study, Results]:
    """The study as selected, and its results root.

    Raises:
        StudyError: the study or --set is at fault.
        UsageError: --rows or --seeds is.
    """
    from ablate.study import Selection, read_study  # reading a study takes longer to load than all else

    return read_study(study, Selection(overrides or (), rows or (), seeds)), Results(results)


def warn_of_other_text(study: Study, results: Results) -> None:
    """Say so where the study's files are not those that the results of its base are of; `run` refuses to mix them."""
    from ablate.data.check import is_other_text

    used = set()
    for run in study.runs_of(study.base):
        try:
            result = results.run(run.id).read_result() or {}
        except StoreError:
            continue
        used |= {decoding["corpus"] for decoding in result.get("decodings", {}).values()}
    if used and is_other_text(study.data_of(study.base), study.data_folder, results.corpora, used):
        typer.echo(
            f"note: the files in {study.data_folder} are not those that these results are of, or have changed since; "
            "`ablate run` compares what they hold",
            err=True,
        )


def any_run(results: Results, given: str) -> RunFolder:
    """The run whose id begins so, finished or not.

    Raises:
        UsageError: there is none, or several.
    """
    found = [id for id in results.run_ids() if id.startswith(given)]
    if len(found) != 1 or not given:
        what = "no run" if not found else f"{len(found)} runs"
        raise UsageError(f'{results.root}: has {what} whose id begins with "{given}"; `ablate status STUDY` lists them')
    return results.run(found[0])


def go_offline(asked: bool) -> None:
    """Tell the Hub's library, which reads this when it is first imported."""
    if asked:
        os.environ["HF_HUB_OFFLINE"] = "1"


def find_run(results: Results, given: str) -> RunFolder:
    """The finished run whose id begins so.

    Raises:
        UsageError: there is none, or several, or it is not finished.
    """
    folder = any_run(results, given)
    result = folder.read_result()
    if result is None or result["outcome"] != "done":
        raise UsageError(f"run {folder.id} is not done; `ablate run STUDY` finishes it")
    return folder


def measured(study: Study, results: Results) -> None:
    """Score translations that are not scored yet, in the metrics that the study asks for, with a bar meanwhile.

    Where results cannot be written, say so and go on without them.
    """
    from ablate.metrics.scoring import measure_missing

    bar: list[tuple[Progress, TaskID]] = []

    def told(done: int, of: int) -> None:
        if not bar:
            from rich.console import Console
            from rich.progress import Progress

            console = Console(stderr=True)
            progress = Progress(console=console, transient=True, disable=not console.is_terminal)
            progress.start()
            bar.append((progress, progress.add_task("scoring translations", total=of)))
        bar[0][0].update(bar[0][1], completed=done)

    try:
        measure_missing(study, results, told)
    except PermissionError as error:
        typer.echo(f"{error.filename}: cannot be written, so new scores are left out", err=True)
    finally:
        for progress, _ in bar:
            progress.stop()
