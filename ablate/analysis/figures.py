"""Figures as files: the kinds there are, and what it takes to draw them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.errors import UsageError, listed
from ablate.store.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
DPI = {"png": 150.0, "svg": 300.0}  # maps are images in an SVG too, and some viewers blur a pixel's edge
MOST_PIXELS = 60e6  # a larger figure gets fewer an inch


def refuse_undrawable(paths: Sequence[Path]) -> None:
    """Refuse, before any work, files that could not be written after it.

    Raises:
        UsageError: a file is neither PNG nor SVG.
    """
    for path in paths:
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"--out {path}: must end in {listed(SUFFIXES)}")
        if path.is_dir():
            raise UsageError(f"--out {path}: is a folder")


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure to each of these files, as its suffix says; the same figure gives the same bytes."""
    for path in paths:
        write_bytes(path, rendered(figure, path.suffix.lower()[1:]), durable=False)


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as a file of this kind, `png` or `svg`."""
    from ablate.analysis.sheet import style

    width, height = figure.get_size_inches()
    out = io.BytesIO()
    dpi = min(DPI[kind], (MOST_PIXELS / (width * height)) ** 0.5)
    with style():
        figure.savefig(out, format=kind, dpi=dpi, metadata={"Date": None} if kind == "svg" else {})
    return out.getvalue()
