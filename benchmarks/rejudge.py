"""Judge a published table again by the present rule, from the scores by seed that it holds; nothing is trained.

python benchmarks/rejudge.py results/anatomy results/after-2017

Rewrites the differences, p values, verdicts and conclusion of table.md, table.csv and table.json. The resampled scores
of the test set are not part of a published table: their noise is taken as normal, with the width of the stored 95 %
interval. A remark in the table says so.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pandas as pd

from ablate.config.metrics import PPL, PPL_CHAR, TRANSLATION_METRICS, Metric
from ablate.formatting import interval_text, plural, signed
from ablate.report.conclusion import Judged, _sentences
from ablate.report.scores import verdict_json
from ablate.stats.bootstrap import RESAMPLES
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import PairedScores, Verdict, verdicts

METRICS: dict[str, Metric] = {metric.name: metric for metric in (PPL, PPL_CHAR, *TRANSLATION_METRICS)}
REMARK = (
    "Judged again from the scores by seed, without training: the noise of the test sentences is taken as normal, "
    "with the width of the 95 % interval of the bootstrap that was stored."
)
QUANTILES = [NormalDist().inv_cdf((i + 0.5) / RESAMPLES) for i in range(RESAMPLES)]


def judged(rows: list[dict[str, Any]], metric: str) -> list[Verdict]:
    """The verdicts on all rows but base, the first one."""
    base = rows[0][metric]["values"]
    return verdicts(METRICS[metric], [_paired(row, metric, base) for row in rows[1:]])


def _paired(row: dict[str, Any], metric: str, base: list[float]) -> PairedScores:
    assert len(row[metric]["values"]) == len(base), "a table with missing seeds does not say which are missing"
    differences = {seed: a - b for seed, (a, b) in enumerate(zip(row[metric]["values"], base, strict=True), 1)}
    test_set = row["against_base"][metric]["test_set"]
    resamples = {}
    if test_set:
        sd = (test_set["high"] - test_set["low"]) / (2 * NormalDist().inv_cdf(1 - LEVEL / 2))
        resamples = {seed: ([d + sd * z for z in QUANTILES], [0.0] * RESAMPLES) for seed, d in differences.items()}
    return PairedScores(differences, resamples, ended=len(base), base_ended=len(base))


def rejudge(folder: Path) -> None:
    content = json.loads((folder / "table.json").read_text())
    rows = content["rows"]
    if "conclusion" in content:
        sys.exit(f"{folder}: is judged by the present rule already")
    main = content["metrics"][1]
    found = {name: judged(rows, name) for name in rows[1]["against_base"]}
    for name, of_metric in found.items():
        for row, verdict in zip(rows[1:], of_metric, strict=True):
            row["against_base"][name] = verdict_json(verdict)
    said = _sentences(METRICS[main], [Judged(row["row"], v) for row, v in zip(rows[1:], found[main], strict=True)],
                      len(rows) - 1)  # fmt: skip
    content["remarks"] = [*content["remarks"], REMARK]
    content = {"study": content["study"], "conclusion": said, **content}
    (folder / "table.json").write_text(json.dumps(content, indent=1) + "\n")
    _rewrite_csv(folder / "table.csv", rows)
    _rewrite_markdown(folder / "table.md", found, main, said)


def _rewrite_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    frame = pd.read_csv(path, index_col="row", dtype=str, keep_default_na=False)
    for row in rows[1:]:
        for name, verdict in row["against_base"].items():
            for part in ("low", "high", "p", "p_holm", "least_told"):
                frame.loc[row["row"], f"delta_{name}_{part}"] = _text(verdict[part])
                if verdict["test_set"] and part != "least_told":
                    frame.loc[row["row"], f"test_set_{name}_{part}"] = _text(verdict["test_set"][part])
            frame.loc[row["row"], f"verdict_{name}"] = verdict["verdict"]
    path.write_text(frame.to_csv(lineterminator="\n"))


def _text(value: float | None) -> str:
    return "" if value is None else repr(value)


def _rewrite_markdown(path: Path, found: dict[str, list[Verdict]], main: str, said: list[str]) -> None:
    lines = path.read_text().splitlines()
    heads = [cell.strip() for cell in lines[0][1:-1].split("|")]
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[2 : len(found[main]) + 3]]
    for place, verdict in enumerate(found[main], 1):
        cells[place][heads.index("p (test set)")] = _p(verdict)
        cells[place][heads.index("verdict")] = verdict.short
        for name, of_metric in found.items():
            head = f"Δ{METRICS[name].title} [95 %]"
            if head in heads:
                cells[place][heads.index(head)] = _difference(of_metric[place - 1])
    heads[heads.index("p (test set)")] = "p (adj.)"
    table = [f"| {' | '.join(row)} |" for row in (heads, *cells)]
    seeds = found[main][0].n
    legend = {
        "- Δ:": "- Δ: mean difference from base, paired by seed, with an interval of at least 95 % for each row alone; "
                "it excludes 0 exactly if the verdict is worse or better.",
        "- p (test set):": "- p: the corrected p value of the verdict.",
        "- verdict:": f"- verdict: by {METRICS[main].title}. worse, better: beyond the noise of "
                      f"{plural(seeds, 'seed')} and of the test sentences (p < {LEVEL:g}, Holm-corrected over "
                      f"{plural(len(found[main]), 'row')}). cannot tell (d): not significant; d is the smallest "
                      "difference that this study could see.",
    }  # fmt: skip
    below = [next((new for start, new in legend.items() if line.startswith(start)), line)
             for line in lines[len(found[main]) + 3 :]]  # fmt: skip
    path.write_text("\n".join([" ".join(said), "", table[0], lines[1], *table[1:], *below, f"- {REMARK}"]) + "\n")


def _p(verdict: Verdict) -> str:
    if verdict.p is None:
        return ""
    return "<0.001" if verdict.p < 0.001 else f"{verdict.p:.3f}"


def _difference(verdict: Verdict) -> str:
    digits, text = verdict.metric.digits, signed(verdict.mean, verdict.metric.digits)
    test = verdict.seed_test
    return f"{text} {interval_text(test.low, test.high, digits)}" if test else text


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        assert not re.search(r"multi30k", argument), "one seed has no verdict"
        rejudge(Path(argument))
