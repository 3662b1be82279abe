"""docs/commands.md, made from the commands themselves: `python -m tests.commands` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ablate.cli.app import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
HEAD = """\
# Commands

Made from the commands' own help by `python -m tests.commands`; a test holds it against them. `ablate COMMAND --help`
says the same in a terminal. Exit codes: 0 all that was asked for is done; 1 a run failed or diverged; 2 bad usage,
study or data, one line a fault; 130 interrupted, saved, and resumable by the same command.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(name, command) for name, command in commands().items())


def commands() -> dict[str, Any]:
    """Every command by its name, in the order in which people meet them."""
    return dict(_leaves("", typer.main.get_command(app)))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """A command, or those that a group of them has."""
    for part, below in getattr(command, "commands", {}).items():
        yield from _leaves(f"{name} {part}".strip(), below)
    if not hasattr(command, "commands"):
        yield name, command


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([f"ablate {name}", *(_argument(p) for p in arguments)])
    lines = [f"\n## {name}\n", f"`{usage}`\n", f"{command.help.strip()}\n"]
    if arguments or options:
        lines += ["| | default | |", "| --- | --- | --- |"]
        lines += [f"| `{p.metavar}` | {_default(p)} | {p.help} |" for p in arguments]
        lines += [f"| `{_option(p, command)}` | {_default(p)} | {p.help} |" for p in options]
    return "\n".join(lines).rstrip() + "\n"


def _argument(argument: Any) -> str:
    return argument.metavar if argument.required else f"[{argument.metavar}]"


def _option(option: Any, command: Any) -> str:
    """As the help has it: `--format rich|json`."""
    written, _ = option.get_help_record(typer.Context(command))
    return re.sub(r"[<>\[\]]|\blist(?=\[)|(?i: range)", "", written).strip().replace("|", "\\|")


def _default(parameter: Any) -> str:
    value = parameter.default() if callable(parameter.default) else parameter.default
    value = getattr(value, "value", value)
    if parameter.required:
        return "required"
    shown = "" if value in (None, False, [], ()) else f"`{value}`"
    variable = f"`{parameter.envvar}`" if getattr(parameter, "envvar", None) else ""
    return " or ".join(filter(None, (variable, shown)))


if __name__ == "__main__":
    PAGE.write_text(page())
