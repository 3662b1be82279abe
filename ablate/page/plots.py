"""The report's figures as files for a paper, PDF and SVG, drawn with matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ablate.config.metrics import PPL, Metric
from ablate.page import points
from ablate.page.axis import LOG_FROM, label
from ablate.page.labels import place
from ablate.report.curves import Curve
from ablate.report.table import Table
from ablate.store.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN = 3.3  # inches: a column of a paper set in two
BASE = "#6b6b76"
COLOURS = ("#0b6bcb", "#c2410c", "#047857", "#a21caf", "#854d0e", "#0e7490", "#be123c", "#4d7c0f")
WORDS = {"worse": "#b42318", "better": "#04703c"}


def write_figures(table: Table, curves: Sequence[Curve], folder: Path) -> list[str]:
    """Write every figure that there is something for; the names of the files. The same results give the same bytes."""
    names = []
    for name, draw in _figures(table, curves).items():
        for kind in ("pdf", "svg"):
            out = io.BytesIO()
            with _style():
                draw().savefig(out, format=kind, metadata=_undated(kind))
            write_bytes(folder / f"{name}.{kind}", out.getvalue(), durable=False)
            names.append(f"{name}.{kind}")
    return names


def _figures(table: Table, curves: Sequence[Curve]) -> dict[str, Callable[[], Figure]]:
    found: dict[str, Callable[[], Figure]] = {}
    for metric in (table.main, table.perplexity):
        lines = points.intervals(table, metric)
        if any(one.mean is not None for one in lines):
            found[f"against-base-{metric.name}"] = partial(_intervals, lines, metric)
    panels = points.panels(curves)
    if panels:
        found["learning-curves"] = partial(_curves, panels)
    for cost, name in points.COSTS.items():
        spots = points.spots(table, cost)
        if len(spots) > 1:
            found[f"cost-{cost}"] = partial(_spots, spots, table.main, name)
    return found


def _undated(kind: str) -> dict[str, None]:
    return {"Date": None} if kind == "svg" else {"CreationDate": None, "ModDate": None}


@contextmanager
def _style() -> Iterator[None]:
    """A paper's look, whatever a user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams |= {
            "font.size": 8, "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
            "legend.frameon": False, "legend.fontsize": 7, "pdf.fonttype": 42, "svg.hashsalt": "ablate",
            "figure.constrained_layout.use": True,
        }  # fmt: skip
        yield


def _intervals(found: Sequence[points.Interval], metric: Metric) -> Figure:
    figure = Figure((COLUMN, 0.55 + 0.19 * len(found)))
    axes = figure.add_subplot()
    axes.axvline(0, color=BASE, linewidth=0.8)
    for height, one in enumerate(found):
        colour = WORDS.get(one.word, "black")
        if one.low is not None and one.high is not None:
            axes.plot((one.low, one.high), (height, height), color=colour, linewidth=1.2)
        if one.mean is not None:
            axes.plot((one.mean,), (height,), "o", color=colour, markersize=3.5)
    axes.set_yticks(range(len(found)), [_plain(one.name, 28) for one in found], fontsize=7)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel(f"difference from base in {metric.title}")
    axes.tick_params(axis="y", length=0)
    return figure


def _curves(panels: Sequence[points.Panel]) -> Figure:
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    legend = 0.13 * max(len(panel.curves) for panel in panels)
    figure = Figure((COLUMN if across == 1 else 7.0, (2.0 + legend) * down))
    for number, panel in enumerate(panels, 1):
        axes = figure.add_subplot(down, across, number)
        values = [value for curve in panel.curves for seed_points in curve.by_seed.values() for _, value in seed_points]
        for curve in panel.curves:
            look = panel.look(curve.row)
            colour = BASE if look == "base" else COLOURS[int(look[1:])]
            for seed_points in curve.by_seed.values():
                axes.plot(*zip(*seed_points, strict=True), color=colour, linewidth=0.5, alpha=0.5)
            if curve.mean:
                name, style = points.short(curve.row, curve.group), "--" if look == "base" else "-"
                axes.plot(*zip(*curve.mean, strict=True), style, color=colour, linewidth=1.3, label=_plain(name, 30))
        if max(values) / min(values) > LOG_FROM:
            _log(axes, "y")
        axes.set_title(_plain(panel.group, 30), fontsize=8)
        axes.set_xlabel("step")
        axes.set_ylabel(f"{PPL.title} ({PPL.side})")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), handlelength=1.5, labelspacing=0.2)
    return figure


def _spots(found: Sequence[points.Spot], metric: Metric, cost: str) -> Figure:
    figure = Figure((COLUMN, 2.6))
    axes = figure.add_subplot()
    for spot in found:
        colour = BASE if spot.is_base else COLOURS[0]
        axes.errorbar(
            (spot.cost,), (spot.score,), (spot.std,), fmt="o", color=colour, markersize=4, linewidth=1, capsize=0
        )
    costs = [spot.cost for spot in found]
    if max(costs) / min(costs) > LOG_FROM:
        _log(axes, "x")
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    axes.margins(x=0.15, y=0.12)
    axes.set_xlabel(cost)
    axes.set_ylabel(f"{metric.title} ({metric.side})")
    figure.draw_without_rendering()  # places are known once the figure is laid out
    _name(axes, 72 / figure.dpi, found)
    return figure


def _name(axes: Axes, points: float, found: Sequence[points.Spot]) -> None:
    """Names beside the spots, as far as there is room; `points` to a pixel."""
    places = axes.transData.transform([(spot.cost, spot.score) for spot in found]) * points
    box = axes.get_window_extent()
    texts = [_plain(spot.name, 26) for spot in found]
    across, upright = ((low * points, high * points) for low, high in (box.intervalx, box.intervaly))
    names = place([(x, y) for x, y in places], [3.4 * len(text) for text in texts], 7.0, across, upright)
    for spot, (x, y), text, name in zip(found, places, texts, names, strict=True):
        if name is not None:
            side: Literal["left", "right"] = "left" if name.side == "start" else "right"
            axes.annotate(
                text, (spot.cost, spot.score), (name.x - x, name.y - y), textcoords="offset points", fontsize=6,
                ha=side, va="center_baseline", annotation_clip=False,
            )  # fmt: skip


def _log(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers."""
    side = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    side.set_major_formatter(FuncFormatter(lambda value, _: label(value) if math.isfinite(value) else ""))
    side.set_minor_formatter(NullFormatter())


def _plain(text: str, most: int) -> str:
    """Text in which a dollar sign is one, cut where it is too long for its place."""
    return (text if len(text) <= most else f"{text[: most - 1]}…").replace("$", r"\$")
