"""The table of a study for a command, with the scores that are missing."""

from __future__ import annotations

from ablate.analysis import missing_scores
from ablate.analysis.outcome import Outcome, outcome_of
from ablate.formatting import first_few
from ablate.store import Results, none_if_unreadable
from ablate.streams import echo, new_console
from ablate.study import Runs


def warn_of_changed_data(planned: Runs, results: Results) -> None:
    """Warn if the study's files may have changed since its base was trained."""
    study = planned.study
    used: set[str] = set()
    # All rows share the files of the study, so that base's runs are enough.
    for run in planned.of(planned.base):
        # A damaged result is reported by the command itself.
        result = none_if_unreadable(results.run(run.id).read_result)
        if result is not None:
            used.update(decoding.corpus for decoding in result.decodings.values())
    if not used:
        return
    from ablate.data.text_preview import changed_files  # loads readers of every format

    data = planned.data_of(planned.base)
    others = changed_files(data, study.data_folder, results.corpora, used)
    if others:
        echo(
            f"note: {first_few(others)} may have changed since these results were made; "
            f"`ablate run` compares the content",
            err=True,
        )


def scored_outcome(planned: Runs, results: Results) -> Outcome:
    """The outcome of a study, with the scores that were missing and a warning of changed files."""
    warn_of_changed_data(planned, results)
    return outcome_of(planned, results, score_with_progress(planned, results))


def score_with_progress(planned: Runs, results: Results) -> list[str]:
    """Score finished translations in the study's metrics where a score is missing, with a progress
    bar.

    Returns:
        A line for each fault on account of which scores are missing, for the table.
    """
    from rich.progress import Progress  # `plan` and `status` need other functions of this file

    console = new_console(err=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        # Most commands have no score to compute.
        task = bar.add_task("scoring translations", visible=False)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return missing_scores.score_missing(planned, results, report)
