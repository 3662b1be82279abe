"""Wrong usage in one line: what was given, what is allowed, the nearest match."""

from __future__ import annotations

import re
from typing import Any

import typer

from ablate.errors import UsageError, did_you_mean, listed

# typer brings its own copy of click, or uses click, as its version has it: these are the classes of either.
Fault: type[Exception] = typer.BadParameter.__mro__[2]  # ClickException
_FOR_HELP = "`{} --help` tells more"


def one_line(fault: Any) -> UsageError:
    """What click found wrong, as one line of ours."""
    context = getattr(fault, "ctx", None)
    command = context.command_path if context is not None else "ablate"
    return UsageError(f"{command}: {_told(fault, context)}; {_FOR_HELP.format(command)}")


def _told(fault: Any, context: Any) -> str:
    kind, message = type(fault).__name__, str(fault.format_message())
    option = getattr(fault, "option_name", None)
    if kind == "NoSuchOption" and option:
        near = did_you_mean(option, _options(context)) or f"; there are {listed(_options(context))}"
        return f'no such option "{_shown(option)}"{near}'
    if message == "Missing command.":
        return f"no command is given: {listed(list(context.command.commands))}"
    given = re.search(r"No such command '(.*?)'\.", message, re.DOTALL)
    if given:
        verbs = list(context.command.commands)
        return f'no such command "{_shown(given[1])}"{did_you_mean(given[1], verbs) or f"; there are {listed(verbs)}"}'
    allowed = re.search(r"'?(.*?)'? is not one of (.*?)\.$", fault.message if hasattr(fault, "message") else "")
    if allowed:
        choices = re.findall(r"'([^']*)'", allowed[2])
        value = allowed[1].removeprefix("Value error, ").strip("'")
        name = re.search(r"for '?(-{1,2}[\w-]+)", message)
        return (
            f'{name[1] if name else "value"}: "{_shown(value)}" is not {listed(choices)}{did_you_mean(value, choices)}'
        )
    return _plainly(_shown(message).rstrip("."))


def _plainly(message: str) -> str:
    """Click's own words for the rest, as other messages of ours are: what, then the matter."""
    what, _, matter = message.partition(": ")
    if what.startswith("Invalid value for "):
        what = what.removeprefix("Invalid value for ")
        matter = re.sub(r"^[Dd]ir\w* (['\"])(.*)\1 is a file\.?$", r'"\2" is a file, and must be a folder', matter)
        return f"{what.strip(chr(39))}: {matter.replace('Input should', 'should').partition(', unable')[0]}"
    missing = re.fullmatch(r"Missing (?:argument|option) '(.*?)'(?:\. Choose from:? (.*))?", message)
    if missing:
        choices = f": {listed(missing[2].split(', '))}" if missing[2] else ""
        return f"{missing[1]} is missing{choices}"
    extra = re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message)
    return f'too much is given: "{extra[1]}"' if extra else message[:1].lower() + message[1:]


def _options(context: Any) -> list[str]:
    """The long options of a command."""
    if context is None:
        return []
    parameters = context.command.get_params(context)
    return [name for parameter in parameters for name in parameter.opts if name.startswith("--")]


def _shown(text: str) -> str:
    """On one line, with nothing in it that could break the line."""
    line = " ".join(text.split())[:300]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
