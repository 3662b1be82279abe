"""The command-line application: its commands, in the groups that `ablate --help` shows."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

import ablate
from ablate.cli import data
from ablate.cli.options import with_groups
from ablate.cli.usage import ClickException, Command, CommandGroup, usage_error
from ablate.store.machine import set_default_environment
from ablate.streams import echo

# A command is the module of its name in this package.
GROUPS = {
    "Study": ("init", "plan", "run", "status"),
    "Clusters": ("stop", "logs", "work"),
    "Results": ("table", "judge", "compare", "report", "publish"),
    "Trained runs": ("translate", "generate", "fill", "attention", "export"),
    "Housekeeping": ("verify", "clean", "schema"),
}

app = typer.Typer(
    name="ablate",
    help="Train the variations of a Transformer that a study lists, and print a table like the "
    "paper's Table 3.",
    cls=CommandGroup,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]ablate init[/bold], then [bold]ablate run study.yaml[/bold].",
)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"ablate {ablate.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


for title, names in GROUPS.items():
    for name in names:
        module = import_module(f"ablate.cli.{name}")
        epilog = f"Example: [bold]{module.EXAMPLE}[/bold]"
        app.command(name=name, cls=Command, rich_help_panel=title, epilog=epilog)(
            with_groups(module.command)
        )
app.add_typer(data.app, name="data", rich_help_panel="Study")


def run_command() -> int:
    """Run the command in `sys.argv`.

    Returns:
        The exit code.

    Raises:
        UsageError: the command, an option or an argument is wrong or missing.
        BrokenPipeError: the reader of standard output has ended.
    """
    set_default_environment()
    try:
        # standalone_mode would print errors in several lines, and exit with codes of its own.
        code = app(sys.argv[1:] or ["--help"], prog_name="ablate", standalone_mode=False)
    except ClickException as error:
        raise usage_error(error) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # for which click exits with 1
            raise end.__context__ from None
        raise
    return code if isinstance(code, int) else 0
