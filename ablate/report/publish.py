"""What a study leaves behind to be kept: its table in every form, the study file, and provenance."""

from __future__ import annotations

import json
from typing import Any

from ablate.errors import StoreError
from ablate.report.render import as_json, comma_separated, markdown
from ablate.report.table import Table
from ablate.store import Results
from ablate.store.files import write_bytes
from ablate.store.status import damage_of, read_provenance


def publish(table: Table, results: Results) -> None:
    """Write results/<study>/: table.md, table.csv, table.json, study.yaml and provenance.json.

    All of it is small, free of the corpus' text, and the same whenever the study is repeated: what a clock has measured
    is told by `ablate table`.

    Raises:
        StoreError: the study's folder is a symbolic link.
    """
    study = table.study
    folder = results.study(study.name)
    if folder.is_symlink():  # it may lead anywhere
        raise StoreError(f"{folder}: is a symbolic link, and a study is not published through one; remove it")
    files = {
        "table.md": markdown(table, against_paper=False),
        "table.csv": comma_separated(table, timed=False),
        "table.json": as_json(table, timed=False),
        "study.yaml": study.text,
        "provenance.json": json.dumps(provenance(table, results), indent=1) + "\n",
    }
    for name, content in files.items():
        write_bytes(folder / name, content.encode())


def provenance(table: Table, results: Results) -> dict[str, Any]:
    """The corpora and runs behind the table, and each different setting in which they were carried out."""
    settings: list[dict[str, Any]] = []
    runs: dict[str, dict[str, Any]] = {}
    for run in table.study.runs():
        folder = results.run(run.id)
        result = None if damage_of(folder) else folder.read_result()
        if result is None:
            continue
        found = read_provenance(folder)
        content = found.model_dump() if found else {}
        if content not in settings:
            settings.append(content)
        runs[run.id] = {
            "seed": run.seed,
            "carried_out": settings.index(content),
            "steps": result.steps,
            "seconds": result.seconds,
            "weights": result.weights.model_dump() if result.weights else None,
        }
    return {
        "data": table.study.data.model_dump(exclude={"folder"}),
        "corpora": list(table.corpora),
        "carried_out": settings,
        "runs": runs,
    }
