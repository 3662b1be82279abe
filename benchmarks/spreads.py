"""Spread over seeds, and differences from base, of the published studies: what `ablate plan` takes
for a study without runs.

python benchmarks/spreads.py > ablate/plan/spreads.json
python benchmarks/spreads.py state                       of this study alone

Both are of a study's main metric and of perplexity: the standard deviation that its rows share over
seeds, that of a difference over test sentences, and the absolute mean difference of each row from
its base.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.outcome import outcome_of
from ablate.plan.power import power_of, training_size
from ablate.store import Results
from ablate.store.corpora import lengths_in
from ablate.study import Runs, read_study
from ablate.table.table import Table

PUBLISHED = Path(__file__).parents[1] / "results"


def spreads_in(folder: Path) -> list[dict[str, Any]]:
    """What is stated of a published study, from the records in a folder that `ablate publish` wrote."""
    with tempfile.TemporaryDirectory() as unpacked, zipfile.ZipFile(folder / "records.zip") as file:
        file.extractall(unpacked)
        results = Results(Path(unpacked))
        planned = runs_with_choices(
            read_study(PUBLISHED.parent / f"studies/{folder.name}.yaml"), results
        )
        return spreads(planned, results, outcome_of(planned, results).table)


def spreads(planned: Runs, results: Results, table: Table) -> list[dict[str, Any]]:
    """The spreads and the differences of a study, from its results; the main metric is first."""
    study, stated = planned.study, list[dict[str, Any]]()
    lengths = lengths_in(results.corpus(table.experiment.corpora[0]))
    text, trained = training_size(planned, lengths)
    for power in power_of(planned, results):
        differences = []
        for verdict in table.verdicts(power.metric):
            if verdict.mean is not None:
                differences.append(_rounded(abs(verdict.mean)))
        stated.append(
            {
                "study": study.name,
                "task": study.task_name,
                "corpus": study.data.corpus,
                "metric": power.metric.name,
                "is_main": not stated,
                "sd": _rounded(power.sd),
                "sentences": _rounded(power.sentences),
                "text": text,
                "trained": trained,
                "differences": sorted(differences),
            }
        )
    return stated


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    folders = sorted(path.parent for path in PUBLISHED.glob("*/table.md"))
    chosen = [folder for folder in folders if folder.name in (sys.argv[1:] or [folder.name])]
    lines = []
    for folder in chosen:
        lines += map(json.dumps, spreads_in(folder))
    sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
