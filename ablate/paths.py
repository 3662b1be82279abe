"""Paths as users write them: in studies, options and the environment."""

from __future__ import annotations

from pathlib import Path


def home_path(name: str) -> Path:
    """The path of a name that may begin with `~` or `~USER`.

    Raises:
        ValueError: the home folder is not known, or the name holds a NUL character.
    """
    if "\0" in name:
        raise ValueError(f"{name}: a path has no NUL character")
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ValueError(f"{name}: has no known home folder; write the path without ~") from None
