"""The look that all figures share: palette, Matplotlib style, layout in inches, axes, fonts, file
formats, and SVG.

Figures are built with Matplotlib's `Figure` class and never with pyplot, which would keep them
alive in global state.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ft2font import FT2Font
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, Formatter, LogLocator, MaxNLocator, NullLocator

from ablate.formatting import printable
from ablate.store.files import write_bytes

# The palette of the report page in light mode; page.css has the colors of dark mode under the same
# names.
PALETTE = {
    "paper": "#ffffff", "ink": "#1a1a1f", "soft": "#5b5b66", "line": "#d9d9e0",
    "worse": "#b42318", "better": "#04703c", "base": "#6b6b76",
    "c0": "#0b6bcb", "c1": "#c2410c", "c2": "#047857", "c3": "#a21caf",
    "c4": "#854d0e", "c5": "#0e7490", "c6": "#be123c", "c7": "#4d7c0f",
}  # fmt: skip
SERIES = tuple(
    f"c{number}" for number in range(8)
)  # names of the colors for rows; distinct within one set of axes

COLUMN = 3.3  # inches: the width of one column in a paper of two columns
FONT, TITLE, SMALL = 8.0, 11.0, 7.0  # points
MARGIN, LINE = 0.25, 0.2  # inches
LEADING = 0.115  # inches from one line of small text to the next
DEFAULT_FONT = "DejaVu Sans"  # part of Matplotlib
LAST_RESORT = ("Last Resort", ".LastResort")  # fonts that show every character as an empty box
FORMATS = ("pdf", "png", "svg")
DPI = {"png": 200.0, "svg": 300.0, "pdf": 300.0}  # heat maps are pixels in SVG and PDF too
MAX_PIXELS = 60e6  # larger figures are written with fewer dots per inch
LEAST_TICKS = 3  # with a label on every axis
LOG_FROM = 8.0  # a ratio of largest to smallest value above which an axis is logarithmic


@contextmanager
def style(families: Sequence[str] = (DEFAULT_FONT,)) -> Iterator[None]:
    """Apply the shared style to everything drawn or written in the block, whatever a user's
    matplotlibrc says.
    """
    ink, soft = PALETTE["ink"], PALETTE["soft"]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams |= {
            "font.family": list(families),
            "font.size": FONT,
            "text.color": ink,
            "text.parse_math": False,
            "axes.linewidth": 0.6,
            "axes.edgecolor": soft,
            "axes.labelcolor": soft,
            "axes.labelsize": SMALL,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.unicode_minus": True,
            "xtick.color": soft,
            "ytick.color": soft,
            "xtick.labelsize": SMALL,
            "ytick.labelsize": SMALL,
            "xtick.major.size": 2.5,
            "ytick.major.size": 2.5,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.major.pad": 2.5,
            "ytick.major.pad": 2.5,
            "grid.color": PALETTE["line"],
            "grid.linewidth": 0.5,
            # Text stays text in SVG and PDF; names within an SVG file do not depend on the time.
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "svg.hashsalt": "ablate",
        }
        yield


def render(figure: Figure, kind: str) -> bytes:
    """Return a figure as a file of one of FORMATS. The same figure gives the same bytes."""
    width, height = figure.get_size_inches()
    undated = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}, "png": {}}
    out = io.BytesIO()
    with style():
        dpi = min(DPI[kind], math.sqrt(MAX_PIXELS / (width * height)))
        figure.savefig(out, format=kind, dpi=dpi, metadata=undated[kind])
    return out.getvalue()


def save(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure to each path, in the format of its suffix."""
    for path in paths:
        write_bytes(path, render(figure, path.suffix.lower()[1:]), durable=False)


