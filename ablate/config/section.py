"""The base of all settings: frozen, typed, nothing unknown, nothing coerced."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Section(BaseModel):
    """A group of fields. Unknown names, wrong types, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def faults_of(error: ValidationError) -> list[tuple[str, str]]:
    """A validation error as (field, message) pairs; the field is "" for a rule over several fields."""
    return [(str(e["loc"][0]) if e["loc"] else "", _message(e)) for e in error.errors()]


def _message(error: Any) -> str:
    """One line: what was given and what is allowed."""
    if error["type"] == "value_error":  # raised by a validator of ours: already a sentence
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return "must be given"
    allowed = error["msg"].replace("Input should be", "must be").replace("Value error, ", "")
    return f"{_shown(error['input'])} is not allowed: {allowed}"


def _shown(value: Any, limit: int = 60) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
