"""`ablate init`: a commented study to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ablate.errors import UsageError

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NOT_NAMES = ("null", "true", "false", "runs", "corpora")

TEMPLATE = """\
# A study: one base Transformer, and the rows that differ from it.
#
#   ablate plan {file}     what it would cost; trains nothing
#   ablate run {file}      trains what is missing, then prints the table
#
# Every field, its meaning and its default: docs/study.md. The paper's letters may be written: N, h, P_drop, eps_ls.
study: {name}

data:
  corpus: toy                # generated, learned in seconds. Your own text: corpus: files, with
  vocab_size: 350            #   direction: en-de, train: train, dev: dev, test: test  (train.en, train.de, ...)

base:                        # what is left out stands at the paper's value
  N: 2
  d_model: 64
  d_ff: 256
  h: 4
  train_steps: 450
  batch_tokens: 1024
  warmup_steps: 200
  eval_every: 150
  checkpoint_every: 150

seeds: [1, 2]                # every row is trained once for each; two or more show the spread

rows:                        # a group: its rows
  A: {{each: {{h: [1, 2, 8]}}}}                          # one factor at a time, each value against base
  C: {{zip: {{N: [1, 3], d_ff: [512, 128]}}}}            # paired lists
  D: {{grid: {{dropout: [0.0, 0.3], label_smoothing: [0.0, 0.1]}}, where: dropout > 0 or label_smoothing > 0}}
  E: {{set: {{positional_encoding: learned}}}}           # a single row
"""


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study to write.")] = Path("study.yaml"),
) -> None:
    """Write a commented study to start from."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.format(file=file, name=_name(file.stem)))
    except FileExistsError:
        raise UsageError(f"{file}: is there already; give another name") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
    typer.echo(f"Wrote {file}. Next: ablate plan {file}")


def _name(stem: str) -> str:
    """The file's name where it can name a study, and YAML takes it for a word."""
    return stem if _WORD.fullmatch(stem) and stem.lower() not in _NOT_NAMES else "study"
