"""Declare the arguments, options and flags of commands."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, metavar: str | None = None, **facts: Any) -> Any:
    """An option with a value; its name is that of the parameter."""
    return typer.Option(help=help, metavar=metavar, **facts)


def flag(name: str, help: str, **facts: Any) -> Any:
    """An option without a value. It has a name, because Typer would otherwise add `--no-NAME`."""
    return typer.Option(name, help=help, **facts)


def argument(metavar: str, help: str, show_default: bool | str = False, **facts: Any) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=show_default, **facts)
