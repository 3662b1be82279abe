"""The base of all settings: frozen, typed, nothing unknown, nothing coerced."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ablate.errors import did_you_mean
from ablate.formatting import ellipsis, setting_text


class Section(BaseModel):
    """A group of fields. Unknown names, wrong types, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def faults_of(error: ValidationError, section: type[Section] | None = None) -> list[tuple[str, str]]:
    """A validation error as (field, message) pairs; the field is "" for a rule over several fields.

    Args:
        error: what is wrong.
        section: whose fields are meant; their descriptions tell what is missing.
    """
    found = []
    for each in error.errors():
        name = str(each["loc"][0]) if each["loc"] else ""
        field = section.model_fields.get(name) if section else None
        found.append((name, _message(each, field.description if field else None)))
    return found


def _message(error: Any, meaning: str | None) -> str:
    """One line: what was given and what is allowed."""
    if error["type"] == "value_error":  # raised by a validator of ours: already a sentence
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return f"must be given ({meaning})" if meaning else "must be given"
    given = shown(error["input"])
    if error["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        near = did_you_mean(error["input"], names) if isinstance(error["input"], str) else ""
        return f"{given} is not allowed: must be {error['ctx']['expected'].replace(chr(39), '')}{near}"
    allowed = error["msg"].replace("Input should be", "must be").replace("Value error, ", "")
    return f"{given} is not allowed: {allowed}"


def shown(value: Any, limit: int = 60) -> str:
    """A value as a study writes it, cut where it is long."""
    if value is None or isinstance(value, bool):
        return setting_text(value, unset="null")
    return ellipsis(f'"{value}"' if isinstance(value, str) else repr(value), limit)
