"""The name of a study belongs to one study file: both would be published to the same folder."""

from __future__ import annotations

import os
from pathlib import Path

from ablate.errors import StoreError, StudyError
from ablate.store import Results
from ablate.store.files import make_room, read_bytes, write_bytes
from ablate.study import Study
from ablate.study.names import folded_name
from ablate.study.yaml_nodes import parse_yaml, read_file


def refuse_other_study(study: Study, results: Results) -> None:
    """Refuse a study whose name belongs to another file: both would be published to one folder.

    A name is free again if the other file is gone or has another study name. A copy with the same
    text is not refused, because it is published alike; the name stays with the first file.

    Raises:
        StudyError: another study file has this name, or a name that a file system may confuse with
            this name.
    """
    for record in results.origins():
        if folded_name(record.name) != folded_name(study.name):
            continue
        origin = _origin(results, record)
        if origin in (None, study.path.resolve()):
            continue
        if _study_text(origin, study.name) in (None, study.source.text):
            continue
        _, node = parse_yaml(study.source.text, str(study.path)).value["study"]
        file = min(os.path.relpath(origin), str(origin), key=len)
        owner = f"{file}, whose table is in {results.study(record.name)}"
        message = (
            f'the name "{study.name}" belongs to {owner}; choose another name, or another --results'
        )
        raise node.mark.error(message)


def claim(study: Study, results: Results) -> None:
    """Record that the name of a study belongs to its file, before results/<study>/ is written.

    Raises:
        StudyError: as for `refuse_other_study`.
    """
    refuse_other_study(study, results)
    record, here = results.origin(study.name), study.path.resolve()
    origin = _origin(results, record)
    if origin is None or _study_text(origin, study.name) is None:
        make_room(record)
        write_bytes(record, f"{os.path.relpath(here, results.root.resolve())}\n".encode())


def _origin(results: Results, record: Path) -> Path | None:
    """The study file that a name belongs to; None if the record is missing or damaged."""
    try:
        recorded = (read_bytes(record) or b"").decode().strip()
    except (StoreError, UnicodeDecodeError):
        return None
    if not recorded or "\0" in recorded:
        return None
    return (results.root.resolve() / recorded).resolve()


def _study_text(path: Path, name: str) -> str | None:
    """Text of a study file of this name, empty if it cannot be read; None without such a file."""
    try:
        if not path.is_file():
            return None
        text = read_file(path)
        found = parse_yaml(text, str(path)).to_python().get("study")
    except (StudyError, AttributeError, PermissionError):
        return ""
    except OSError:  # a damaged record: no file can have this name
        return None
    return text if folded_name(str(found)) == folded_name(name) else None
