"""Two rows side by side, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ablate.formatting import duration, millions, printable, scaled, setting_text, signed
from ablate.report.compare import Comparison, ItemDifference
from ablate.report.plan_text import plain_table, print_wide
from ablate.report.scores import spread
from ablate.stats.tests import LEVEL
from ablate.stats.verdict import Verdict, p_text

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 40  # evaluations of a curve that are drawn
STYLES = {"worse": "red", "better": "green"}


def print_comparison(found: Comparison) -> None:
    """Settings, scores, what their difference is worth, curves, and sentences."""
    console = Console(highlight=False, soft_wrap=True)
    _settings(found)
    console.print()
    _scores(found)
    for row in (found.first, found.second):
        if row.note:
            console.print(f"{row.row.label}: {row.note}", markup=False)
    console.print()
    for verdict in found.verdicts.values():
        for line in _noise(verdict) if verdict.n else ():
            console.print(line)
    console.print(_legend(found), style="dim", markup=False)
    for curve in _curves(found):
        console.print(curve, markup=False)
    for text in _sentences(found):
        console.print(text)


def _settings(found: Comparison) -> None:
    table = plain_table("setting", found.first.row.label, found.second.row.label)
    for name, before, after in found.settings:
        table.add_row(name, Text(setting_text(before)), Text(setting_text(after)))
    for name, cells in (
        ("params (10^6)", [millions(row.params) for row in (found.first, found.second)]),
        ("FLOPs of a training", [scaled(row.cost.flops, "").strip() for row in (found.first, found.second)]),
        ("time of a training", [duration(row.cost.seconds.mean) for row in (found.first, found.second)]),
    ):
        table.add_row(Text(name, style="dim"), *cells)
    print_wide(table)


def _scores(found: Comparison) -> None:
    table = plain_table("metric", f"+{found.first.row.label}", f"+{found.second.row.label}", "+difference")
    seeds = len(found.table.study.seeds)
    for name, verdict in found.verdicts.items():
        metric = found.table.study.task.metrics[name]
        scores = (spread(row.scores[name], metric.digits, seeds) for row in (found.first, found.second))
        table.add_row(metric.title, *scores, signed(verdict.mean, metric.digits))
    print_wide(table)


def _noise(verdict: Verdict) -> Iterator[Text]:
    """The verdict in a metric, then what both kinds of noise say of the difference."""
    digits = verdict.metric.digits
    yield Text(f"{verdict.metric.title}: ").append(verdict.text, STYLES.get(verdict.word, ""))
    if verdict.seed_test:
        reach = _reach(verdict.seed_test.low, verdict.seed_test.high, digits)
        yield Text(f"  95 % over {verdict.n} seeds {reach}, {p_text(verdict.seed_test.p)}", style="dim")
    if verdict.bootstrap:
        reach = _reach(verdict.bootstrap.low, verdict.bootstrap.high, digits)
        yield Text(f"  95 % over test sentences {reach}, {p_text(verdict.bootstrap.p)}", style="dim")


def _reach(low: float, high: float, digits: int) -> str:
    return f"[{signed(low, digits)}, {signed(high, digits)}]"


def _legend(found: Comparison) -> str:
    what = f"{found.second.row.label} less {found.first.row.label}"
    return (
        f"Differences: {what}, paired by seed (t), and by paired bootstrap over the test sentences. "
        f"One pair is looked at: p < {LEVEL:g} is not corrected for other rows."
    )


def _curves(found: Comparison) -> Iterator[str]:
    drawn = [curve for curve in found.curves if curve.mean]
    if not drawn:
        return
    values = [math.log(value) for curve in drawn for _, value in curve.mean]
    low, high = min(values), max(values)
    yield "\nPPL (dev) by step, log, geometric mean over seeds"
    wide = max(len(curve.row) for curve in drawn)
    for curve in drawn:
        points = curve.mean
        shown = points[:: -(-len(points) // _WIDEST)]
        bars = "".join(_bar((math.log(value) - low) / (high - low or 1.0)) for _, value in shown)
        (first, start), (last, end) = points[0], points[-1]
        yield f"{curve.row:<{wide}}  {bars}  {start:.2f} at step {first}, {end:.2f} at step {last}"


def _bar(share: float) -> str:
    return _BARS[round(share * (len(_BARS) - 1))]


def _sentences(found: Comparison) -> Iterator[Text]:
    if found.seed is None:
        yield Text("\nNo seed has translations of both rows.", style="dim")
        return
    title = found.table.main.title
    yield Text(f"\nSentences that differ most in {title} (each alone, seed {found.seed})", style="bold")
    if not found.sentences:
        yield Text("None: both rows score every sentence alike.")
    for one in found.sentences:
        yield from _sentence(one, found)


def _sentence(one: ItemDifference, found: Comparison) -> Iterator[Text]:
    names = (*(name for name, _ in one.given), found.first.row.label, found.second.row.label)
    wide = max(map(len, names))
    yield Text(f"\n{'':<{wide}}  sentence {one.number}, {signed(one.difference, 1)}", style="dim")
    labels = found.first.row.label, found.second.row.label
    for name, text in one.given:
        yield Text.assemble((f"{name:<{wide}}  ", "dim"), printable(text))
    for label, text, score in zip(labels, one.texts, one.scores, strict=True):
        yield Text.assemble((f"{label:<{wide}}  ", "dim"), printable(text) or "(empty)", (f"  {score:.1f}", "dim"))
