"""Classes of commands that print usage errors in one line: the error, the allowed values, the
nearest match.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ablate.errors import Fault, UsageError, did_you_mean, listed
from ablate.formatting import ellipsis, printable

# Recent versions of typer contain a copy of click, and export its base class of exceptions.
ClickException: type[Exception]
if hasattr(typer, "TyperException"):
    ClickException = typer.TyperException
else:
    import click

    ClickException = click.ClickException

MAX_LENGTH = 300  # characters of a message, which may quote arguments of any length


class Command(TyperCommand):
    """A command whose help shows no types of arguments, because their names say the type, and no
    types of flags, because flags have no value.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the arguments and options of the command."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, without braces around required arguments."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments and options of the command; errors name the command."""
        ctx.allow_extra_args = True  # refused below, with a better message than click's
        try:
            further = super().parse_args(ctx, args)
        except ClickException as error:
            if getattr(error, "ctx", None) is None:  # as for an option without its value
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        if further and not ctx.resilient_parsing:
            raise _one_line_error(ctx, _unexpected(ctx, further))
        return further


def _without_type(parameter: Any) -> Any:
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: ""
    if getattr(parameter, "is_flag", False) and parameter.metavar is None:
        parameter.metavar = ""
    return parameter


class CommandGroup(TyperGroup):
    """A group of commands that refuses a missing or unknown command in one line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group; flags show no type."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the group. Without a command, list the commands to choose from."""
        # Not for completion, which parses unfinished lines.
        if not args and not ctx.resilient_parsing:
            raise _one_line_error(ctx, f"choose a command: {listed(self.list_commands(ctx))}")
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            names = self.list_commands(ctx)
            near = did_you_mean(name, names) or f"; choose {listed(names)}"
            raise _one_line_error(ctx, f'no such command "{name}"{near}')
        return super().resolve_command(ctx, args)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command in which each parameter that is a dataclass of options is replaced by the fields of
    the dataclass, because Typer takes only single options.
    """
    groups: dict[str, Any] = {}
    flat: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        options, kinds = [parameter], hints
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            options = list(inspect.signature(hints[name]).parameters.values())
            kinds = get_type_hints(hints[name], include_extras=True)
        for option in options:
            kind = kinds[option.name]
            flat.append(option.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    del called.__wrapped__
    return called


def usage_error(error: Any) -> UsageError:
    """Turn an exception of click into a message of one line."""
    ctx = getattr(error, "ctx", None)
    # Recognized by an attribute, because typer does not export the class.
    if hasattr(error, "possibilities"):  # click's NoSuchOption
        option, options = getattr(error, "option_name", ""), _long_options(ctx)
        near = did_you_mean(option, options) or f"; choose {listed(options)}"
        return _one_line_error(ctx, f'no such option "{option}"{near}')
    if isinstance(error, typer.BadParameter) and error.param is not None:
        if hasattr(error, "param_type"):  # click's MissingParameter
            missing, choices = f"{_name(error.param)} is missing", _choices(error)
            if choices:
                missing += f": {listed(choices)}"
            return _one_line_error(ctx, missing)
        return _one_line_error(ctx, f"{_name(error.param)}: {_wrong_value(error)}")
    message = error.message.rstrip(".")
    return _one_line_error(ctx, message[:1].lower() + message[1:])


def _unexpected(ctx: Any, arguments: Sequence[str]) -> str:
    """The message for surplus arguments, which may be meant as a text."""
    noun = "argument" if len(arguments) == 1 else "arguments"
    message = f"got unexpected extra {noun} ({' '.join(arguments)})"
    for option in _long_options(ctx):
        if option == "--text":
            message += f"; {option} takes a text"
    return message


def _one_line_error(ctx: Any, message: str) -> UsageError:
    command = "ablate" if ctx is None else ctx.command_path
    problem = ellipsis(printable(message), MAX_LENGTH)
    return UsageError(Fault(f"{command}: {problem}", remedy=f"see `{command} --help`"))


def _name(parameter: Any) -> str:
    """The name of an option, such as `--format`, or of an argument, such as `STUDY`."""
    return str(parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0])


def _wrong_value(error: typer.BadParameter) -> str:
    """The message for a wrong value, with the value from pydantic's exception and what is
    allowed.
    """
    # Imported here, because help does not need the classes of all settings.
    from pydantic import ValidationError

    from ablate.fields import value_faults

    if not isinstance(error.__cause__, ValidationError):
        return error.message.rstrip(".")
    value, choices = error.__cause__.errors()[0]["input"], _choices(error)
    if choices and isinstance(value, str):
        return f'"{value}" is not {listed(choices)}{did_you_mean(value, choices)}'
    (fault, *_) = value_faults(error.__cause__.errors()[0])
    return fault.sentence


def _choices(error: typer.BadParameter) -> list[str]:
    """The allowed values of a parameter that is a Literal or an Enum; empty for other types."""
    assert error.ctx is not None
    assert error.param is not None
    types = [typing.get_type_hints(error.ctx.command.callback)[error.param.name]]
    while types:
        kind = types.pop()
        if isinstance(kind, enum.EnumMeta):
            members: list[enum.Enum] = list(kind)
            return [str(member.value) for member in members]
        if typing.get_origin(kind) is typing.Literal:
            return list(typing.get_args(kind))
        types += typing.get_args(kind)  # of list[Kind] | None
    return []


def _long_options(ctx: Any) -> list[str]:
    parameters = [] if ctx is None else ctx.command.get_params(ctx)
    return [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
