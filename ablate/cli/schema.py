"""`ablate schema`: the JSON Schema of study files, for editors."""

from __future__ import annotations

import typer

EXAMPLE = "ablate schema > ablate.schema.json"


def command() -> None:
    """Print the JSON Schema of study files, for completion in editors."""
    from ablate.study.schema import schema_text

    typer.echo(schema_text(), nl=False)
