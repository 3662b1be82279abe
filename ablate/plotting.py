"""The common style of all figures: palette, Matplotlib style, axes, fonts, file formats, SVG.

Figures are built with the class `Figure` of Matplotlib. pyplot is not used, because it keeps
figures in global state.
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
from matplotlib.backends.backend_svg import FigureCanvasSVG
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

# The palette of the report page in light mode. page.css has dark colors with the same names.
PALETTE = {
    "paper": "#ffffff", "ink": "#1a1a1f", "soft": "#5b5b66", "line": "#d9d9e0",
    "worse": "#b42318", "better": "#04703c", "base": "#6b6b76",
    "c0": "#0b6bcb", "c1": "#c2410c", "c2": "#047857", "c3": "#a21caf",
    "c4": "#854d0e", "c5": "#0e7490", "c6": "#be123c", "c7": "#4d7c0f",
}  # fmt: skip
# Names of the colors of rows.
SERIES = ("c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7")

COLUMN = 3.3  # inches: the width of one column in a paper of two columns
FONT = 8.0  # points
SMALL = 7.0  # points
MARGIN = 0.06  # fraction of the range of values, on each side
DEFAULT_FONT = "DejaVu Sans"  # part of Matplotlib
LAST_RESORT = ("Last Resort", ".LastResort")  # fonts that draw an empty box for each character
FORMATS = ("pdf", "png", "svg")
DPI = {"png": 200.0, "svg": 300.0, "pdf": 300.0}  # heat maps are pixels in SVG and PDF, too
MAX_PIXELS = 60e6  # larger figures have fewer dots per inch
LOG_TICKS_FROM = 0.4  # decades; over less, numbers at equal distances are ticks of a log axis, too
LOG_RATIO = 8.0  # an axis is logarithmic if largest / smallest value is above this


@contextmanager
def style(families: Sequence[str] = (DEFAULT_FONT,)) -> Iterator[None]:
    """Use the common style for figures that the block draws and saves, whatever the user's
    matplotlibrc has.
    """
    ink = PALETTE["ink"]
    soft = PALETTE["soft"]
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
            # Text stays text in SVG and PDF. Ids in an SVG file do not depend on the time.
            "svg.fonttype": "none",
            "pdf.fonttype": 42,
            "svg.hashsalt": "ablate",
        }
        yield


def render(figure: Figure, format: str) -> bytes:
    """The bytes of a figure in one of FORMATS. Equal figures give equal bytes."""
    width, height = figure.get_size_inches()
    metadata = {"pdf": {"CreationDate": None, "ModDate": None}, "svg": {"Date": None}, "png": {}}
    out = io.BytesIO()
    with style():
        dpi = min(DPI[format], math.sqrt(MAX_PIXELS / (width * height)))
        figure.savefig(out, format=format, dpi=dpi, metadata=metadata[format])
    return out.getvalue()


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1
) -> tuple[Figure, list[Axes]]:
    """A figure with a grid of axes, and the axes in the order of rows. Sizes are in inches."""
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def is_spread(values: Sequence[float]) -> bool:
    """Whether values need a logarithmic axis: they are positive and spread widely."""
    return min(values) > 0 and max(values) / min(values) > LOG_RATIO


def set_range(axis: Axis, values: Sequence[float], *, log: bool, amounts: bool = False) -> None:
    """Set the scale, limits and ticks of an axis: it includes all values with a margin, and has at
    least three ticks.

    Args:
        axis: `axes.xaxis` or `axes.yaxis`.
        values: finite values, above 0 if `log`.
        log: whether the scale is logarithmic.
        amounts: whether tick labels have prefixes, such as 20k and 1.5T, on a linear axis. On a
            logarithmic axis they always have.
    """
    name = axis.axis_name  # type: ignore[attr-defined]
    low = min(values)
    high = max(values)
    locator = _linear_ticks()
    if log:
        decades = math.log10(high / low)
        factor = 10 ** max(MARGIN * decades, 0.01)
        low /= factor
        high *= factor
        axis.axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(NullLocator())
        locator = _log_ticks(decades)
    else:
        margin = MARGIN * (high - low)
        largest = max(abs(low), abs(high))
        if margin < 1e-9 * largest:  # equal values, up to rounding
            margin = MARGIN * largest
        margin = max(margin, 1e-9)
        low -= margin
        high += margin
    axis.set_major_locator(locator)
    if amounts or log:
        axis.set_major_formatter(EngFormatter(sep=""))
    else:
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
        axis.set_major_formatter(formatter)
    axis.axes.set(**{f"{name}lim": (low, high)})


def _linear_ticks() -> Locator:
    return MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3)


def _log_ticks(decades: float) -> Locator:
    """The ticks of a logarithmic axis over a number of decades: three to nine round numbers."""
    if decades < LOG_TICKS_FROM:
        return _linear_ticks()
    subs = (
        (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0),
        (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
        (1.0, 2.0, 5.0),
        (1.0, 3.0),
        (1.0,),
    )
    return LogLocator(subs=subs[bisect((0.6, 0.9, 2, 4), decades)], numticks=6)


def label_ratios(axis: Axis) -> None:
    """Label an axis of logarithms with the ratios: ×0.5, ×1, ×2. Its range must be set."""
    low, high = axis.get_view_interval()
    locator = _log_ticks((high - low) / math.log(10))
    ratios = []
    for ratio in locator.tick_values(math.exp(low), math.exp(high)):
        if ratio > 0 and low <= math.log(ratio) <= high:
            ratios.append(float(ratio))
    axis.set_ticks(list(map(math.log, ratios)), [f"×{ratio:g}" for ratio in ratios])


def families_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """Font families for these characters.

    Returns:
        The families, the default one first, and the characters that no font has.
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
    """The characters that a font file has."""
    charmap = FT2Font(font).get_charmap()
    return {character for character in characters if ord(character) in charmap}


