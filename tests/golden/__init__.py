"""The golden net: what a change of the structure must leave as it is.

`python -m tests.golden` writes `expected/`; `git diff` then shows what a change has moved. The net
holds the ids of all runs, the schema of the study file, the English of refusals, the verdicts on
five score files in every format, and three published tables in LaTeX and HTML. Other tests hold the rest: Markdown, CSV and
JSON of all published tables (tests/report/test_published.py), the help texts (docs/commands.md),
exact resume and runs of two processes (tests/end_to_end).
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ablate.analysis.tuning_runs import with_tuning_runs
from ablate.study import read_study, runs_of
from docs import hooks
from tests.cli.inside import inside
from tests.golden.faults import rewritten

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected"
ROOT = FOLDER.parents[1]
SCORES = {  # file: options of `judge`
    "long.csv": ("--metric", "eval_loss", "--metric", "accuracy"),
    "wide.jsonl": ("--margin", "0.5"),
    "wandb.csv": (),
    "mlflow.csv": (),
    "items.csv": (),
}
# Sizes with further seeds of base; a factorial with interactions; tuning with matched parameters.
STUDIES = ("ladder", "factorial", "tuned")
TRANSCRIPTS = ("faults-study.txt", "faults-usage.txt")  # see `faults`


def run_ids() -> str:
    """The ids of the runs of every study of the repository."""
    ids = {}
    for path in hooks.studies():
        ids[path.stem] = sorted(run.id for run in with_tuning_runs(runs_of(read_study(path))))
    return json.dumps(ids, indent=1) + "\n"


def schema() -> str:
    """A hash of each part of the schema, by its path: the whole has 150 kB."""
    hashes = {}
    for path, part in _parts("", json.loads(inside("init", "--schema").out)):
        hashes[path] = hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12]
    return json.dumps(hashes, indent=1) + "\n"


def _parts(path: str, content: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, part in content.items():
        if name in ("properties", "definitions", "$defs") and isinstance(part, dict):
            yield from _parts(f"{path}/{name}", part)
        else:
            yield f"{path}/{name}", part


def judged(name: str) -> str:
    """The texts of `judge` on a score file, one format after another."""
    texts = []
    for form in ("text", "markdown", "latex", "html"):
        done = inside("judge", FOLDER / "scores" / name, *SCORES[name], "--format", form)
        assert done.code == 0, done
        texts.append(f"==== {form}\n{done.out}{done.err}")
    return "\n".join(texts)


def table(study: str) -> str:
    """A published table in LaTeX and HTML."""
    texts = []
    with TemporaryDirectory() as root, zipfile.ZipFile(_records(study)) as records:
        records.extractall(root)
        for form in ("latex", "html"):
            words = (ROOT / f"studies/{study}.yaml", "--results", root, "--format", form)
            done = inside("table", *words)
            assert done.code == 0, done
            texts.append(f"==== {form}\n{done.out}")
    return "\n".join(texts)


def _records(study: str) -> Path:
    return ROOT / f"results/{study}/records.zip"


def net() -> dict[str, Callable[[], str]]:
    """Everything in the net, by the name of its file in `expected/`."""
    files: dict[str, Callable[[], str]] = {"run_ids.json": run_ids, "schema.json": schema}
    for name in TRANSCRIPTS:
        files[name] = lambda name=name: rewritten((EXPECTED / name).read_text(encoding="utf-8"))
    for name in SCORES:
        files[f"judge-{name}.txt"] = lambda name=name: judged(name)
    for study in STUDIES:
        files[f"table-{study}.txt"] = lambda study=study: table(study)
    return files
