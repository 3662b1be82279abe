"""`ablate clean`: list the removable files of a study's results, and remove them on request."""

from __future__ import annotations

from typing import Annotated

from ablate.analysis.trials import with_trials
from ablate.cli.arguments import flag
from ablate.cli.options import StudyFile, StudyOptions
from ablate.formatting import plural, size
from ablate.store.cleaning import removable_files, remove_files, size_of
from ablate.streams import echo

EXAMPLE = "ablate clean study.yaml --weights --yes"


def command(
    study: StudyFile,
    options: StudyOptions,
    *,
    weights: Annotated[
        bool,
        flag(
            "--weights",
            "Include the weights of finished runs. The table stays; translate and export need "
            "them.",
        ),
    ] = False,
    yes: Annotated[
        bool, flag("--yes", "Remove the files. Without this option they are listed.")
    ] = False,
) -> None:
    """List leftovers of interrupted, damaged or finished runs."""
    planned, root = options.open(study)
    freed = 0
    for run in with_trials(planned):
        removable = removable_files(root.run(run.id), weights)
        if not removable.paths:
            continue
        kinds = []
        if removable.leftovers:
            kinds.append(plural(len(removable.leftovers), "leftover"))
        if removable.weights:
            kinds.append(plural(len(removable.weights), "file") + " of weights")
        line = f"{removable.folder.path}: {', '.join(kinds)}, {size(size_of(removable.paths))}"
        if not yes:
            freed += size_of(removable.paths)
            echo(line)
            continue
        removed = remove_files(removable, weights)  # None: a worker holds the run's lease
        freed += removed or 0
        echo(f"{line}: {'kept, a worker is using it' if removed is None else 'removed'}")
    summary = "Nothing to clean."
    if yes:
        summary = f"{size(freed)} freed."
    elif freed:
        summary = f"{size(freed)} can be freed with --yes."
    if not weights:
        summary += " --weights includes the weights of finished runs."
    echo(summary)