# Figures within the HTML page

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
_NAMES = {color: name for name, color in PALETTE.items()}
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"#([\w.-]+)")


def inline_svg(figure: Figure, name: str, description: str, titles: Mapping[str, str]) -> Markup:
    """A figure as an `<svg>` element of the page.

    Elements with the id `row:LABEL` get the attribute `data-row="LABEL"` and the tooltip of the
    row. Other ids are removed, unless the figure refers to them. Colors of the palette become
    variables of the style sheet.

    Args:
        figure: a figure in the common style.
        name: a unique name, which makes the ids of the figure unique on the page.
        description: description for screen readers.
        titles: the tooltip of each row, by label.
    """
    out = io.BytesIO()
    with style():
        # Matplotlib makes ids from this salt: they are equal in equal figures, and different in the
        # figures of a page.
        matplotlib.rcParams["svg.hashsalt"] = name
        for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
            patch.set(facecolor="none", edgecolor="none")
        # Unlike `savefig`, which draws every figure twice.
        FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None})  # type: ignore[no-untyped-call]
    root = ElementTree.fromstring(out.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style") or child.tag.endswith("}RDF"):
                parent.remove(child)
    referenced: set[str] = set()
    for element in root.iter():
        referenced.update(*map(_REFERENCE.findall, element.attrib.values()))
    for element in root.iter():
        _mark(element, referenced, titles)
        if "style" in element.attrib:
            element.set("style", _COLOR.sub(_variable, element.get("style", "")))
    # Without a size, the figure has the width of its column, and the proportions of its viewBox.
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    # Browsers do not accept prefixes such as `svg:` within HTML.
    ElementTree.register_namespace("", SVG[1:-1])
    ElementTree.register_namespace("xlink", XLINK[1:-1])
    # ElementTree escapes text and attributes.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _mark(element: ElementTree.Element, referenced: set[str], titles: Mapping[str, str]) -> None:
    """Replace the id of an element by the attributes of its row."""
    id = element.get("id", "")
    if id not in referenced:
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
