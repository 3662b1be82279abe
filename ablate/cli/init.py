"""`ablate init`: write a commented study to start from."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from ablate.cli.arguments import argument, flag, option
from ablate.cli.between import study_between
from ablate.cli.output import Format, print_written
from ablate.errors import Fault, UsageError, ineffective_option, listed
from ablate.stdio import echo, print_data
from ablate.store.files import write_bytes
from ablate.study.schema import TITLE, schema_text

EXAMPLE = "ablate init captions.yaml --template own-data"
TEMPLATES = Path(__file__).parent / "templates"
SCHEMA = "ablate.schema.json"  # beside the study, whose first line names it
Template = Literal["quickstart", "table3", "own-data", "language-model", "masked-lm", "synthetic"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
# No names of studies: words of YAML, and folders of the results root.
_RESERVED = ("null", "true", "false", "runs", "corpora")


def command(
    file: Annotated[Path, argument("FILE", "The study to write.", show_default=True)] = Path(
        "study.yaml"
    ),
    *,
    template: Annotated[
        Template | None,
        option(
            f"{listed(get_args(Template))}.",
            "NAME",
            show_default="quickstart",
        ),
    ] = None,
    between: Annotated[
        tuple[str, str] | None,
        option(
            "Two presets, such as gpt2 qwen3: a study with one row for each part in which "
            "they differ, instead of a template.",
            "FROM TO",
        ),
    ] = None,
    schema: Annotated[
        bool, flag("--schema", "Print the JSON Schema of studies, for editors; write nothing.")
    ] = False,
    format: Format = "text",
    context: typer.Context,
) -> None:
    """Write a commented study to start from."""
    if schema:
        source = context.get_parameter_source("file")
        if source is not None and source.name != "DEFAULT":
            raise ineffective_option(str(file), "has no effect with --schema, which prints")
        print_data(schema_text())
        return
    if str(file) in get_args(Template):
        remedy = f"write `ablate init {file}.yaml --template {file}`"
        raise UsageError(Fault(f"{file}: is a template", remedy=remedy))
    if between is not None and template is not None:
        problem = "has no effect with --between"
        raise ineffective_option("--template", problem, "leave one of them out")
    # In UTF-8, independent of the locale, as the reader of studies expects.
    if between is None:
        content = (TEMPLATES / f"{template or 'quickstart'}.yaml").read_text(encoding="utf-8")
    else:
        content = study_between(*between)
    content = content.replace("<file>", str(file)).replace("<name>", _study_name(file.stem))
    if not file.parent.is_dir():
        raise UsageError(f"{file}: cannot be written: there is no folder {file.parent}")
    try:
        # Atomically, and never over an existing file.
        write_bytes(file, content.encode(), once=True)
        _write_schema(file.with_name(SCHEMA))
    except FileExistsError:
        raise UsageError(
            Fault("already exists", given=str(file), remedy="choose another name")
        ) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}") from None
    if format == "json":
        print_written([file], format)
        return
    echo(f"Wrote {file}. Next: ablate plan {shlex.quote(str(file))}")


def _write_schema(file: Path) -> None:
    """Write the JSON Schema. An existing file is replaced only if it is a schema of ablate."""
    if not file.exists() or TITLE in file.read_text(encoding="utf-8", errors="replace"):
        write_bytes(file, schema_text().encode())


def _study_name(stem: str) -> str:
    """The name of a study, from the stem of its file; `study` if that is no valid name."""
    stem = re.sub("[^A-Za-z0-9_-]+", "-", stem).strip("-")
    return stem if _NAME.fullmatch(stem) and stem.lower() not in _RESERVED else "study"
