"""`ablate clean`: what could go of a study's results, and away with it on request."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.options import DEFAULT_RESULTS, Overrides, ResultsRoot, Rows, Seeds, StudyFile, study_and_results
from ablate.formatting import size


def command(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    seeds: Seeds = None,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights",
            help="Also the weights of finished runs: the table stays; translate, export and new decodings need them.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it. Without this, it is only said.")] = False,
) -> None:
    """Say what kills, damage and finished runs have left of a study's results, and remove it with --yes."""
    from ablate.store.cleaning import remove, size_of, waste_of

    content, root = study_and_results(study, results, set, rows, seeds)
    freed = 0
    for run in content.runs():
        found = waste_of(root.run(run.id), weights)
        if not found.paths:
            continue
        what = [f"{len(found.leftovers)} left over"] if found.leftovers else []
        what += [f"{len(found.weights)} of its weights"] if found.weights else []
        line = f"{found.folder.path}: {', '.join(what)}, {size(size_of(found.paths))}"
        if not yes:
            freed += size_of(found.paths)
            typer.echo(line)
            continue
        removed = remove(found, weights)
        freed += removed or 0
        typer.echo(f"{line}: {'kept, a worker is at it' if removed is None else 'removed'}")
    done = "freed" if yes else "could be freed; --yes does it"
    more = "" if weights else ". With --weights, the weights of finished runs too"
    typer.echo(f"{size(freed)} {done}{more}." if freed or yes else f"Nothing to clean{more}.")
