"""The outcome of a study for a command, after missing scores have been computed, and warnings of
what has changed since its results were made.
"""

from __future__ import annotations

from ablate.analysis.outcome import Outcome, scored_outcome_of
from ablate.analysis.text_changes import refuse_other_text
from ablate.cli.output import print_faults
from ablate.config.resolve import SYMBOL_OF
from ablate.errors import PENDING, AblateError, Fault, listed, wrong_option
from ablate.formatting import first_few, plural, setting_text
from ablate.stdio import echo, new_console
from ablate.store import Results
from ablate.study import Row, Runs, read_study, runs_of
from ablate.study.row import changes


def check_changes(planned: Runs, results: Results) -> None:
    """Refuse results of other text, and warn if the text cannot be compared, or if the settings of
    base have changed since base was trained.

    Raises:
        StoreError: the results were made with other text.
    """
    for line in refuse_other_text(planned, results):
        echo(f"note: {line}", err=True)
    _note_earlier_base(planned, results)


def _note_earlier_base(planned: Runs, results: Results) -> None:
    """Say in which settings base differs from the base of the last published table of the study, if
    runs of that base have results: the runs are not lost, but this study has others.
    """
    if any(results.run(run.id).has_result for run in planned.of(planned.base)):
        return
    file = results.root / planned.study.name / "study.yaml"
    try:
        earlier = runs_of(read_study(file))
    except AblateError:  # there is none, or it was written by hand
        return
    ended = [run for run in earlier.of(earlier.base) if results.run(run.id).has_result]
    if not ended:
        return
    before = {**earlier.base.config.model_dump(), **earlier.study.data.model_dump()}
    now = dict(planned.study.data.model_dump())
    now |= changes(planned.base.config, earlier.base.config)
    texts = []
    for name, value in now.items():
        if name != "folder" and value != before.get(name):  # where text lies is no setting of base
            field = SYMBOL_OF.get(name, name)
            texts.append(f"{field}: {setting_text(before.get(name))} -> {setting_text(value)}")
    if texts:
        echo(
            f"note: base has no result, but the base of {file} has results of "
            f"{plural(len(ended), 'run')}. Changed since then: {first_few(texts)}",
            err=True,
        )


def outcome_to_show(planned: Runs, results: Results, *rows: Row) -> Outcome:
    """The outcome of a study for a command that shows it, after a note on what has changed.

    Args:
        planned: the runs of the study.
        results: results root.
        rows: the rows that are shown; none for all rows.

    Raises:
        UsageError: no run of these rows has a result.
        StoreError: the results were made with other text.
    """
    _note_earlier_base(planned, results)
    outcome = scored_outcome(planned, results)
    shown = [outcome.by_label[row.label] for row in rows or outcome.planned.rows]
    if not any(run.result for runs in shown for run in runs):
        print_faults(outcome.table)
        path = planned.study.path
        names = listed(f'"{row.label}"' for row in rows) if rows else path
        train, show = results.command("run", path), results.command("status", path)
        verb = "trains"
        if any(run.lacks_decoding for runs in shown for run in runs):
            # Runs that are not trained yet are trained by the same command.
            trained = all(run.lacks_decoding for runs in shown for run in runs)
            verb = "decodes" if trained else "trains and decodes"
        remedy = f"`{train}` {verb} them, and `{show}` shows their states"
        if planned.study.source.is_modified:
            remedy += ", with the same --set, --rows and --seeds"
        fault = Fault(f"no run of {names} has a result", remedy=remedy, code=PENDING)
        raise wrong_option(str(results.root), fault)
    return outcome


def scored_outcome(planned: Runs, results: Results) -> Outcome:
    """The outcome of a study, after the missing scores of finished runs in its metrics have been
    computed, with a progress bar.
    """
    from rich.progress import Progress  # not at the top: `plan` and `status` do not need it

    console = new_console(err=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        # Hidden at first, because usually no score is missing.
        task = bar.add_task("scoring translations", visible=False)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        return scored_outcome_of(planned, results, report)
