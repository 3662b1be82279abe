"""Arguments, options and flags of commands, as Typer takes them."""

from __future__ import annotations

from typing import Any

import typer


def option(help: str, metavar: str | None = None, **facts: Any) -> Any:
    """An option that has a value, and the name of its parameter."""
    return typer.Option(help=help, metavar=metavar, **facts)


def flag(name: str, help: str, **facts: Any) -> Any:
    """An option without a value. It has a name here, or Typer would add its negation."""
    return typer.Option(name, help=help, **facts)


def argument(metavar: str, help: str, show_default: bool | str = False, **facts: Any) -> Any:
    """An argument of a command, as Typer takes it."""
    return typer.Argument(metavar=metavar, help=help, show_default=show_default, **facts)
