"""A study of 20 rows after Table 3 on Multi30k, as long as the time allows by the measured rate.

python study.py prepare | run
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from common import DRY, OUT, left
from runs import ABLATE, KIND, facts

WORK = Path(os.environ["WORK"])
DATA = Path(os.environ["DATA"])
ROWS, TOKENS, JOBS = 20, (512 if DRY else 4096), (2 if DRY else 10)
RATE, LAYERS, FIXED = (
    700_000.0,
    1.6,
    55.0,
)  # tokens/s without a measurement; costs beside XS; start, decoding
STUDY = """\
# Table 3 on Multi30k on one GPU in a few minutes: {steps} steps of {tokens} tokens, {jobs} runs at once, one seed.
study: table3-gpu
data: {data}
base: {{N: {N}, d_model: {d}, d_ff: {ff}, h: 4, dropout: 0.1, norm_position: pre, train_steps: {steps}, batch_tokens: {tokens},
  warmup_steps: {warmup}, schedule: linear, learning_rate: 0.004, eval_every: {every}, checkpoint_every: {save},
  average_checkpoints: 3, beam: 4, alpha: 1.0}}
seeds: [1]
rows:
"""
TABLE = """\
  A: {each: {h: [1, 2, 8]}}
  B: {each: {d_k: [8, 16]}}
  C: {each: {N: [1, 2, 4], d_model: [64, 256], d_ff: [128, 1024]}}
  D: {each: {dropout: [0.0, 0.2], label_smoothing: [0.0, 0.2]}}
  E: {each: {positional_encoding: [learned, none]}}
  big: {set: {d_model: 256, d_ff: 1024, h: 8, dropout: 0.3}}
"""


def steps_that_fit(seconds: float) -> int:
    """By the sum of 8 runs at once, which benchmarks/gpu.py has measured, if it has."""
    rate, file = RATE, OUT / "figures.jsonl"
    for line in file.read_text().splitlines() if file.exists() else ():
        values = json.loads(line)
        if values.get("kind") == "jobs" and values.get("jobs", 0) >= 8:
            rate = float(values["tokens_per_s"])
    tokens = max(0.0, seconds - FIXED) * rate / LAYERS / ROWS
    steps = int(tokens / (0.93 * TOKENS))
    return max(250, min(2000, steps // 50 * 50))


def write(steps: int) -> Path:
    path = WORK / "table3-gpu.yaml"
    size = {"N": 1, "d": 32, "ff": 64} if DRY else {"N": 3, "d": 128, "ff": 512}
    save = max(1, steps // 10)
    data = f"{{corpus: multi30k, direction: en-de, vocab_size: 4000, folder: {DATA}}}"
    if DRY:
        data = "{corpus: toy, vocab_size: 350}"
    text = STUDY.format(
        steps=steps,
        tokens=TOKENS,
        jobs=JOBS,
        data=data,
        warmup=max(1, steps // 10),
        every=5 * save,
        save=save,
        **size,
    )
    path.write_text(text + ("  A: {each: {h: [1]}}\n" if DRY else TABLE))
    return path


def main() -> None:
    results = WORK / "study"
    if sys.argv[1] == "prepare":
        code = subprocess.call(
            [*ABLATE, "data", "prepare", str(write(100)), "--results", str(results)]
        )
        print("prepared", code, flush=True)
        sys.exit(code)
    steps = 10 if DRY else steps_that_fit(left())
    path, start = write(steps), time.monotonic()
    print(f"{steps} steps in {left():.0f} s", flush=True)
    words = [str(path), "--results", str(results)]
    with (WORK / "study.log").open("w") as log:
        run = subprocess.Popen(
            [*ABLATE, "run", *words, "--device", KIND, "--jobs", str(JOBS)],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            code = run.wait(timeout=max(10.0, left() - 15))
        except subprocess.TimeoutExpired:
            run.terminate()
            code = run.wait(timeout=15)
    wall = time.monotonic() - start
    report = OUT / "study.md"
    runs = facts(results)
    head = (
        f"# table3-gpu: {steps} steps, {JOBS} at once on {KIND}, {wall:.0f} s, exit code {code}\n\n"
    )
    report.write_text(head + (WORK / "study.log").read_text()[-4000:])
    for kind in ("markdown", "json"):
        done = subprocess.run([*ABLATE, "table", *words, "--format", kind, "--cost"] if kind == "markdown" else
                              [*ABLATE, "table", *words, "--format", kind], capture_output=True, text=True, timeout=60)  # fmt: skip
        with report.open("a") as file:
            file.write(f"\n\n## table, {kind}\n\n{done.stdout[-60_000:]}{done.stderr[-500:]}\n")
        print(done.stdout[-4500:] if kind == "markdown" else "", flush=True)
    with report.open("a") as file:
        file.write(
            "\n\n## runs\n\n"
            + "\n".join(json.dumps(one) for one in runs)
            + "\n\n## study\n\n"
            + path.read_text()
        )
    published = WORK / "published"
    subprocess.run([*ABLATE, "publish", *words, "--out", str(published)], timeout=60, check=False)
    if published.exists():
        shutil.make_archive(str(OUT / "study"), "gztar", published)
    sys.exit(code)


if __name__ == "__main__":
    main()
