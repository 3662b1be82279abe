"""The application: its verbs, in the order in which people meet them."""

from __future__ import annotations

from typing import Annotated

import typer

import ablate
from ablate.cli import attention, compare, export, init, plan, report, run, status, table, translate

app = typer.Typer(
    name="ablate",
    help="Which part of the Transformer earns its keep? One study in, the paper's ablation table out.",
    no_args_is_help=True,
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


for verb in (init, plan, run, status, table, compare, report, translate, attention, export):
    app.command(name=verb.__name__.rpartition(".")[2])(verb.command)
