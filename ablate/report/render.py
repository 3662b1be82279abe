"""The table on a terminal, in Markdown, CSV and JSON, and published with its provenance."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ablate.analysis.agreement import agreements_json
from ablate.analysis.designs import design_effects
from ablate.analysis.frames import rows_frame
from ablate.analysis.ladder import ladders
from ablate.analysis.table import Table
from ablate.config.data import CorpusConfig
from ablate.errors import StoreError, StudyError
from ablate.formatting import visible
from ablate.report.columns import paper_layout, terminal_layout
from ablate.report.conclusion import conclusion
from ablate.report.design_tables import effects_layout, ladder_layout
from ablate.report.layout import Layout, one_line_heads
from ablate.store import Results
from ablate.store.files import make_room, read_bytes, write_bytes
from ablate.store.records import FileHash, Provenance
from ablate.store.status import damage_of, read_provenance
from ablate.study import Study
from ablate.study.names import folded_name
from ablate.study.yaml_nodes import parse_yaml, read_file

_ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")  # not `<0.001`

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def print_rich(
    table: Table, console: Console, against_paper: bool, with_cost: bool = False, wide: bool = False
) -> None:
    """Print the columns that fit the terminal, the most important ones first; piped or `wide`, all
    of them.
    """
    everything = wide or not console.is_terminal
    width = None if everything else console.width
    layout = terminal_layout(table, lambda text: f"{text}*", against_paper, with_cost, width)
    for sentence in conclusion(table):
        console.print(sentence, soft_wrap=everything)
    console.print()
    rich = _rich(layout)
    if everything:
        console.width = max(
            console.width,
            console.measure(rich, options=console.options.update(max_width=10_000)).maximum,
        )
    console.print(rich)
    for line in layout.legend:
        console.print(line, style="dim", soft_wrap=everything)
    for title, effects in further_tables(table):
        console.print(f"\n{title}", style="bold")
        console.print(_rich(effects, folds=True))
        for line in effects.legend:
            console.print(line, style="dim", soft_wrap=everything)


def markdown(table: Table, against_paper: bool, with_cost: bool = False) -> str:
    """A Markdown table, with the conclusion above it and its legend below it as lists."""
    layout = paper_layout(table, lambda text: f"**{text}**", against_paper, with_cost)
    parts = [
        "".join(f"- {_markdown_text(sentence)}\n" for sentence in conclusion(table)),
        _markdown_table(layout),
    ]
    parts += [
        f"### {_markdown_text(title)}\n\n{_markdown_table(one)}"
        for title, one in further_tables(table)
    ]
    return "\n".join(parts)


def further_tables(table: Table) -> Iterator[tuple[str, Layout]]:
    """Yield the tables below the results, with their titles: sizes, and effects of designs."""
    yield from ((f"Over sizes: Δ{one.metric.title}", ladder_layout(one)) for one in ladders(table))
    yield from ((one.title, effects_layout(table, one)) for one in design_effects(table))


def _markdown_table(layout: Layout) -> str:
    layout = one_line_heads(layout)
    rows = zip(*(column.cells for column in layout.columns), strict=True)
    lines = [
        _markdown_row(column.head for column in layout.columns),
        _markdown_row("---:" if column.numeric else "---" for column in layout.columns),
        *(_markdown_row(cells) for cells in rows),
        "",
        *(f"- {_markdown_text(line)}" for line in layout.legend_with("**bold**")),
    ]
    return "\n".join(lines) + "\n"


def comma_separated(table: Table, timed: bool = True) -> str:
    """One line for each row, numbers in full; `timed` adds measured times."""
    return rows_frame(table, timed).to_csv(lineterminator="\n")


def as_json(table: Table, timed: bool = True) -> str:
    """The table and its agreement with the paper as JSON, for scripts; `timed` adds measured
    times.
    """
    designs = [one.as_json() for one in design_effects(table)]
    over_sizes = [one.as_json() for one in ladders(table)]
    further = {"designs": designs, "sizes": over_sizes}
    content = {"study": table.study.name, "conclusion": conclusion(table), **table.as_json(timed)}
    content |= {key: value for key, value in further.items() if value}
    return json.dumps({**content, "agreement": agreements_json(table)}, indent=1) + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_markdown_text(cell).replace("|", "\\|") for cell in cells) + " |"


def _markdown_text(text: str) -> str:
    """Text on one line, in which nothing is an element of HTML or a link: records may be those of a
    stranger.
    """
    return _ELEMENT.sub("&lt;", visible(" ".join(text.splitlines()))).replace("](", "]\\(")


def _rich(layout: Layout, folds: bool = False) -> RichTable:
    """The table for a terminal; `folds` breaks cells that are too wide, for a layout that does not
    do so.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rich = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in layout.columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        rich.add_column(
            Text(column.head),
            justify=justify,
            no_wrap=not folds,
            overflow="fold" if folds else "ellipsis",
        )
    for cells in zip(*(column.cells for column in layout.columns), strict=True):
        rich.add_row(*(Text(cell, style="bold" if cell.endswith("*") else "") for cell in cells))
    return rich


def refuse_other_study(study: Study, results: Results) -> None:
    """Refuse a study whose name belongs to another file: both would be published to one folder.

    A name is free again once the file is gone, has another name in it, or has the same text.

    Raises:
        StudyError: another study file has this name, or one that file systems may not tell from it.
    """
    for record in results.origins():
        origin = _origin(results, record)
        is_alike = folded_name(record.name) == folded_name(study.name)
        if (
            is_alike
            and origin is not None
            and origin != study.path.resolve()
            and _is_other_study(origin, study)
        ):
            _, node = parse_yaml(study.text, str(study.path)).value["study"]
            file = min(os.path.relpath(origin), str(origin), key=len)
            other = f"{file}, whose table is in {results.study(record.name)}"
            message = (
                f'the name "{study.name}" belongs to {other}; '
                "choose another name, or another --results"
            )
            raise StudyError(node.mark.error_line(message))


