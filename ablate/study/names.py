"""Names of studies, groups of rows and sizes. They become names of files and texts in tables."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from ablate.errors import Fault, Invalid
from ablate.study.typed import KEY, Located, Misplaced

_RESERVED = ("runs", "corpora")  # folders of the results root
_STUDY = r"^(?!.*\.\.)(?!(runs|corpora)$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def folded_name(name: str) -> str:
    """A key that is equal for names that some file systems do not distinguish: without upper case,
    and without spaces and dots at the end.
    """
    return name.rstrip(" .").casefold()


def _name(kind: str, pattern: str, allowed: str) -> Any:
    """The pydantic type of the names of groups or sizes. `base` is reserved for the row of base.

    Args:
        kind: kind of name, for messages.
        pattern: regular expression of a valid name.
        allowed: the rule in words, for messages.
    """

    def check(name: str) -> str:
        if not re.match(pattern, name) or folded_name(name) == "base" or name.endswith("\n"):
            raise Invalid(f'"{name[:60]}" is not a valid {kind}; allowed: {allowed}')
        return name

    schema = WithJsonSchema({"type": "string", "pattern": pattern})
    return Annotated[str, AfterValidator(check), schema]


GroupName = _name(
    "group name",
    r"^(?!base$)(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}$",
    'letters a-z, digits, spaces and . _ + - (at most 40 characters), but not "base"',
)
SizeName = _name(
    "name of a size",
    r"^(?!base$)[A-Za-z0-9][A-Za-z0-9._-]{0,19}$",
    'letters, digits, ".", "_" and "-" (at most 20 characters), but not "base"',
)


def _study_name(value: Any) -> str:
    if value is None:
        raise Misplaced(Fault("the study has no name", remedy='add "study: NAME"'))
    name = str(value)
    if folded_name(name) in _RESERVED:
        problem = "is reserved for a folder of the results root; choose another name"
    elif not re.match(_STUDY, name) or name.endswith("\n"):
        allowed = 'letters, digits, "-", "_" and "." (at most 64 characters)'
        problem = f"is not a valid study name; allowed: {allowed}"
    else:
        return name
    raise Misplaced(f'"{name[:60]}" {problem}')


StudyName = Annotated[
    str,
    BeforeValidator(_study_name),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": _STUDY}, {"type": "integer", "minimum": 0}]}
    ),
]


def refuse_similar(kind: str) -> BeforeValidator:
    """Refuse a name in a mapping that file systems and readers may confuse with an earlier name."""

    def check(value: Any) -> Any:
        if not isinstance(value, Located):
            return value
        seen: dict[str, tuple[str, int]] = {}
        faults = []
        for name, mark, _ in value.node.items():
            earlier, line = seen.setdefault(folded_name(name), (name, mark.line))
            if earlier != name:
                problem = (
                    f'{kind} "{name}" differs from "{earlier}" on line {line} only in upper case, '
                    f"or in spaces and dots at the end"
                )
                faults.append(Fault(problem, remedy="rename one of them", path=(name, KEY)))
        if faults:
            raise Misplaced(*faults)
        return value

    return BeforeValidator(check)
