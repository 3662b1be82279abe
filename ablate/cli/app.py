"""The command-line application: its commands, in the groups that `ablate --help` shows."""

from __future__ import annotations

import ast
import functools
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import ablate
from ablate.cli.former import present_words
from ablate.cli.usage import ClickException, Command, CommandGroup, usage_error, with_groups
from ablate.stdio import echo

# By title: names of commands. Each name is also the name of a module in this package.
GROUPS = (
    ("Study", ("init", "plan", "run", "status")),
    ("Results", ("table", "judge", "compare", "report", "publish")),
    ("Trained runs", ("predict", "attention", "export")),
    ("Housekeeping", ("verify", "clean")),
    ("Corpora and clusters", ("data", "cluster")),  # each is a group of commands
)
TITLE_OF = {name: title for title, names in GROUPS for name in names}
HIDDEN = ("work",)  # started by clusters, not by people


class Commands(CommandGroup):
    """All commands. The module of a command is imported only to run that command or to show its own
    help, so that `ablate --help` answers at once.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of `ablate --help`."""
        return list(TITLE_OF)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return a command with the name and summary that `ablate --help` shows, read from the
        source of its module; None for an unknown name.
        """
        if name not in TITLE_OF:
            return None
        tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        (command,) = (node for node in tree.body if getattr(node, "name", "") == "command")
        assert isinstance(command, ast.FunctionDef)
        summary = (ast.get_docstring(command) or "").partition("\n\n")[0].replace("\n", " ")
        return Command(name, help=summary, rich_help_panel=TITLE_OF[name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import a command by its name. A former name is replaced first."""
        if not ctx.resilient_parsing:
            args = present_words(args)
        if args[0] in (*TITLE_OF, *HIDDEN):
            return args[0], load(args[0]), args[1:]
        return super().resolve_command(ctx, args)


@functools.cache
def load(name: str) -> Any:
    """Import a command, after setting the environment variables that its libraries read."""
    from ablate.store.machine import set_default_environment  # not needed for `ablate --help`

    set_default_environment()
    module = import_module(f"ablate.cli.{name}")
    if hasattr(module, "app"):
        return typer.main.get_command(module.app)
    command_app = typer.Typer(rich_markup_mode="rich", add_completion=False)
    epilog = f"Example: [bold]{module.EXAMPLE}[/bold]"
    command_app.command(name, cls=Command, epilog=epilog)(with_groups(module.command))
    return typer.main.get_command(command_app)


app = typer.Typer(
    name="ablate",
    help="Train the variations of a Transformer that a study lists, and print a table like the "
    "paper's Table 3.",
    cls=Commands,
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


def run_command() -> int:
    """Run the command in `sys.argv`.

    Returns:
        The exit code.

    Raises:
        UsageError: the command, an option or an argument is wrong or missing.
        BrokenPipeError: the reader of standard output has ended.
    """
    try:
        # standalone_mode would print errors in several lines, with exit codes of click.
        code = app(sys.argv[1:] or ["--help"], prog_name="ablate", standalone_mode=False)
    except ClickException as error:
        raise usage_error(error) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click would exit with 1
            raise end.__context__ from None
        raise
    return code if isinstance(code, int) else 0
