"""How `plan`, `status` and `table` grow with a study: seconds and memory at 10, 1,000 and 10,000 finished runs.

    python benchmarks/grid.py [--runs 10 1000 10000]

The results are made up, with the files that a finished run leaves; nothing is trained.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablate.store import Results
from ablate.store.files import write_json
from ablate.store.layout import RESULT_FORMAT
from ablate.study import read_study

SEEDS = 5
PROVENANCE = {"device": "cpu", "threads": 1, "packages": {}, "machine": {"processor": "some"}}
VERBS = ("plan", "status", "table")


def study_of(runs: int, folder: Path) -> Path:
    """A study of that many runs: a row a value of the dropout, five seeds."""
    rates = ", ".join(f"{i / 10_000:.4f}" for i in range(1001, 1001 + runs // SEEDS - 1))
    path = folder / f"grid-{runs}.yaml"
    path.write_text(
        f"study: grid-{runs}\ndata: {{corpus: toy, vocab_size: 350}}\nbase: {{N: 2, d_model: 64, d_ff: 256, h: 4}}\n"
        f"seeds: [{', '.join(map(str, range(1, SEEDS + 1)))}]\nrows:\n  D: {{each: {{dropout: [{rates}]}}}}\n"
    )
    return path


def finish(study: Path, results: Results) -> int:
    """Leave what finished runs leave; how many there are."""
    content, count = read_study(study), 0
    for place, row in enumerate(content.rows):
        for run in content.runs_of(row):
            folder, score = results.run(run.id), 20 + (place % 97) / 10 + run.seed / 10
            decoding = {
                "corpus": "0123456789ab", "ppl": score / 5, "ppl_char": score / 10, "bleu": score, "seconds": 1.0,
                "signature": "nrefs:1",
            }  # fmt: skip
            write_json(folder.progress, {"phase": "left", "step": 100, "steps": 100, "seconds": 60.0}, durable=False)
            write_json(folder.provenance, PROVENANCE, durable=False)
            result = {
                "format": RESULT_FORMAT, "id": run.id, "corpus": "0123456789ab", "steps": 100, "params": 253_820,
                "seconds": 60.0, "micro_batch_tokens": 4096, "halvings": 0, "outcome": "done", "chosen_step": 100,
                "checkpoints_made": 1, "tokens": 100_000, "kept_steps": [100], "decodings": {row.decoding: decoding},
            }  # fmt: skip
            write_json(folder.result, result, durable=False)
            count += 1
    return count


def measure(verb: str, study: Path, root: Path) -> tuple[float, float]:
    """Wall-clock seconds and peak resident MB of one command."""
    words = [sys.executable, "-m", "ablate.cli", verb, str(study), "--results", str(root), "--format", "json"]
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(words)}: failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 1000, 10_000])
    for runs in parser.parse_args().runs:
        with tempfile.TemporaryDirectory() as folder:
            root, study = Path(folder, "results"), study_of(runs, Path(folder))
            there = finish(study, Results(root))
            for verb in VERBS:
                seconds, memory = measure(verb, study, root)
                print(f"{there:6,} runs  {verb:7} {seconds:6.2f} s  {memory:5.0f} MB", flush=True)


if __name__ == "__main__":
    main()
