"""Settings and provenance, as the page tells them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from ablate.formatting import duration, setting_text
from ablate.report.publish import provenance as published
from ablate.report.table import Table
from ablate.store import Results


def settings(table: Table) -> str:
    """Base in full, what each row changes, and the study's file."""
    base = table.rows[0].row.config.model_dump()
    fields = _table(
        "Base, every field", ("field", "value"), ((name, setting_text(value)) for name, value in base.items())
    )
    data = table.study.data.model_dump(exclude={"folder"})
    corpus = _table("The data", ("field", "value"), ((name, setting_text(value)) for name, value in data.items()))
    changed = [
        (row.row.label, ", ".join(f"{name}={setting_text(value)}" for name, value in row.row.changed.items()))
        for row in table.rows[1:]
    ]
    rows = _table("What each row changes", ("row", "changes"), changed)
    text = f"<details><summary>The study file</summary><pre>{escape(table.study.text)}</pre></details>"
    folded = f"<details><summary>Every field of base and of the data</summary>{corpus}{fields}</details>"
    return rows + folded + text


def provenance(table: Table, results: Results) -> str:
    """Signatures, corpora, code and machines, and every run."""
    content = published(table, results)
    lines = [(f"{name.upper()}", signature) for name, found in table.signatures.items() for signature in found]
    lines += [("corpus", corpus) for corpus in content["corpora"]]
    for place in content["carried_out"]:
        lines += list(_place(place))
    shown = _table("How the numbers were made", ("what", ""), lines)
    runs = _table(
        "Every run", ("run", "seed", "steps", "time", "weights (SHA-256)"),
        (
            (id, run["seed"], run["steps"], duration(run["seconds"]), (run["weights"] or {}).get("sha256", "")[:16])
            for id, run in content["runs"].items()
        ),
    )  # fmt: skip
    return f"{shown}<details><summary>{len(content['runs'])} runs</summary>{runs}</details>"


def _place(place: dict[str, Any]) -> Iterable[tuple[str, str]]:
    code, machine = place.get("ablate", {}), place["machine"]
    changed = ", changed since" if code.get("dirty") else ""
    revision = f" ({code['revision'][:12]}{changed})" if code.get("revision") else ""
    if code:
        yield "code", f"ablate {code['version']}{revision}, Python {place['python']}"
        yield "packages", ", ".join(f"{name} {version}" for name, version in place["packages"].items())
    yield "machine", f"{place['device']}, {place['threads']} threads; {machine['processor']}, {machine['cores']} cores"


def _table(caption: str, heads: tuple[str, ...], rows: Iterable[Iterable[object]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(_row(list(cells)) for cells in rows)
    if not body:
        return ""
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _row(cells: list[object]) -> str:
    first, *others = (escape(str(cell)) for cell in cells)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
