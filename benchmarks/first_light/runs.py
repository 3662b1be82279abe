"""Whole studies by the command line: the quickstart, several runs at once; a run that is interrupted
and resumed beside one that is not; `ablate verify`. All at the same time: nothing here is timed finely."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import DRY, Lines, left

WORK = Path(os.environ["WORK"])
ROOT = Path(os.environ["ROOT"])
ABLATE = [sys.executable, "-m", "ablate"]
KIND = "cpu" if DRY else "cuda"
lines = Lines("runs.jsonl")
STUDY = """\
study: resume{name}
data: {{corpus: toy, vocab_size: 350}}
base: {{N: 2, d_model: 64, d_ff: 256, h: 4, train_steps: {steps}, batch_tokens: 1024, warmup_steps: 100,
  eval_every: {every}, checkpoint_every: {every}, deterministic: {deterministic}, precision: {precision}, beam: 1}}
seeds: [1]
rows:
  norm: {{set: {{norm_position: pre, norm: rmsnorm, positional_encoding: rope}}}}
"""


def study(name: str, deterministic: bool) -> Path:
    steps, every = (24, 12) if DRY else (600, 200)
    path = WORK / f"resume{name}.yaml"
    precision = "fp32" if DRY else "bf16"
    path.write_text(
        STUDY.format(
            name=name,
            steps=steps,
            every=every,
            deterministic=str(deterministic).lower(),
            precision=precision,
        )
    )
    return path


def ablate(
    *words: Any, limit: float | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is kept, also at a time limit."""
    command = [*ABLATE, *map(str, words)]
    environment = {**os.environ, **variables}
    done = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        out, _ = done.communicate(timeout=min(limit or 1e9, max(5.0, left() - 3)))
    except subprocess.TimeoutExpired:
        done.send_signal(signal.SIGINT)
        out, _ = done.communicate(timeout=30)
        out += "\n(stopped at the time limit)"
    return subprocess.CompletedProcess(command, done.returncode, out)


def digests(results: Path) -> dict[str, str]:
    """Of each run, by its id: the logs of metrics and the weights of the last step."""
    found = {}
    for folder in sorted(results.glob("runs/*")):
        files = [
            folder / "metrics.jsonl",
            *sorted(folder.glob("checkpoints/*weights*")),
            *sorted(folder.glob("checkpoints/*.safetensors")),
        ]
        found[folder.name] = hashlib.sha256(
            b"".join(f.read_bytes() for f in files if f.is_file())
        ).hexdigest()[:16]
    return found


def facts(results: Path) -> list[dict[str, Any]]:
    """What each run's records say of time, memory and precision."""
    out = []
    for folder in sorted(results.glob("runs/*")):
        progress, execution = ({}, {})
        for name in ("progress", "execution"):
            file = folder / f"{name}.json"
            if file.exists():
                (progress if name == "progress" else execution).update(json.loads(file.read_text()))
        failure = folder / "failure.json"
        log = (folder / "log.txt").read_text().splitlines() if (folder / "log.txt").exists() else []
        out.append({
            "run": folder.name[:8], "s": progress.get("seconds"), "step": progress.get("step"), "ppl": progress.get("perplexity"),
            "tokens_per_s": progress.get("tokens_per_second"), "peak": progress.get("peak_memory"),
            "micro": execution.get("micro_batch_tokens"), "precision": execution.get("precision"),
            "failure": json.loads(failure.read_text()).get("reason") if failure.exists() else None,
            "resumed": sum("resumed at" in line for line in log),
        })  # fmt: skip
    return out


def quickstart() -> dict[str, Any]:
    results = WORK / "quickstart"
    words = ["--set", "train_steps=8", "--set", "warmup_steps=4", "--rows", "A"] if DRY else []
    start = time.monotonic()
    done = ablate(
        "run",
        ROOT / "studies/quickstart.yaml",
        "--device",
        KIND,
        "--jobs",
        2 if DRY else 4,
        "--results",
        results,
        *words,
    )
    return {"ok": done.returncode == 0, "rc": done.returncode, "wall_s": round(time.monotonic() - start, 1),
            "runs": facts(results), "output": done.stdout[-3500:]}  # fmt: skip


def interrupted(name: str, deterministic: bool) -> dict[str, Any]:
    """Bits of an uninterrupted study and of one that is stopped with Ctrl-C half-way, then resumed."""
    path, whole, parted = study(name, deterministic), WORK / f"whole{name}", WORK / f"parted{name}"
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ablate, "run", path, "--device", KIND, "--jobs", 1, "--results", whole)
        command = [
            *ABLATE,
            "run",
            str(path),
            "--device",
            KIND,
            "--jobs",
            "1",
            "--results",
            str(parted),
        ]
        log = (WORK / f"parted{name}.log").open("w")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        stopped_at = None
        while process.poll() is None and left() > 25:
            time.sleep(0.1)
            for file in parted.glob("runs/*/progress.json"):
                try:
                    step = json.loads(file.read_text()).get("step") or 0
                except ValueError:
                    continue
                if step >= (8 if DRY else 250):
                    stopped_at = step
            if stopped_at:
                process.send_signal(signal.SIGINT)
                break
        code = process.wait(timeout=60)
        # As on another machine: what torch compiles anew, for another first batch, must sum in the same order.
        fresh = {
            "TORCHINDUCTOR_CACHE_DIR": str(WORK / f"inductor{name}"),
            "TRITON_CACHE_DIR": str(WORK / f"triton{name}"),
        }
        second = ablate("run", path, "--device", KIND, "--jobs", 1, "--results", parted, **fresh)
        done = first.result()
    one, other = digests(whole), digests(parted)
    return {
        "ok": done.returncode == second.returncode == 0 and (one == other or not deterministic),
        "equal": {run[:8]: one[run] == other.get(run) for run in one}, "stopped_at": stopped_at, "code_of_interrupted": code,
        "whole": facts(whole), "parted": facts(parted), "tail": (done.stdout[-300:], second.stdout[-300:]),
    }  # fmt: skip


def verify(name: str, deterministic: bool) -> dict[str, Any]:
    path = study(f"v{name}", deterministic)
    root = WORK / f"verify{name}"
    root.mkdir(parents=True, exist_ok=True)
    steps = 6 if DRY else 40
    done = ablate("verify", path, "--device", KIND, "--steps", steps, "--results", root)
    return {
        "ok": done.returncode == 0 or not deterministic,
        "rc": done.returncode,
        "output": done.stdout[-700:],
    }


def main() -> None:
    parts: list[tuple[str, Any]] = [
        ("quickstart", quickstart),
        ("interrupted, deterministic", lambda: interrupted("d", True)),
        ("verify, deterministic", lambda: verify("d", True)),
        ("interrupted, as it is", lambda: interrupted("n", False)),
        ("verify, as it is", lambda: verify("n", False)),
    ]
    if DRY:
        for name, work in parts[:3]:
            lines.check(name, work)
    else:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(lambda part: lines.check(*part), parts))
    lines.end()


if __name__ == "__main__":
    main()
