"""Time and memory of `plan`, `status` and `table` for studies of 10, 1,000 and 10,000 finished
runs.

    python benchmarks/grid.py [--runs 10 1000 10000]

The results are invented; nothing is trained.
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
from ablate.store.machine import machine
from ablate.store.records import Decoding, Provenance, Result, Score
from ablate.study import read_study

SEEDS = 5
CORPUS = "0123456789ab"
VERBS = ("plan", "status", "table")


def study_of(runs: int, folder: Path) -> Path:
    """Write a study with this number of runs: one row per value of dropout, five seeds."""
    rates = ", ".join(f"{i / 10_000:.4f}" for i in range(1001, 1001 + runs // SEEDS - 1))
    path = folder / f"grid-{runs}.yaml"
    path.write_text(
        f"study: grid-{runs}\ndata: {{corpus: toy, vocab_size: 350}}\nbase: "
        f"{{N: 2, d_model: 64, d_ff: 256, h: 4}}\n"
        f"seeds: [{', '.join(map(str, range(1, SEEDS + 1)))}]\nrows:\n  D: "
        f"{{each: {{dropout: [{rates}]}}}}\n"
    )
    return path


def finish(study: Path, results: Results) -> int:
    """Write the files of finished runs; returns the number of runs."""
    content, count = read_study(study), 0
    provenance = Provenance(machine=machine(), device="cpu", threads=1)
    for index, row in enumerate(content.rows):
        for run in content.runs_of(row):
            folder, score = results.run(run.id), 20 + (index % 97) / 10 + run.seed / 10
            scores = {"ppl": score / 5, "ppl_char": score / 10, "bleu": score}
            decoding = Decoding(
                test="test", corpus=CORPUS, beam=row.config.beam, alpha=row.config.alpha,
                max_extra_length=row.config.max_extra_length, average_checkpoints=1, averaged=1,
                scores={name: Score(value=value, signature="nrefs:1") for name, value in scores.items()},
                predictions=None, sha256=None, seconds=1.0,
            )  # fmt: skip
            provenance.write(folder.provenance)
            Result(
                id=run.id, corpus=CORPUS, outcome="done", steps=100, params=253_820, seconds=60.0,
                micro_batch_tokens=4096, halvings=0, metrics_sha256="", chosen_step=100, checkpoints_made=1,
                tokens=100_000, kept_steps=(100,), decodings={row.decoding: decoding},
            ).write(folder.result)  # fmt: skip
            count += 1
    return count


def measure(verb: str, study: Path, root: Path) -> tuple[float, float]:
    """Measure one command: (wall-clock seconds, peak resident memory in MB)."""
    command = [
        sys.executable,
        "-m",
        "ablate",
        verb,
        str(study),
        "--results",
        str(root),
        "--format",
        "json",
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 1000, 10_000])
    for runs in parser.parse_args().runs:
        with tempfile.TemporaryDirectory() as folder:
            root, study = Path(folder, "results"), study_of(runs, Path(folder))
            runs_written = finish(study, Results(root))
            for verb in VERBS:
                seconds, memory = measure(verb, study, root)
                print(
                    f"{runs_written:6,} runs  {verb:7} {seconds:6.2f} s  {memory:5.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
