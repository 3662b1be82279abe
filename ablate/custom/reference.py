"""References to users' classes in a study: `mypackage.mymodule:MyAttention`.

A resolved configuration has the reference with the hash of the source, so that an edit of the class
makes a new run: `mypackage.mymodule:MyAttention@3f2a91c0d7e4`.

A class of an installed package is named by its import path, with arguments if needed:
`torch.optim.NAdam(momentum_decay=0.01)`. Run ids depend on this text, and not on the source.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from ablate.errors import Invalid

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
REFERENCE_PATTERN = rf"({_WORD}(?:\.{_WORD})*):({_WORD})(?:@([0-9a-f]{{12}}))?"
_REFERENCE = re.compile(REFERENCE_PATTERN)
IMPORT_PATTERN = rf"({_WORD}(?:\.{_WORD})*)\.({_WORD})(\(.*\))?"
_IMPORT = re.compile(IMPORT_PATTERN)
PREFIX = "ablate_plugin_"  # prefix of the names of loaded modules


@dataclass(frozen=True)
class Reference:
    """A class in a module.

    digest: first 12 hexadecimal digits of the hash of the module's source; None until it is pinned.
    """

    module: str
    name: str
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.written}@{self.digest}" if self.digest else self.written

    @property
    def written(self) -> str:
        """The reference as a study writes it: `module:Class`."""
        return f"{self.module}:{self.name}"

    @property
    def file(self) -> str:
        """Name of the copy of the source in a run's folder."""
        assert self.digest is not None
        return source_file(self.digest)

    @property
    def written_file(self) -> str:
        """Name of the module's file, for messages: `package/module.py`."""
        return f"{self.module.replace('.', '/')}.py"


def source_file(digest: str) -> str:
    """Name of the copy of a source in a run's folder, by its hash."""
    return f"{digest}.py"


def parse_reference(value: object) -> Reference | None:
    """Parse `module:Class` or `module:Class@digest`; None for any other value."""
    if isinstance(value, str) and (match := _REFERENCE.fullmatch(value)):
        return Reference(match[1], match[2], match[3])
    return None


@dataclass(frozen=True)
class ImportPath:
    """A class of an installed package, and its keyword arguments in the study."""

    module: str
    name: str
    arguments: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        if not self.arguments:
            return self.path
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.path}({arguments})"

    @property
    def path(self) -> str:
        """The class as Python names it: `package.module.Class`."""
        return f"{self.module}.{self.name}"


def parse_import(value: object) -> ImportPath | None:
    """Parse `package.module.Class` or `package.module.Class(name=value)`; None for any other value.

    Raises:
        Invalid: the arguments are not names with numbers, strings, booleans or lists of them.
    """
    if not isinstance(value, str) or not (match := _IMPORT.fullmatch(value)):
        return None
    arguments = {}
    try:
        call = ast.parse(f"f{match[3] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        for keyword in call.keywords:
            arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
    except (ValueError, SyntaxError):
        needs = f"write them as {match[1]}.{match[2]}(name=1.0, other=True)"
        raise Invalid(f"{match[3]} are no arguments: {needs}") from None
    return ImportPath(match[1], match[2], tuple(sorted(arguments.items())))


def is_custom(value: object) -> bool:
    """Whether a value refers to a user's class or to a class of an installed package."""
    return parse_reference(value) is not None or parse_import(value) is not None
