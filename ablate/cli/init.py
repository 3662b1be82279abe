"""`ablate init`: a commented study to start from."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ablate.errors import UsageError

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NOT_NAMES = ("null", "true", "false", "runs", "corpora")
TEMPLATES = Path(__file__).parent / "templates"
SCHEMA = "ablate.schema.json"  # beside the study, whose first line names it


class Template(str, Enum):
    """Studies to start from."""

    quickstart = "quickstart"
    table3 = "table3"
    own_data = "own-data"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study to write.")] = Path("study.yaml"),
    template: Annotated[
        Template, typer.Option("--template", help="What to begin with: generated text, the paper's table, or your own.")
    ] = Template.quickstart,
) -> None:
    """Write a commented study to start from, and beside it the schema for editors."""
    content = (TEMPLATES / f"{template.value}.yaml").read_text(encoding="utf-8")
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(content.replace("<file>", str(file)).replace("<name>", _name(file.stem)))
        _write_schema(file.with_name(SCHEMA))
    except FileExistsError:
        raise UsageError(f"{file}: is there already; give another name") from None
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from None
    typer.echo(f"Wrote {file}. Next: ablate plan {file}")


def _write_schema(file: Path) -> None:
    """Write the schema, over an older one of ours, but over nothing else."""
    from ablate.cli.schema import text
    from ablate.study.schema import TITLE

    if not file.exists() or TITLE in file.read_text(encoding="utf-8", errors="replace"):
        file.write_text(text(), encoding="utf-8")


def _name(stem: str) -> str:
    """The file's name, made to name a study, where YAML takes it for a word."""
    stem = re.sub("[^A-Za-z0-9_-]+", "-", stem).strip("-")
    return stem if _WORD.fullmatch(stem) and stem.lower() not in _NOT_NAMES else "study"
