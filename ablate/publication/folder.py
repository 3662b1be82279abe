"""The folder of a study's published files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ablate.analysis.judgments import record_judgment
from ablate.analysis.outcome import Outcome
from ablate.errors import StoreError
from ablate.publication.provenance import provenance_of
from ablate.store import Results
from ablate.store.files import read_bytes, write_bytes
from ablate.study import Runs, Study
from ablate.table.render import as_json, comma_separated, markdown

TEXTS = ("table.md", "table.csv", "table.json", "study.yaml", "provenance.json")


def publish(
    outcome: Outcome,
    results: Results,
    folder: Path | None = None,
    more: Mapping[str, bytes] | None = None,
) -> list[str]:
    """Write TEXTS (the table in three formats, the study, its provenance) and further files by
    name, and return their names. They are written to the study's folder in the results root, if no
    folder is given.

    The files are small and contain no text of the corpus. The tables are the same each time the
    study is repeated: they have no measured times.

    Raises:
        StoreError: the folder is a symbolic link, has a folder in the place of a file, or has a
            file that was not published for this study. Nothing is written then.
    """
    outcome = publishable(outcome, results)
    table, study = outcome.table, outcome.study
    own = results.study(study.name)
    folder = folder or own
    texts = (
        markdown(table, against_paper=False),
        comma_separated(table, timed=False),
        as_json(table, timed=False),
        study.source.text,
        json.dumps(provenance_of(outcome, results).as_json(), indent=1) + "\n",
    )
    files = {name: text.encode() for name, text in zip(TEXTS, texts, strict=True)}
    files |= more or {}
    # Every refusal comes before the first file is written, because the files belong together.
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
    # First the two files by which a later publication recognizes this one, if it is interrupted.
    for name in dict.fromkeys(("study.yaml", "table.json", *files)):
        write_bytes(folder / name, files[name], durable=name in TEXTS)
    return list(files)


def publishable(outcome: Outcome, results: Results) -> Outcome:
    """The outcome for publication: without paths of this machine, and without the note about runs
    without predictions, because a published folder never has predictions. A run that is not
    finished is pending, because a published folder has no checkpoints.
    """
    outcome = without_paths(outcome, results)
    notes = replace(outcome.experiment.notes, archived=())
    rows = []
    for row in outcome.table.rows:
        runs = []
        for run in row.runs:
            if run.state in ("running", "interrupted"):
                run = replace(run, state="pending", note="")
            runs.append(run)
        rows.append(replace(row, runs=tuple(runs)))
    table = replace(outcome.table, rows=tuple(rows))
    return replace(outcome, table=table.with_notes(notes))


def without_paths(outcome: Outcome, results: Results) -> Outcome:
    """The outcome with paths relative to the results root in all lines on damaged files, so that
    nothing shows the folders of this machine.
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
        rows.append(replace(row, runs=runs))
    notes = table.experiment.notes
    notes = replace(
        notes, faults=tuple(map(shown, notes.faults)), remarks=tuple(map(shown, notes.remarks))
    )
    table = replace(table, rows=tuple(rows)).with_notes(notes)
    return replace(outcome, table=table)


def publish_results(planned: Runs, outcome: Outcome, results: Results) -> None:
    """Write the table of a whole study to its folder, and record that the study was judged."""
    publish(outcome, results)
    record_judgment(planned, results)


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
