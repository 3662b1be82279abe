"""Two rows of a study side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from ablate.formatting import duration, millions, printable, scaled, setting_text, signed
from ablate.report.curves import Curve, evaluations
from ablate.report.scores import spread, verdict_json
from ablate.report.table import Table, TableRow
from ablate.report.terminal import plain_table, print_wide
from ablate.stats.tests import LEVEL
from ablate.stats.verdict import Verdict, p_text
from ablate.store import Results
from ablate.tasks import Sample


@dataclass(frozen=True)
class ItemDifference:
    """An item of the test split that both rows have predicted.

    number: of the item, from 1.
    given: (name, text) of the input and the reference.
    texts: predictions of both rows.
    scores: of each prediction alone.
    """

    number: int
    given: tuple[tuple[str, str], ...]
    texts: tuple[str, str]
    scores: tuple[float, float]

    @property
    def difference(self) -> float:
        """The second row's score less the first's."""
        return self.scores[1] - self.scores[0]


@dataclass(frozen=True)
class Comparison:
    """The second row against the first, as the only pair that is looked at: nothing is corrected for others.

    settings: the fields in which they differ, with both values.
    verdicts: by metric.
    seed: whose sentences are shown; None where no seed has both.
    sentences: those of the test side in which they differ most, the second row's worst first.
    """

    table: Table
    first: TableRow
    second: TableRow
    settings: tuple[tuple[str, Any, Any], ...]
    verdicts: dict[str, Verdict]
    curves: tuple[Curve, Curve]
    seed: int | None = None
    sentences: tuple[ItemDifference, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        rows = (self.first, self.second)
        return {
            "study": self.table.study.name,
            "rows": [row.row.label for row in rows],
            "states": [{str(seed): state for seed, state in row.states.items()} for row in rows],
            "settings": [{"field": name, "values": [a, b]} for name, a, b in self.settings],
            "scores": {
                name: {"rows": [row.scores[name].as_json() for row in rows], "difference": verdict_json(verdict)}
                for name, verdict in self.verdicts.items()
            },
            "cost": [{"params": row.params, **row.cost.as_json()} for row in rows],
            "curves": [
                {"row": one.row, "ppl": {str(seed): points for seed, points in one.by_seed.items()}}
                for one in self.curves
            ],
            "seed_of_sentences": self.seed,
            "sentences": [
                {
                    "number": one.number, **dict(one.given),
                    "translations": list(one.texts), self.table.main.name: list(one.scores),
                }
                for one in self.sentences
            ],
        }  # fmt: skip


def compare(table: Table, first: TableRow, second: TableRow, results: Results) -> Comparison:
    """Compare two rows, without their sentences."""
    (judged,) = table.against(first, [second])
    before, after = (row.row.config.model_dump() for row in (first, second))
    settings = tuple((name, before[name], after[name]) for name in before if before[name] != after[name])
    curves = (_curve(table, first, results), _curve(table, second, results))
    shown = {metric.name: judged.verdicts[metric.name] for metric in table.metrics}
    return Comparison(table, first, second, settings, shown, curves)


def _curve(table: Table, row: TableRow, results: Results) -> Curve:
    found = {run.seed: evaluations(results.run(run.id)) for run in table.study.runs_of(row.row)}
    return Curve(row.row.label, row.row.group, {seed: points for seed, points in found.items() if points})


def differing_most(
    texts: tuple[Sequence[str], Sequence[str]],
    scores: tuple[Sequence[float], Sequence[float]],
    count: int,
    more_is_better: bool,
    given: Callable[[Sequence[int]], Iterable[Sample]],
) -> tuple[ItemDifference, ...]:
    """The items in which two rows differ most: the `count` worst of the second row, then its `count` best.

    Args:
        texts: predictions of both rows.
        scores: of each prediction alone.
        count: on each side.
        more_is_better: whether a higher score is better.
        given: the texts of some items, by index.
    """
    sign = 1 if more_is_better else -1
    differences = [(sign * (y - x), i) for i, (x, y) in enumerate(zip(*scores, strict=True)) if x != y]
    differences.sort()
    worse = [i for difference, i in differences if difference < 0][:count]
    better = [i for difference, i in sorted(differences, key=lambda one: (-one[0], -one[1])) if difference > 0][:count]
    picked = [*worse, *better]
    return tuple(
        ItemDifference(i + 1, sample.texts, (texts[0][i], texts[1][i]), (scores[0][i], scores[1][i]))
        for i, sample in zip(picked, given(picked), strict=True)
    )


# On a terminal

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