class Sheet:
    """A figure of a given width and height in inches, filled by positions in inches from its top
    left corner.
    """

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width, height))

    def text(self, x: float, y: float, text: str, size: float = SMALL, **options: Any) -> Any:
        """Place text with its top left corner at (x, y), and return Matplotlib's `Text`."""
        return self.figure.text(
            x / self.width, 1 - y / self.height, text, size=size, va="top", **options
        )

    def title(self, y: float, text: str, size: float, x: float = MARGIN) -> None:
        """Place bold text in the default font."""
        self.text(x, y, text, size, weight="bold", family=DEFAULT_FONT)

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Add axes with their top left corner at (x, y)."""
        box = (
            x / self.width,
            1 - (y + height) / self.height,
            width / self.width,
            height / self.height,
        )
        return self.figure.add_axes(box)

    def finished(self) -> Figure:
        """Return the figure. Matplotlib creates ticks lazily; create them now, while the style is
        active.
        """
        for axes in self.figure.axes:
            axes.get_xticklabels(), axes.get_yticklabels()
        return self.figure


class ShortNumbers(Formatter):
    """Tick labels such as 0.5, 20, 3K and 1.5T, with as many digits as neighboring ticks need to
    differ.
    """

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Return one label per tick."""
        ticks = [float(value) for value in values]
        labels: list[str] = []
        for digits in range(1, 10):
            labels = [_short(value, digits) for value in ticks]
            if all(
                math.isclose(_value(text), tick, abs_tol=1e-12)
                for text, tick in zip(labels, ticks, strict=True)
            ):
                break
        return [text.replace("-", "\N{MINUS SIGN}") for text in labels]

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a single value."""
        return self.format_ticks([x])[0]


_UNITS = {"Z": 1e21, "E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "K": 1e3}


def _short(value: float, digits: int) -> str:
    for unit, size in _UNITS.items():
        if abs(value) >= size:
            return f"{value / size:.{max(digits, 3)}g}{unit}"
    return f"{value:.{max(digits, 3)}g}" if abs(value) >= 1 else f"{value:.{digits}g}"


def _value(label: str) -> float:
    unit = _UNITS.get(label[-1])
    return float(label[:-1]) * unit if unit else float(label)


def is_spread(values: Sequence[float]) -> bool:
    """Return whether values are positive and far enough apart for a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def set_range(
    axis: Axis, values: Sequence[float], *, log: bool, margin: float = 0.06, ticks: int = 5
) -> None:
    """Set an axis' scale, limits and ticks so that it holds all values with a margin, and at least
    three ticks.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`.
        values: finite, and above 0 if `log`.
        log: whether the scale is logarithmic.
        margin: of the range, on either side.
        ticks: the largest number of intervals between ticks.
    """
    low, high = min(values), max(values)
    name = axis.axis_name  # type: ignore[attr-defined]
    if log:
        factor = max((high / low) ** margin, 1.02)
        low, high = low / factor, high * factor
        axis.axes.set(**{f"{name}scale": "log"})
        axis.set_major_locator(FixedLocator(_log_ticks(low, high, ticks)))
        axis.set_minor_locator(NullLocator())
    else:
        largest = max(abs(low), abs(high))
        air = (
            high - low if high - low > 1e-9 * largest else largest
        ) * margin  # equal values, up to rounding
        air = air if air > 1e-100 else 1.0
        low, high = low - air, high + air
        axis.set_major_locator(FixedLocator(_linear_ticks(low, high, ticks)))
    axis.set_major_formatter(ShortNumbers())
    axis.axes.set(**{f"{name}lim": (low, high)})


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at least LEAST_TICKS round values within the limits; at most `most` intervals where
    these are enough.
    """
    for intervals in range(most, most + 8):
        ticks = MaxNLocator(intervals, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        inside = [float(tick) for tick in ticks if low <= tick <= high]
        if len(inside) >= LEAST_TICKS:
            break
    return inside


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at least LEAST_TICKS round values within the limits; powers of ten where there are
    enough.
    """
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 2.0, 3.0, 5.0)):
        inside = [
            tick
            for tick in LogLocator(subs=steps, numticks=99).tick_values(low, high)
            if low <= tick <= high
        ]
        if len(inside) >= LEAST_TICKS:
            # Every n-th of many, but never so few that the scale cannot be read.
            return inside[
                :: min(-(-len(inside) // (most + 1)), (len(inside) - 1) // (LEAST_TICKS - 1))
            ]
    return _linear_ticks(low, high, most)


def text_width(text: str, size: float) -> float:
    """Return the width of a text in inches; `size` in points."""
    width, _, _ = text_to_path.get_text_width_height_descent(
        text, FontProperties(size=size), ismath=False
    )
    return float(width) / 72


def wrap(text: str, size: float, width: float) -> list[str]:
    """Break text into lines of at most `width` inches: at spaces, else after punctuation, else
    anywhere.
    """
    lines = [""]
    for piece in _pieces(printable(text), size, width):
        if lines[-1] and text_width((lines[-1] + piece).rstrip(), size) > width:
            lines.append("")
        lines[-1] += piece
    return [line.strip() for line in lines]


def _pieces(text: str, size: float, width: float) -> Iterator[str]:
    """Cut text into the pieces that stay on one line: words, else parts up to = or a comma, else
    smaller ones.
    """
    for word in text.replace(" ", " \0").split("\0"):
        for pattern in _BREAKS:
            pieces = re.findall(pattern, word)
            if all(text_width(piece.rstrip(), size) <= width for piece in pieces):
                break
        for piece in pieces:
            yield from (
                [piece] if text_width(piece.rstrip(), size) <= width else _cut(piece, size, width)
            )


_BREAKS = (r".+", r"[^=,]*[=,]+ ?|[^=,]+", r"[^=,_.:/-]*[=,_.:/-]+ ?|[^=,_.:/-]+")


def _cut(piece: str, size: float, width: float) -> Iterator[str]:
    """Cut anywhere."""
    part = ""
    for character in piece:
        if part and text_width(part + character, size) > width:
            yield part
            part = ""
        part += character
    yield part


def fitted(text: str, size: float, width: float) -> str:
    """Return the text, shortened with an ellipsis if it is wider than `width` inches."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[: len(text) * 9 // 10]
    return f"{text}…"


def families_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """Return font families that cover the characters, the default first, and the characters that no
    font has.
    """
    families, missing = (
        [DEFAULT_FONT],
        characters - _covered(font_manager.findfont(DEFAULT_FONT), characters),
    )
    for entry in sorted(
        font_manager.fontManager.ttflist, key=lambda entry: (entry.name, entry.fname)
    ):
        if not missing or entry.name.startswith(LAST_RESORT) or not Path(entry.fname).exists():
            continue
        covered = _covered(entry.fname, missing)
        if covered and entry.name not in families:
            families.append(entry.name)
            missing = missing - covered
    return families, missing


def _covered(font: str, characters: set[str]) -> set[str]:
    """Return those of the characters that a font file has."""
    charmap = FT2Font(font).get_charmap()
    return {character for character in characters if ord(character) in charmap}


# Figures within the HTML page

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
_NAMES = {color: name for name, color in PALETTE.items()}
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"#([\w.-]+)")


def inline_svg(figure: Figure, name: str, description: str, titles: Mapping[str, str]) -> Markup:
    """Return a figure as an `<svg>` element.

    Elements with the id `row:LABEL` get the attribute `data-row="LABEL"` and the title of that row.
    Other ids are removed, unless the figure itself refers to them. Colors of the palette become
    variables of the style sheet.

    Args:
        figure: drawn in the shared style.
        name: distinguishes the ids of this figure from those of others on the page.
        description: of the figure, for screen readers.
        titles: by row label, the text that is shown while the pointer is over a mark.
    """
    out = io.BytesIO()
    with style():
        # matplotlib makes ids from this salt: the same figure has the same ids, and two figures of
        # a page have others.
        matplotlib.rcParams["svg.hashsalt"] = name
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(out.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style") or child.tag.endswith("}RDF"):
                parent.remove(child)
    referred = {
        id
        for element in root.iter()
        for value in element.attrib.values()
        for id in _REFERENCE.findall(value)
    }
    for element in root.iter():
        _mark(element, referred, titles)
        if "style" in element.attrib:
            element.set("style", _COLOR.sub(_variable, element.get("style", "")))
    # Without a size of its own, the figure takes the width of its column; viewBox keeps the
    # proportions.
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    # Else every element would be written with a prefix, which browsers do not read as SVG inside of
    # HTML.
    ElementTree.register_namespace("", SVG[1:-1])
    ElementTree.register_namespace("xlink", XLINK[1:-1])
    return Markup(
        ElementTree.tostring(root, encoding="unicode")
    )  # text and attributes are escaped by ElementTree


def _mark(element: ElementTree.Element, referred: set[str], titles: Mapping[str, str]) -> None:
    id = element.get("id", "")
    if id not in referred:
        element.attrib.pop("id", None)
    if id.startswith("row:"):
        row = id.removeprefix("row:")
        element.set("data-row", row)
        if row in titles:
            title = ElementTree.Element(f"{SVG}title")
            title.text = titles[row]
            element.insert(0, title)


def _variable(match: re.Match[str]) -> str:
    name = _NAMES.get(match[0])
    return f"var(--{name})" if name else match[0]
