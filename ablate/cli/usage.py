"""Classes of commands that refuse a wrong command line with a fault: the option, the value, the
allowed values, the nearest match.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from ablate.errors import Fault, UsageError, listed, not_a_choice, unknown_name, wrong_option

# Recent versions of typer contain a copy of click, and export its base class of exceptions.
ClickException: type[Exception]
if hasattr(typer, "TyperException"):
    ClickException = typer.TyperException
else:
    import click

    ClickException = click.ClickException


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
        """Parse the arguments and options of the command; errors have its context."""
        ctx.allow_extra_args = True  # refused below, with a better message than click's
        if not ctx.resilient_parsing:
            _check_set(args)
            _refuse_repeated(_options(ctx), args)
            _refuse_empty(ctx, args)
        try:
            further = super().parse_args(ctx, args)
        except ClickException as error:
            if getattr(error, "ctx", None) is None:  # as for an option without its value
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        if not ctx.resilient_parsing:
            _refuse_study_after_others(ctx, further)
        if further and not ctx.resilient_parsing:
            remedy = _see_help(ctx)
            if "--text" in _long_options(ctx):
                remedy = "--text takes a text"
            elif "--rows" in _long_options(ctx):
                remedy = "--rows selects rows"
            problem = "is not an argument of this command"
            fault = Fault(problem, given=f'"{further[0]}"', remedy=remedy)
            raise wrong_option(ctx.command_path, fault)
        return further


def _refuse_study_after_others(ctx: Any, further: Sequence[str]) -> None:
    """Refuse arguments of which another one than the first is a study, as in `compare base A
    study.yaml`. The remedy has them in their order.

    Args:
        ctx: the context, with the values of the arguments.
        further: words after the last argument.
    """
    parameters = [one for one in ctx.command.params if one.param_type_name == "argument"]
    if not parameters or "STUDY" not in str(parameters[0].metavar):
        return
    values = [str(ctx.params[one.name]) for one in parameters if ctx.params.get(one.name)]
    values += further
    is_study = [value.endswith((".yaml", ".yml")) for value in values]
    if is_study.count(True) != 1 or is_study[0] or Path(values[0]).is_file():
        return
    first = values[0]
    study = values.pop(is_study.index(True))
    if further:  # the command has no argument for rows
        has_rows = "--rows" in _long_options(ctx)
        values = [f"--rows={value}" for value in values] if has_rows else []
    words = " ".join(map(shlex.quote, (study, *values)))
    remedy = f"the study is the first argument: `{ctx.command_path} {words}`"
    fault = Fault("is not a study", given=f'"{first}"', remedy=remedy)
    raise wrong_option(str(parameters[0].metavar), fault)


def _check_set(args: Sequence[str]) -> None:
    """Refuse a value after `--set name`, which would be taken for another argument."""
    for option, name, value in zip(args, args[1:], args[2:], strict=False):
        is_value = not value.startswith("-") and not value.endswith((".yaml", ".yml"))
        if option == "--set" and "=" not in name and is_value:
            fault = Fault("has no value", given=f'"{name}"', remedy=f"write --set {name}={value}")
            raise wrong_option("--set", fault)


def _refuse_repeated(options: Mapping[str, Any], args: Sequence[str]) -> None:
    """Refuse an option with one value that is given twice: only the last would count."""
    names = [arg.partition("=")[0] for arg in args]
    for name, parameter in options.items():
        if names.count(name) > 1 and not (parameter.multiple or parameter.is_flag):
            raise wrong_option(name, Fault("is given twice", remedy="give it once"))


def _refuse_empty(ctx: Any, args: Sequence[str]) -> None:
    """Refuse an empty path, as of an unset variable of a script: it would be the current folder."""
    for arg, following in pairwise((*args, "-")):  # the last argument is followed by no value
        option, equals, attached = arg.partition("=")
        takes_path = getattr(_options(ctx).get(option), "metavar", "") in ("DIR", "FILE")
        if takes_path and not (attached if equals else following):
            raise wrong_option(option, Fault("has an empty path", remedy="give a path"))


def _without_type(parameter: Any) -> Any:
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: ""
    if getattr(parameter, "is_flag", False) and parameter.metavar is None:
        parameter.metavar = ""
    return parameter


# Words of other programs -> the command.
SYNONYMS = {
    "train": "run",
    "start": "run",
    "resume": "run",
    "results": "table",
    "show": "table",
    "translate": "predict",
    "generate": "predict",
}


class CommandGroup(TyperGroup):
    """A group of commands that refuses a missing or unknown command in one line."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group; flags show no type."""
        return [_without_type(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of the group. Without a command, list the commands to choose from."""
        # Not for completion, which parses unfinished lines.
        if not args and not ctx.resilient_parsing:
            names = tuple(self.list_commands(ctx))
            allowed, remedy = listed(names), _see_help(ctx)
            fault = Fault("a command is missing", allowed=allowed, remedy=remedy, choices=names)
            raise wrong_option(ctx.command_path, fault)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            names = self.list_commands(ctx)
            fault = unknown_name("command", name, names)
            if len(args) > 1 and args[1] in names:  # the study stands before the command
                remedy = f"write {ctx.command_path} {args[1]} {shlex.quote(name)}"
                fault = Fault("is not a command", given=f'"{name}"', remedy=remedy)
            elif name in SYNONYMS and SYNONYMS[name] in names:
                fault = replace(fault, meant=SYNONYMS[name])
            raise wrong_option(ctx.command_path, fault)
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
    """Turn an exception of click into a fault of an option, an argument or the command."""
    ctx = getattr(error, "ctx", None)
    # Recognized by their attributes, because typer does not export the classes.
    if hasattr(error, "possibilities"):  # click's NoSuchOption
        options = _long_options(ctx)
        return wrong_option(_path(ctx), unknown_name("option", error.option_name, options))
    if hasattr(error, "option_name"):  # click's BadOptionUsage
        flags = [name for name in _options(ctx) if getattr(_options(ctx)[name], "is_flag", False)]
        problem = "takes no value" if error.option_name in flags else "needs a value"
        return wrong_option(error.option_name, Fault(problem, remedy=_see_help(ctx)))
    if isinstance(error, typer.BadParameter) and error.param is not None:
        return wrong_option(_name(error.param), _parameter_fault(error))
    message = error.message.rstrip(".")
    fault = Fault(message[:1].lower() + message[1:], remedy=_see_help(ctx))
    return wrong_option(_path(ctx), fault)


def _path(ctx: Any) -> str:
    """The words of a command, such as `ablate data show`."""
    return "ablate" if ctx is None else str(ctx.command_path)


def _see_help(ctx: Any) -> str:
    return f"see `{_path(ctx)} --help`"


def _name(parameter: Any) -> str:
    """The name of an option, such as `--format`, or of an argument, such as `STUDY`."""
    return str(parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0])


def _parameter_fault(error: typer.BadParameter) -> Fault:
    """The fault of a parameter: it is missing, or its value, which is in pydantic's exception, is
    not allowed.
    """
    # Imported here, because help does not need the classes of all settings.
    from pydantic import ValidationError

    from ablate.fields import value_faults

    choices = tuple(_choices(error))
    if hasattr(error, "param_type"):  # click's MissingParameter
        allowed, remedy = listed(choices) if choices else "", _see_help(error.ctx)
        return Fault("is missing", allowed=allowed, remedy=remedy, choices=choices)
    if not isinstance(error.__cause__, ValidationError):
        return Fault(error.message.rstrip("."), remedy=_see_help(error.ctx))
    details = error.__cause__.errors()[0]
    if choices and isinstance(details["input"], str):
        return not_a_choice(details["input"], choices)
    (fault, *_) = value_faults(details)
    return fault


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


def _options(ctx: Any) -> dict[str, Any]:
    """The options of a command by each of their names."""
    parameters = [] if ctx is None else ctx.command.get_params(ctx)
    return {name: parameter for parameter in parameters for name in parameter.opts}


def _long_options(ctx: Any) -> list[str]:
    return [name for name in _options(ctx) if name.startswith("--")]
