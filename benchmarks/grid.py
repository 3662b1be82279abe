"""Processor time and memory of commands for studies of 10, 1,000 and 4,000 finished runs, and the
processor time that a launcher takes for each run that ends.

    python benchmarks/grid.py [--runs 10 1000 4000] [--seeds 5] [--verbs plan status table report]

The results are invented, with all files that a run of a translation leaves; nothing is trained.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from ablate.cli.live import LiveView
from ablate.store import Results
from ablate.store.machine import machine
from ablate.store.records import (
    Decoding,
    Execution,
    Measurement,
    MetricsLine,
    Provenance,
    Result,
    RunRecord,
    Score,
    ScoreCache,
)
from ablate.store.score_cache import score_source
from ablate.study import Run, Study, read_study, runs_of

CORPUS = "0123456789ab"
VERBS = ("plan", "status", "table", "report")
RESAMPLES = 1000
LAST = 100  # runs that end while the launcher's view is measured


def study_of(runs: int, seeds: int, folder: Path) -> Path:
    """Write a study with this number of runs: one row per value of dropout."""
    rates = ", ".join(f"{i / 10_000:.4f}" for i in range(1001, 1001 + runs // seeds - 1))
    path = folder / f"grid-{runs}.yaml"
    path.write_text(
        f"study: grid-{runs}\ndata: {{corpus: toy, vocab_size: 350}}\nbase: "
        f"{{N: 2, d_model: 64, d_ff: 256, h: 4}}\n"
        f"seeds: [{', '.join(map(str, range(1, seeds + 1)))}]\nrows:\n  D: "
        f"{{each: {{dropout: [{rates}]}}}}\n"
    )
    return path


def finish(content: Study, results: Results) -> list[Run]:
    """Write the files of finished runs; returns the runs in the order of execution."""
    provenance = Provenance(machine=machine(), device="cpu", threads=1)
    execution = Execution(
        training="e" * 12, device="cpu", threads=1, micro_batch_tokens=4096, precision="fp32"
    )
    runs = list(runs_of(content))
    for index, run in enumerate(runs):
        folder, draw = results.run(run.id), random.Random(index)
        data = run.data.model_dump(mode="json", exclude={"folder"})
        RunRecord(id=run.id, seed=run.seed, config=run.config, data=data).write(folder.run)
        provenance.write(folder.provenance)
        execution.write(folder.execution)
        bleu = draw.gauss(25, 1)
        log = log_of(bleu / 5)
        folder.metrics.write_bytes(log)
        predictions = b"the old dog sleeps near the river\n" * 1000
        sha256, decodings = hashlib.sha256(predictions).hexdigest(), {}
        for id, config in run.decodings.items():
            for path in (folder.predictions(id), folder.scores(id)):
                path.parent.mkdir(exist_ok=True)
            folder.predictions(id).write_bytes(predictions)
            resamples = tuple(bleu + draw.gauss(0, 0.5) for _ in range(RESAMPLES))
            measured = Measurement(value=bleu, signature="nrefs:1", resamples=resamples)
            source = score_source(sha256, CORPUS)
            ScoreCache(source=source, metrics={"bleu": measured}).write(
                folder.scores(id), durable=False
            )
            scores = {"ppl": bleu / 5, "ppl_char": bleu / 10, "bleu": bleu}
            decodings[id] = Decoding(
                test="test", corpus=CORPUS, beam=config.beam, alpha=config.alpha,
                max_extra_length=config.max_extra_length, average_checkpoints=1, averaged=1,
                scores={name: Score(value=value, signature="nrefs:1") for name, value in scores.items()},
                n_predictions=1000, sha256=sha256, seconds=1.0,
            )  # fmt: skip
        Result(
            id=run.id, corpus=CORPUS, outcome="done", steps=100, params=253_820, seconds=60.0,
            micro_batch_tokens=4096, halvings=0, metrics_sha256=hashlib.sha256(log).hexdigest(),
            chosen_step=100, checkpoints_made=1, tokens=100_000, kept_steps=(100,), decodings=decodings,
        ).write(folder.result, durable=False)  # fmt: skip
    return runs


def log_of(perplexity: float) -> bytes:
    """metrics.jsonl of a run of 100 steps, which was evaluated at each tenth."""
    lines = []
    for step in range(10, 101, 10):
        line = MetricsLine(step=step, tokens=1000 * step, dev_perplexity=perplexity + 100 / step)
        lines.append(line.model_dump_json() + "\n")
    return "".join(lines).encode()


def seconds_per_run(content: Study, runs: list[Run], results: Results) -> float:
    """Processor time of the launcher's view for each of the last runs that end."""
    last = runs[-LAST:]
    for run in last:
        folder = results.run(run.id)
        folder.result.rename(folder.result.with_suffix(".later"))
    with (
        Path(os.devnull).open("w") as nowhere,
        LiveView(runs_of(content), results, Console(file=nowhere)) as view,
    ):
        view.begin()
        for index, run in enumerate(last):
            if index == 1:  # before the first end, every run is read once
                start = time.process_time()
            view.started(run.id)
            folder = results.run(run.id)
            folder.result.with_suffix(".later").rename(folder.result)
            view.finished(run.id, "done")
            view.tick()
        return (time.process_time() - start) / (len(last) - 1)


def measure(verb: str, study: Path, root: Path) -> tuple[float, float]:
    """Measure one command: (processor time in seconds, peak resident memory in MB)."""
    command = [
        sys.executable,
        "-m",
        "ablate",
        verb,
        str(study),
        "--results",
        str(root),
        *(["--out", str(root / "report.html")] if verb == "report" else ["--format", "json"]),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[10, 1000, 4000])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--verbs", nargs="+", default=VERBS)
    arguments = parser.parse_args()
    for runs in arguments.runs:
        with tempfile.TemporaryDirectory() as folder:
            root, study = Path(folder, "results"), study_of(runs, arguments.seeds, Path(folder))
            content, results = read_study(study), Results(root)
            written = finish(content, results)
            for verb in arguments.verbs:
                seconds, memory = measure(verb, study, root)
                print(
                    f"{len(written):6,} runs  {verb:7} {seconds:6.2f} s  {memory:5.0f} MB",
                    flush=True,
                )
            milliseconds = 1000 * seconds_per_run(content, written, results)
            print(f"{len(written):6,} runs  launcher {milliseconds:5.1f} ms a run", flush=True)


if __name__ == "__main__":
    main()
