"""Figures as SVG for the page: drawn here, coloured by the page's style, so light and dark are one drawing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ablate.config.metrics import Metric
from ablate.formatting import signed
from ablate.page.axis import Axis, axis, label
from ablate.page.labels import place
from ablate.page.points import Interval, Panel, Spot

WIDTH = 360  # units of every figure: as wide as a phone, so that its letters are never small
_LETTER, _LINE = 6.2, 12.0  # about as wide and as high as a letter is
_LEFT, _RIGHT, _BOTTOM, _TOP = 44, 12, 34, 24


def curves(panel: Panel, metric: Metric, height: int = 230) -> str:
    """Every run as a thin line and every row's mean as a thick one; base is grey."""
    steps = [step for curve in panel.curves for points in curve.by_seed.values() for step, _ in points]
    values = [value for curve in panel.curves for points in curve.by_seed.values() for _, value in points]
    x = axis([0, *steps], _LEFT, WIDTH - _RIGHT, log=False)
    x = Axis(0, x.high, x.start, x.end)
    y = axis(values, height - _BOTTOM, _TOP)
    parts = [*_frame(x, y, height, "step", f"{metric.title} ({metric.side})")]
    for curve in panel.curves:
        look = panel.look(curve.row)
        inner = [_line(points, x, y, "run") for points in curve.by_seed.values()]
        inner.append(_line(curve.mean, x, y, "mean"))
        parts.append(f'<g class="{look}" data-row="{escape(curve.row, quote=True)}">{"".join(inner)}</g>')
    what = f"{metric.title} by step of {', '.join(curve.row for curve in panel.curves)}"
    return _svg(height, what, parts)


def intervals(found: Sequence[Interval], metric: Metric) -> str:
    """A line a row: its mean difference from base, and the 95 % interval of it."""
    line, top, bottom = 34, 8, 38
    height = top + bottom + line * len(found)
    ends = [value for one in found for value in (one.mean, one.low, one.high) if value is not None]
    x = axis(ends, 14, WIDTH - 14, zero=True, log=False)
    parts = [_grid(x, top, height - bottom), _zero(x, top, height - bottom)]
    for index, one in enumerate(found):
        y = top + line * index + 24
        word = one.word or "no result yet"
        text = f"{signed(one.mean, metric.digits)}" if one.mean is not None else ""
        row = [f'<text class="row" x="14" y="{y - 9}">{escape(_cut(one.name, 34))}</text>']
        row.append(f'<text class="row end" x="{WIDTH - 14}" y="{y - 9}">{escape(f"{text}  {word}".strip())}</text>')
        if one.low is not None and one.high is not None:
            row.append(f'<path class="reach" d="M{x.place(one.low):.1f} {y}H{x.place(one.high):.1f}"/>')
        if one.mean is not None:
            row.append(f'<circle class="dot" cx="{x.place(one.mean):.1f}" cy="{y}" r="4"/>')
        look = one.word.replace(" ", "-") or "none"
        parts.append(f'<g class="{look}" data-row="{escape(one.row, quote=True)}">{"".join(row)}</g>')
    parts += _x_ticks(x, height - bottom)
    parts.append(_x_title(f"difference from base in {metric.title}", height))
    return _svg(height, f"Difference from base in {metric.title} of each row, with its 95 % interval", parts)


def spots(found: Sequence[Spot], metric: Metric, cost: str, height: int = 260) -> str:
    """A spot a row: its cost to the right, its score upwards, with the spread over seeds."""
    x = axis([spot.cost for spot in found], _LEFT, WIDTH - _RIGHT - 16)
    ends = [value for spot in found for value in (spot.score - spot.std, spot.score + spot.std)]
    y = axis(ends, height - _BOTTOM, _TOP, log=False)
    parts = [*_frame(x, y, height, cost, f"{metric.title} ({metric.side})")]
    places = [(x.place(spot.cost), y.place(spot.score)) for spot in found]
    texts = [_cut(spot.name, 26) for spot in found]
    names = place(places, [_LETTER * len(text) for text in texts], _LINE, (0, WIDTH), (0, height - _BOTTOM))
    for spot, (at, up), text, name in zip(found, places, texts, names, strict=True):
        marks = [
            f"<title>{escape(spot.row)}: {spot.score:.{metric.digits}f}, {cost} {label(spot.cost)}</title>",
            f'<path class="reach" d="M{at:.1f} {y.place(spot.score - spot.std):.1f}V'
            f'{y.place(spot.score + spot.std):.1f}"/>',
            f'<circle class="dot" cx="{at:.1f}" cy="{up:.1f}" r="{5 if spot.is_base else 4}"/>',
        ]
        if name is not None:
            marks.append(f'<text class="spot {name.side}" x="{name.x:.1f}" y="{name.y + 4:.1f}">{escape(text)}</text>')
        look = "base" if spot.is_base else "c0"
        parts.append(f'<g class="{look}" data-row="{escape(spot.row, quote=True)}">{"".join(marks)}</g>')
    return _svg(height, f"{metric.title} of each row against its {cost}", parts)


def _svg(height: float, what: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(what, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )


def _frame(x: Axis, y: Axis, height: int, across: str, upwards: str) -> list[str]:
    """Grid, ticks and titles of both axes."""
    lines = [f'<path class="grid" d="M{x.start} {y.place(tick):.1f}H{x.end}"/>' for tick in y.ticks()]
    texts = [
        f'<text class="end" x="{x.start - 5}" y="{y.place(tick) + 4:.1f}">{label(tick)}</text>' for tick in y.ticks()
    ]
    title = f'<text class="title" x="4" y="10">{escape(upwards)}{", log" if y.log else ""}</text>'
    return [
        *lines,
        *texts,
        title,
        *_x_ticks(x, height - _BOTTOM),
        _x_title(across + (", log" if x.log else ""), height),
    ]


def _grid(x: Axis, top: float, bottom: float) -> str:
    return "".join(f'<path class="grid" d="M{x.place(tick):.1f} {top}V{bottom}"/>' for tick in x.ticks())


def _zero(x: Axis, top: float, bottom: float) -> str:
    return f'<path class="zero" d="M{x.place(0):.1f} {top}V{bottom}"/>'


def _x_ticks(x: Axis, y: float) -> list[str]:
    line = f'<path class="axis" d="M{x.start} {y}H{x.end}"/>'
    return [
        line,
        *(f'<text class="middle" x="{x.place(t):.1f}" y="{y + 14:g}">{label(t)}</text>' for t in x.ticks(4)),
    ]


def _x_title(text: str, height: float) -> str:
    return f'<text class="middle title" x="{WIDTH / 2:g}" y="{height - 4:g}">{escape(text)}</text>'


def _line(points: Sequence[tuple[int, float]], x: Axis, y: Axis, kind: str) -> str:
    if len(points) == 1:
        ((step, value),) = points
        return f'<circle class="{kind}" cx="{x.place(step):.1f}" cy="{y.place(value):.1f}" r="2"/>'
    path = "L".join(f"{x.place(step):.1f} {y.place(value):.1f}" for step, value in points)
    return f'<path class="{kind}" d="M{path}"/>' if points else ""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
