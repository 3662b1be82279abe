"""Figures as SVG elements of the page: colored by its style sheet, described for screen readers, marked by row."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from ablate.plotting import PALETTE, style

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
_NAMES = {color: name for name, color in PALETTE.items()}
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"#([\w.-]+)")


def inline_svg(figure: Figure, name: str, description: str, titles: Mapping[str, str]) -> Markup:
    """Return a figure as an `<svg>` element.

    Elements with the id `row:LABEL` get the attribute `data-row="LABEL"` and the title of that row. Other ids are
    removed, unless the figure itself refers to them. Colors of the palette become variables of the style sheet.

    Args:
        figure: drawn in the shared style.
        name: distinguishes the ids of this figure from those of others on the page.
        description: of the figure, for screen readers.
        titles: by row label, the text that is shown while the pointer is over a mark.
    """
    out = io.BytesIO()
    with style():
        # matplotlib makes ids from this salt: the same figure has the same ids, and two figures of a page have others.
        matplotlib.rcParams["svg.hashsalt"] = name
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(out.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style") or child.tag.endswith("}RDF"):
                parent.remove(child)
    referred = {id for element in root.iter() for value in element.attrib.values() for id in _REFERENCE.findall(value)}
    for element in root.iter():
        _mark(element, referred, titles)
        if "style" in element.attrib:
            element.set("style", _COLOR.sub(_variable, element.get("style", "")))
    # Without a size of its own, the figure takes the width of its column; viewBox keeps the proportions.
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", description)
    # Else every element would be written with a prefix, which browsers do not read as SVG inside of HTML.
    ElementTree.register_namespace("", SVG[1:-1])
    ElementTree.register_namespace("xlink", XLINK[1:-1])
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # text and attributes are escaped by ElementTree


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
