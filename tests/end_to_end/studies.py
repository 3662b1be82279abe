"""Tiny studies that train in seconds, and the command line in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TINY = """\
study: tiny
data: {corpus: toy, vocab_size: 200}
base:
  N: 1
  d_model: 16
  d_ff: 32
  h: 2
  dropout: 0.2
  train_steps: 30
  batch_tokens: 512
  warmup_steps: 20
  eval_every: 10
  checkpoint_every: 10
  checkpoint_minutes: 0.005
seeds: [1, 2]
rows:
  A: {each: {h: [1]}}
  decoding: {set: {beam: 1, average_checkpoints: 2}}
"""


def write_study(folder: Path, text: str = TINY, name: str = "tiny.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ablate", *map(str, words)]


def ablate(
    *words: object, check: int | None = 0, **options: object
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a new process, as a user does."""
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=300, check=False, **options
    )
    if check is not None:
        assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
    return done


def outcome(results: Path) -> dict[str, bytes]:
    """Everything that must not differ: weights, metrics, translations, the rendered table."""
    patterns = (
        "runs/*/checkpoints/*.safetensors",
        "runs/*/metrics.jsonl",
        "runs/*/translations/*.txt",
        "*/table.json",
        "*/table.md",
    )
    found = {
        str(p.relative_to(results)): p.read_bytes()
        for pattern in patterns
        for p in results.glob(pattern)
    }
    assert found
    return found


def alive_in(folder: Path) -> list[int]:
    """Ids of processes, of any parent, whose standard error is the log of a run in this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                target = str((process / "fd" / "2").readlink())
            except OSError:
                continue
            if target.startswith(str(folder)):
                found.append(int(process.name))
    return found
