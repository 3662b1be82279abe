"""`ablate schema`: the study file's shape, for editors."""

from __future__ import annotations

import json

import typer


def command() -> None:
    """Print the JSON Schema of a study file, from which an editor completes and checks fields."""
    typer.echo(text(), nl=False)


def text() -> str:
    """The schema as a file holds it."""
    from ablate.study.schema import schema

    return json.dumps(schema(), indent=1) + "\n"