def claim(study: Study, results: Results) -> None:
    """Record the study's file as the one that its name belongs to, before results/<study>/ is
    written.

    Raises:
        StudyError: as for `refuse_other_study`.
    """
    refuse_other_study(study, results)
    record, here = results.origin(study.name), study.path.resolve()
    if _origin(results, record) != here:
        make_room(record)
        write_bytes(record, f"{os.path.relpath(here, results.root.resolve())}\n".encode())


def _origin(results: Results, record: Path) -> Path | None:
    """The study file that a name belongs to; None if that is not known."""
    try:
        recorded = (read_bytes(record) or b"").decode().strip()
    except (StoreError, UnicodeDecodeError):
        return None
    return (
        (results.root.resolve() / recorded).resolve() if recorded and "\0" not in recorded else None
    )


def _is_other_study(path: Path, study: Study) -> bool:
    """Whether this file is a study with the same name and another text; a file that cannot be
    parsed counts as one.
    """
    if not path.is_file():
        return False
    try:
        text = read_file(path)
        name = parse_yaml(text, str(path)).to_python().get("study")
    except (StudyError, AttributeError):
        return True
    return text != study.text and folded_name(str(name)) == folded_name(study.name)


def publish(table: Table, results: Results, folder: Path | None = None) -> list[str]:
    """Write table.md, table.csv, table.json, study.yaml and provenance.json, and return their
    names.

    The files are small, contain no text of the corpus, and are the same each time the study is
    repeated: they have no measured times.

    Args:
        table: of the study.
        results: the results root that it was read from.
        folder: to write to; None for the study's folder in the results root.

    Raises:
        StoreError: the folder is a symbolic link, has a folder in place of a file, or has another
            study.
    """
    table = replace(table, archived=())  # a published folder has no predictions of any run
    study = table.study
    folder = folder or results.study(study.name)
    if folder.is_symlink():  # it may point outside of the results root
        raise StoreError(
            f"{folder}: is a symbolic link, and a study is not published through one; remove it"
        )
    files = {
        "table.md": markdown(table, against_paper=False),
        "table.csv": comma_separated(table, timed=False),
        "table.json": as_json(table, timed=False),
        "study.yaml": study.text,
        "provenance.json": json.dumps(provenance(table, results).as_json(), indent=1) + "\n",
    }
    for path in (folder / name for name in files):
        if path.is_dir():  # before any file is written: all of them belong to one table
            raise StoreError(
                f"{path}: is a folder, where the published study has a file; move it away"
            )
    if folder != results.study(study.name) and _is_not_ours(
        folder, study
    ):  # results/<study>/ is claimed by its study
        raise StoreError(
            f"{folder / 'study.yaml'}: is another study, which would be replaced by {study.path}; "
            f"choose another folder"
        )
    for name, content in files.items():
        write_bytes(folder / name, content.encode())
    return list(files)


def _is_not_ours(folder: Path, study: Study) -> bool:
    """Whether a folder has a study.yaml that was not published for this study: its user's own, or
    of another study.
    """
    path = folder / "study.yaml"
    if not path.exists() or read_bytes(path) == study.text.encode():
        return False
    try:
        return bool(
            json.loads(read_bytes(folder / "table.json") or b"{}").get("study") != study.name
        )
    except (ValueError, AttributeError):  # not a table.json of ours
        return True


@dataclass(frozen=True)
class PublishedRun:
    """A run behind a table. `made_with`: index of its provenance; `seconds`: of work on the run."""

    id: str
    seed: int
    made_with: int
    steps: int
    seconds: float
    weights: FileHash | None


@dataclass(frozen=True)
class TableProvenance:
    """The corpora and runs behind a table, and each distinct provenance of the runs; None for an
    unreadable one.
    """

    data: CorpusConfig
    corpora: tuple[str, ...]
    provenances: tuple[Provenance | None, ...]
    runs: tuple[PublishedRun, ...]

    def as_json(self) -> dict[str, Any]:
        """The content of provenance.json; `carried_out` lists the provenances, each run has the
        index of its one.
        """
        return {
            "data": self.data.model_dump(exclude={"folder"}),
            "corpora": list(self.corpora),
            "carried_out": [each.model_dump() if each else {} for each in self.provenances],
            "runs": {
                run.id: {
                    "seed": run.seed,
                    "carried_out": run.made_with,
                    "steps": run.steps,
                    "seconds": run.seconds,
                    "weights": run.weights.model_dump() if run.weights else None,
                }
                for run in self.runs
            },
        }


def provenance(table: Table, results: Results) -> TableProvenance:
    """Read the provenance of a table: every run that has a result."""
    provenances: list[Provenance | None] = []
    runs = []
    for run in table.study.all_runs():
        folder = results.run(run.id)
        result = None if damage_of(folder) else folder.read_result()
        if result is None:
            continue
        record = read_provenance(folder)
        if record not in provenances:
            provenances.append(record)
        index = provenances.index(record)
        runs.append(
            PublishedRun(run.id, run.seed, index, result.steps, result.seconds, result.weights)
        )
    return TableProvenance(table.study.data, tuple(table.corpora), tuple(provenances), tuple(runs))
