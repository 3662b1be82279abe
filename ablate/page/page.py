"""The report: one HTML file with all that a study says, that fetches nothing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from ablate.config.metrics import PPL
from ablate.page import points, svg
from ablate.page.provenance import provenance, settings
from ablate.page.samples import Sample
from ablate.page.summary import summary
from ablate.report.curves import Curve
from ablate.report.html import mark, table_html
from ablate.report.layout import by_labels
from ablate.report.table import Table
from ablate.store import Results


@dataclass(frozen=True)
class Attention:
    """The weights of a run's heads for a sentence, drawn as SVG."""

    row: str
    run: str
    sentence: str
    drawing: bytes


def page(
    table: Table,
    results: Results,
    curves: Sequence[Curve],
    samples: Sequence[Sample],
    attention: Attention | None = None,
) -> str:
    """The page's text."""
    name = escape(table.study.name)
    sections = [
        ("table", "Table", _table(table)),
        ("against", "Against base", _against(table)),
        ("curves", "Learning curves", _curves(curves)),
        ("cost", "Quality against cost", _cost(table)),
        ("samples", "Sample translations", _samples(samples)),
        ("attention", "Attention", _attention(attention) if attention else ""),
        ("settings", "Settings", settings(table)),
        ("provenance", "Provenance", provenance(table, results)),
    ]
    there = [(id, title, text) for id, title, text in sections if text]
    links = "".join(f'<li><a href="#{id}">{title}</a></li>' for id, title, _ in there)
    parts = [
        f'<section aria-labelledby="{id}"><h2 id="{id}">{title}</h2>\n{text}</section>' for id, title, text in there
    ]
    return "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Nothing is fetched, even where a sentence of the corpus should look like markup.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\">",
        f"<title>{name}: ablation study</title>",
        f"<style>\n{_file('page.css')}</style>\n</head>\n<body>",
        '<a class="skip" href="#table">Skip to the table</a>',
        f"<header><h1>{name}</h1>\n<p class=\"summary\">{escape(summary(table))}</p>",
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main>',
        *parts,
        f"</main>\n<script>\n{_file('page.js')}</script>\n</body>\n</html>\n",
    ])  # fmt: skip


def _file(name: str) -> str:
    return (files("ablate.page") / name).read_text(encoding="utf-8")


def _table(table: Table) -> str:
    tools = (
        '<div class="tools"><button type="button" id="restore" hidden></button>'
        '<span id="said" class="note" role="status"></span></div>'
    )
    return f"{tools}\n{table_html(table, by_labels(table, mark))}"


def _against(table: Table) -> str:
    figures = []
    for metric in (table.main, table.perplexity):
        found = points.intervals(table, metric)
        if any(one.mean is not None for one in found):
            figures.append(_figure(metric.title, svg.intervals(found, metric), _way(metric.more_is_better)))
    return _grid(figures)


def _way(more_is_better: bool) -> str:
    side = "right" if more_is_better else "left"
    what = "Dots: mean differences, paired by seed. Lines: 95 % intervals over seeds, uncorrected."
    return f"{what} Better is to the {side}."


def _curves(curves: Sequence[Curve]) -> str:
    figures = []
    for panel in points.panels(curves):
        legend = "".join(
            f'<li class="{panel.look(curve.row)}" data-row="{escape(curve.row, quote=True)}">'
            f"{escape(points.short(curve.row, curve.group))}</li>"
            for curve in panel.curves
        )
        figures.append(_figure(panel.group, svg.curves(panel, PPL), "", f'<ul class="legend">{legend}</ul>'))
    note = "Thin lines: every run. Thick lines: the mean of its loss over seeds. Base is dashed in every figure."
    return f'<p class="note">{note}</p>\n{_grid(figures)}' if figures else ""


def _cost(table: Table) -> str:
    figures = []
    for cost, across in points.COSTS.items():
        found = points.spots(table, cost)
        if len(found) > 1:
            figures.append(_figure(f"By {across}", svg.spots(found, table.main, across), ""))
    return _grid(figures) + ('<p class="note">Lines: standard deviation over seeds.</p>' if figures else "")


def _figure(title: str, drawing: str, caption: str, below: str = "") -> str:
    text = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure><h3>{escape(title)}</h3>{drawing}{below}{text}</figure>"


def _grid(figures: Sequence[str]) -> str:
    return f'<div class="figures">{"".join(figures)}</div>\n' if figures else ""


def _samples(samples: Sequence[Sample]) -> str:
    parts = []
    for number, sample in enumerate(samples):
        rows = [("source", sample.source), ("reference", sample.reference)]
        lines = "".join(f'<tr><th scope="row">{name}</th><td>{escape(text)}</td></tr>' for name, text in rows)
        lines += "".join(
            f'<tr data-row="{escape(label, quote=True)}"><th scope="row">{escape(label)}</th>'
            f"<td>{_told(text, sample.reference)}</td></tr>"
            for label, text in sample.translations
        )
        parts.append(
            f"<details{' open' if number == 0 else ''}>"
            f"<summary>Sentence {sample.number}: {escape(sample.source)}</summary>"
            f'<div class="wide"><table><tbody>{lines}</tbody></table></div></details>'
        )
    note = "Evenly spread over the test side, as each row translates them with the study's first seed."
    return f'<p class="note">{note}</p>\n{"".join(parts)}' if parts else ""


def _told(text: str, reference: str) -> str:
    if text == reference:
        return f'{escape(text)} <span class="note">(as the reference)</span>'
    return escape(text) or '<span class="note">(empty)</span>'


def _attention(attention: Attention) -> str:
    data = base64.b64encode(attention.drawing).decode()
    what = f"Attention weights of {attention.row}, run {attention.run}, for the sentence: {attention.sentence}"
    return (
        f'<figure><div class="wide"><img class="attention" alt="{escape(what, quote=True)}" '
        f'src="data:image/svg+xml;base64,{data}"></div><figcaption>{escape(what)}.</figcaption></figure>'
    )
