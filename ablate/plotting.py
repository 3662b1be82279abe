"""The style that all figures share: palette, Matplotlib style, axes, fonts, file formats, and SVG.

Figures are built with Matplotlib's `Figure` class and never with pyplot, which would keep them
alive in global state.
"""

from __future__ import annotations

import io
import math
import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import (
    EngFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    NullLocator,
    ScalarFormatter,
)

# The palette of the report page in light mode; page.css has the colors of dark mode under the same
# names.
PALETTE = {
    "paper": "#ffffff", "ink": "#1a1a1f", "soft": "#5b5b66", "line": "#d9d9e0",
    "worse": "#b42318", "better": "#04703c", "base": "#6b6b76",
    "c0": "#0b6bcb", "c1": "#c2410c", "c2": "#047857", "c3": "#a21caf",
    "c4": "#854d0e", "c5": "#0e7490", "c6": "#be123c", "c7": "#4d7c0f",
}  # fmt: skip
# Names of the colors for rows; distinct within one set of axes.
SERIES = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")

COLUMN = 3.3  # inches: the width of one column in a paper of two columns
FONT, SMALL = 8.0, 7.0  # points
MARGIN = 0.06  # of a range, on either side of its values
DEFAULT_FONT = "DejaVu Sans"  # part of Matplotlib
LAST_RESORT = ("Last Resort", ".LastResort")  # fonts that show every character as an empty box
FORMATS = ("pdf", "png", "svg")
DPI = {"png": 200.0, "svg": 300.0, "pdf": 300.0}  # heat maps are pixels in SVG and PDF too
MAX_PIXELS = 60e6  # larger figures are written with fewer dots per inch
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
            "legend.frameon": False,
            "legend.fontsize": SMALL,
            "legend.handlelength": 1.6,
            "legend.borderpad": 0.0,
            "legend.borderaxespad": 0.0,
            "legend.labelspacing": 0.25,
            "legend.columnspacing": 1.0,
            "figure.constrained_layout.w_pad": 0.06,
            "figure.constrained_layout.h_pad": 0.06,
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


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure of a size in inches, and its axes by row."""
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def is_spread(values: Sequence[float]) -> bool:
    """Return whether values are positive and far enough apart for a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def set_range(axis: Axis, values: Sequence[float], *, log: bool, amounts: bool = False) -> None:
    """Set an axis' scale, limits and ticks so that it holds all values with a margin, and at least
    three ticks.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`.
        values: finite, and above 0 if `log`.
        log: whether the scale is logarithmic.
        amounts: whether ticks have the prefixes of units, as on a logarithmic axis: 20k, 1.5T.
    """
    name = axis.axis_name  # type: ignore[attr-defined]
    low, high = min(values), max(values)
    locator: Locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3)
    if log:
        decades = math.log10(high / low)
        factor = 10 ** max(MARGIN * decades, 0.01)
        low, high = low / factor, high * factor
        axis.axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(NullLocator())
        if decades >= math.log10(LOG_FROM):
            subs = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))[bisect((2, 4), decades)]
            locator = LogLocator(subs=subs, numticks=6)
    else:
        air, largest = MARGIN * (high - low), max(abs(low), abs(high))
        if air < 1e-9 * largest:  # equal values, up to rounding
            air = MARGIN * largest
        air = max(air, 1e-9)
        low, high = low - air, high + air
    axis.set_major_locator(locator)
    if amounts or log:
        axis.set_major_formatter(EngFormatter(sep=""))
    else:
        in_full = ScalarFormatter(useOffset=False)
        in_full.set_scientific(False)
        axis.set_major_formatter(in_full)
    axis.axes.set(**{f"{name}lim": (low, high)})


def families_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """Return font families that cover the characters, the default first, and the characters that no
    font has.
    """
    families = [DEFAULT_FONT]
    missing = characters - _covered(font_manager.findfont(DEFAULT_FONT), characters)
    for entry in sorted(font_manager.fontManager.ttflist, key=attrgetter("name", "fname")):
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
    referred = set[str]()
    for element in root.iter():
        referred.update(*map(_REFERENCE.findall, element.attrib.values()))
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
    # ElementTree escapes text and attributes.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


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
    if match[0] in _NAMES:
        return f"var(--{_NAMES[match[0]]})"
    return match[0]
