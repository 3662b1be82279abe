"""The application: its verbs, in the order in which people meet them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import ablate
from ablate.cli import (
    attention,
    clean,
    compare,
    data,
    export,
    init,
    plan,
    report,
    run,
    schema,
    status,
    table,
    translate,
    verify,
)
from ablate.cli.usage import Fault, one_line

app = typer.Typer(
    name="ablate",
    help="Which part of the Transformer earns its keep? One study in, the paper's ablation table out.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ablate {ablate.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    pass


for verb in (init, plan, run, status, table, compare, report, translate, attention, export, verify, clean, schema):
    app.command(name=verb.__name__.rpartition(".")[2])(verb.command)
app.add_typer(data.app, name="data")


def call() -> int:
    """Run the command that was given; its exit code.

    Raises:
        UsageError: it is no command of ours, or not given as it should be.
    """
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="ablate", standalone_mode=False)
    except Fault as fault:
        raise one_line(fault) from None
    return code if isinstance(code, int) else 0
