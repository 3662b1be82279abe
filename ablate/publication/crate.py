"""The published folder as an RO-Crate: what each file is, for archives and search engines."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterable
from datetime import date

from ablate.analysis.outcome import Outcome

METADATA = "ro-crate-metadata.json"
_DESCRIPTIONS = {
    "table.md": "Table of the study with its verdicts",
    "table.csv": "Table of the study, a line for each row",
    "table.json": "Table of the study with every score",
    "table.tex": "Table of the study in LaTeX",
    "study.yaml": "Study file, from which the runs are repeated",
    "provenance.json": "Corpora, code, machines and hashes of weights of each run",
    "records.zip": "Records of each run, from which the table is computed again",
    "methods.md": "Methods, compute and limitations",
    "checklists.md": "Answers for the checklists of NeurIPS and ACL",
    "paper.tex": "A page with table, methods and references",
    "references.bib": "References of the methods",
}


def crate(outcome: Outcome, files: Iterable[str]) -> bytes:
    """The metadata of the crate: the files, by their names, and the versions of ablate that made
    the runs.
    """
    from rocrate.model.contextentity import ContextEntity  # loads requests
    from rocrate.rocrate import ROCrate

    name = outcome.study.name
    content = ROCrate()
    content.name = f"Ablation study {name}"
    content.description = f"Table, records and methods of the ablation study {name} of Transformers"
    content.datePublished = date.today().isoformat()
    versions = set[str]()
    for run in outcome.runs:
        parts = run.provenance.all_parts if run.provenance else ()
        versions.update(part.ablate.text for part in parts if part.ablate)
    for number, version in enumerate(sorted(versions), 1):
        properties = {"@type": "SoftwareApplication", "name": version}
        software = ContextEntity(content, f"#ablate-{number}", properties=properties)
        content.root_dataset.append_to("mentions", content.add(software))
    for file in files:
        kind = mimetypes.guess_type(file)[0] or "text/plain"
        properties = {"name": file, "encodingFormat": kind}
        properties["description"] = _DESCRIPTIONS.get(file, f"Figure {file}")
        content.add_file(dest_path=file, properties=properties)
    return (json.dumps(content.metadata.generate(), indent=1) + "\n").encode()
