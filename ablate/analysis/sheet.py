"""A figure whose sizes are in inches, counted from its top left corner, and the fonts that its texts need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import text_to_path

FONT, TITLE, SMALL = 8.0, 11.0, 7.0  # points
MARGIN, LINE = 0.25, 0.2
DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib
LAST_RESORT = ("Last Resort", ".LastResort")  # fonts that have every character, as an empty box


class Sheet:
    """A figure of this width and height."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width, height))

    def title(self, y: float, text: str, size: float) -> None:
        """Bold text at the left margin, in letters that every font has."""
        self.text(MARGIN, y, text, size, weight="bold", family=DEFAULT_FONT)

    def text(self, x: float, y: float, text: str, size: float, **options: Any) -> None:
        """Text whose top left corner is here; a dollar sign is one."""
        self.figure.text(x / self.width, 1 - y / self.height, text, size=size, va="top", parse_math=False, **options)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes whose top left corner is here."""
        place = (x / self.width, 1 - (y + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place)

    def finished(self) -> Figure:
        """The figure, with its ticks, which are made when they are first asked for, in the style that holds now."""
        for axes in self.figure.axes:
            axes.get_xticklabels(), axes.get_yticklabels()
        return self.figure

    def colour_bar(self, y: float, norm: Normalize, colours: str) -> None:
        """What colours mean, at the left margin, 1.6 inches wide."""
        bar = self.axes(MARGIN, y, 1.6, 0.1)
        self.figure.colorbar(ScalarMappable(norm, colours), cax=bar, orientation="horizontal")
        bar.tick_params(labelsize=SMALL, length=2, pad=1)


@contextmanager
def style(families: Sequence[str] = (DEFAULT_FONT,)) -> Iterator[None]:
    """Settings of what is drawn or written meanwhile, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams["font.family"] = list(families)
        matplotlib.rcParams["axes.linewidth"] = 0.5
        matplotlib.rcParams["svg.hashsalt"] = "ablate"  # names inside the file do not differ from time to time
        yield


def families_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """The default font, installed ones that have what it has not, and the characters that none of them has."""
    families, missing = [DEFAULT_FONT], characters - _held(font_manager.findfont(DEFAULT_FONT), characters)
    for entry in sorted(font_manager.fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)):
        if not missing or entry.name.startswith(LAST_RESORT) or not Path(entry.fname).exists():
            continue
        found = _held(entry.fname, missing)
        if found and entry.name not in families:
            families.append(entry.name)
            missing = missing - found
    return families, missing


def inches(text: str, size: float) -> float:
    """How wide a text will be."""
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width) / 72


def cut(text: str, size: float, width: float) -> str:
    """The text, cut where it would be wider than that."""
    if inches(text, size) <= width:
        return text
    while text and inches(f"{text}…", size) > width:
        text = text[: len(text) * 9 // 10]
    return f"{text}…"


def _held(font: str, characters: set[str]) -> set[str]:
    """Those of the characters that a font file has."""
    charmap = FT2Font(font).get_charmap()
    return {character for character in characters if ord(character) in charmap}
