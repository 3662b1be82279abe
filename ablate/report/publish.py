"""Publication: the folder of a study's files, its provenance, and the claim of a study's name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ablate.analysis.outcome import Outcome
from ablate.analysis.position import record_judgment
from ablate.config.data import CorpusConfig
from ablate.errors import StoreError, StudyError
from ablate.store import Results, if_readable
from ablate.store.files import make_room, read_bytes, write_bytes
from ablate.store.records import Provenance, Result
from ablate.store.status import damage_of
from ablate.study import Study
from ablate.study.names import folded_name
from ablate.study.yaml_nodes import parse_yaml, read_file
from ablate.table.render import as_json, comma_separated, markdown


def refuse_other_study(study: Study, results: Results) -> None:
    """Refuse a study whose name belongs to another file: both would be published to one folder.

    A name is free again once the file is gone, has another name in it, or has the same text.

    Raises:
        StudyError: another study file has this name, or one that file systems may not tell from it.
    """
    for record in results.origins():
        origin = _origin(results, record)
        if folded_name(record.name) != folded_name(study.name):
            continue
        if origin in (None, study.path.resolve()) or not _is_other_study(origin, study):
            continue
        _, node = parse_yaml(study.source.text, str(study.path)).value["study"]
        file = min(os.path.relpath(origin), str(origin), key=len)
        owner = f"{file}, whose table is in {results.study(record.name)}"
        message = (
            f'the name "{study.name}" belongs to {owner}; choose another name, or another --results'
        )
        raise node.mark.error(message)


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
    if not recorded or "\0" in recorded:
        return None
    return (results.root.resolve() / recorded).resolve()


def _is_other_study(path: Path, study: Study) -> bool:
    """Whether a file is another study of this name; one that cannot be read counts as one."""
    try:
        if not path.is_file():
            return False
        text = read_file(path)
        name = parse_yaml(text, str(path)).to_python().get("study")
    except (StudyError, AttributeError, PermissionError):
        return True
    except OSError:  # a damaged record: no file can have this name
        return False
    return text != study.source.text and folded_name(str(name)) == folded_name(study.name)


def publish(
    outcome: Outcome,
    results: Results,
    folder: Path | None = None,
    more: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Write the table in three formats, the study, its provenance and `more`; return their names.

    The files are small, contain no text of the corpus, and are the same each time the study is
    repeated: they have no measured times.

    Args:
        outcome: of the study.
        results: the results root that it was read from.
        folder: to write to; None for the study's folder in the results root.
        more: further files, by name.

    Raises:
        StoreError: the folder is a symbolic link, has a folder in the place of a file, or has a
            file that was not published for this study. Nothing is written then.
    """
    table, study = without_paths(outcome, results).table, outcome.study
    # The folder has no predictions of any run.
    table = table.with_notes(replace(table.experiment.notes, archived=()))
    own = results.study(study.name)
    folder = folder or own
    texts = {
        "table.md": markdown(table, against_paper=False),
        "table.csv": comma_separated(table, timed=False),
        "table.json": as_json(table, timed=False),
        "study.yaml": study.source.text,
        "provenance.json": json.dumps(provenance_of(outcome, results).as_json(), indent=1) + "\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    files |= more or {}
    # All is refused before any file is written: all of them belong to one table.
    if folder.is_symlink():  # it may point outside of the results root
        raise StoreError(
            f"{folder}: is a symbolic link, and a study is not published through one; remove it"
        )
    for name in files:
        if (folder / name).is_dir():
            raise StoreError(
                f"{folder / name}: is a folder, where the published study has a file; move it away"
            )
    if folder != own:  # which `claim` has given to this study
        _refuse_files_of_others(folder, files, study)
    # First the two by which the next publication knows this one, which may be interrupted.
    for name in dict.fromkeys(("study.yaml", "table.json", *files)):
        write_bytes(folder / name, files[name], durable=name in texts)
    return list(files)


def without_paths(outcome: Outcome, results: Results) -> Outcome:
    """The outcome with lines on damaged files that name them relative to the results root, as this
    machine's folders are nobody else's business.
    """
    roots: dict[str, str] = {}
    for folder, name in (
        (results.corpora, "corpora"),
        (results.root, ""),
        (outcome.study.path.parent, ""),
        (Path.home(), "~"),
    ):
        for path in (folder, folder.absolute(), folder.resolve()):
            if path.is_absolute() and path != Path(path.root):
                roots.setdefault(f"{path}/", f"{name}/" if name else "")
    inner_first = sorted(roots, key=len, reverse=True)
    # Only where a path begins: /data/ is no root within /other/data/x.
    root = re.compile(rf"(?<![\w./~-])({'|'.join(map(re.escape, inner_first))})")

    def shown(line: str) -> str:
        return root.sub(lambda found: roots[found[0]], line)

    table = outcome.table
    rows = []
    for row in table.rows:
        runs = tuple(replace(run, note=shown(run.note)) for run in row.runs)
        rows.append(replace(row, row=replace(row.row, runs=runs)))
    notes = table.experiment.notes
    notes = replace(
        notes, faults=tuple(map(shown, notes.faults)), remarks=tuple(map(shown, notes.remarks))
    )
    table = replace(table, rows=tuple(rows)).with_notes(notes)
    return replace(outcome, table=table)


def publish_results(study: Study, outcome: Outcome, results: Results) -> None:
    """Write the table of a whole study to its folder, and record that it was judged."""
    publish(outcome, results)
    record_judgment(study, results)


def _refuse_files_of_others(folder: Path, files: Mapping[str, bytes], study: Study) -> None:
    """Refuse to replace a file in a folder to which this study has not been published before."""
    try:
        table = json.loads(read_bytes(folder / "table.json") or b"{}")
        if table.get("study") == study.name and (folder / "study.yaml").exists():
            return
    except (ValueError, AttributeError):  # not a table.json of ours
        pass
    for name, content in files.items():
        path = folder / name
        if path.exists() and not (name == "study.yaml" and read_bytes(path) == content):
            raise StoreError(
                f"{path}: was not published for {study.path}, and would be replaced; "
                "choose another folder"
            )


class PublishedRun(NamedTuple):
    """A run behind a table; `made_with`: index of its provenance."""

    seed: int
    made_with: int
    result: Result


@dataclass(frozen=True)
class TableProvenance:
    """Corpora and runs behind a table, by id, and distinct provenances (None: unreadable)."""

    data: CorpusConfig
    corpora: tuple[str, ...]
    provenances: tuple[Provenance | None, ...]
    runs: Mapping[str, PublishedRun]

    def as_json(self) -> dict[str, Any]:
        """The content of provenance.json; each run has the index of its `carried_out`."""
        runs = {}
        for id, (seed, made_with, result) in self.runs.items():
            runs[id] = {
                "seed": seed,
                "carried_out": made_with,
                "steps": result.steps,
                "seconds": result.seconds,
                "weights": result.weights and result.weights.model_dump(),
            }
        return {
            "data": self.data.model_dump(exclude={"folder"}),
            "corpora": list(self.corpora),
            "carried_out": [made.model_dump() if made else {} for made in self.provenances],
            "runs": runs,
        }


def provenance_of(outcome: Outcome, results: Results) -> TableProvenance:
    """Read the provenance of a table: every run that has a result."""
    provenances: list[Provenance | None] = []
    runs = {}
    for run in outcome.study.all_runs():
        folder = results.run(run.id)
        result = None if damage_of(folder) else folder.read_result()
        if result is None:
            continue
        record = if_readable(folder.read_provenance)
        if record not in provenances:
            provenances.append(record)
        runs[run.id] = PublishedRun(run.seed, provenances.index(record), result)
    data, corpora = outcome.study.data, outcome.experiment.corpora
    return TableProvenance(data, corpora, tuple(provenances), runs)
