"""`ablate clean`: list the removable files of a study's results, and remove them on request."""

from __future__ import annotations

from typing import Annotated

from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.cli.arguments import flag
from ablate.cli.options import DEFAULT_STUDY, StudyFile, StudyOptions
from ablate.cli.output import Format
from ablate.formatting import plural, size
from ablate.stdio import echo, print_json
from ablate.store.cleaning import removable_files, remove_files
from ablate.store.files import size_of

EXAMPLE = "ablate clean study.yaml --weights --yes"


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
    weights: Annotated[
        bool,
        flag(
            "--weights",
            "Include the weights of finished runs. The table stays; predict and export need them.",
        ),
    ] = False,
    yes: Annotated[
        bool, flag("--yes", "Remove the files. Without this option they are listed.")
    ] = False,
    format: Format = "text",
) -> None:
    """List leftovers of interrupted, damaged or finished runs."""
    planned, root = options.open(study)
    freed = 0
    folders = []
    for run in with_tuning_runs(planned):
        removable = removable_files(root.run(run.id), weights)
        if not removable.paths:
            continue
        kinds = []
        if removable.leftovers:
            kinds.append(plural(len(removable.leftovers), "leftover"))
        if removable.weights:
            kinds.append(plural(len(removable.weights), "file") + " of weights")
        bytes_found = size_of(removable.paths)
        removed = remove_files(removable, weights) if yes else None
        freed += (removed or 0) if yes else bytes_found
        facts = {"leftovers": len(removable.leftovers), "weights": len(removable.weights)}
        is_kept = yes and removed is None  # a worker holds the lease of the run
        folders.append({"run": run.id, **facts, "bytes": bytes_found, "in_use": is_kept})
        if format == "text":
            line = f"{removable.folder.path}: {', '.join(kinds)}, {size(bytes_found)}"
            if yes:
                line += f": {'kept, a worker is using it' if is_kept else 'removed'}"
            echo(line)
    if format == "json":
        print_json({"study": planned.study.name, "runs": folders, "bytes": freed, "removed": yes})
        return
    summary = "Nothing to clean."
    if yes:
        summary = f"{size(freed)} freed."
    elif freed:
        summary = f"{size(freed)} can be freed with --yes."
    if not weights:
        summary += " --weights includes the weights of finished runs."
    echo(summary)
