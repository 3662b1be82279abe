"""The study of `ablate init --between`: one row for each part in which two presets differ."""

from __future__ import annotations

import yaml

from ablate.config.presets import PRESETS, steps_between
from ablate.errors import UsageError, unknown_name
from ablate.formatting import plural

STUDY = """\
# yaml-language-server: $schema=ablate.schema.json
# From <from> to <to>: which of the parts in which they differ earns its keep?
#
#   ablate plan <file>        show the cost of every row
#   ablate run <file>         train, then print the table
#
# `+ PART` is <from> with one part of <to>; `all` has them all. The table says what each adds.
# Write leave-one-out in the place of add-one-in to take one part away from <to> instead.
study: <name>
task: language-model

data:
  corpus: toy   # generated text; your own: {corpus: files, train: input.txt, dev: 5%, test: 5%}

base:
  preset: <from>
  N: 6                       # a preset without sizes leaves them to you
  d_model: 64
  d_ff: 256
  h: 4
  context: 64
  batch_tokens: 1024
  train_steps: 250
  warmup_steps: 25
  learning_rate: 0.003
  schedule: cosine
  eval_every: 125
  checkpoint_every: 250

seeds: [1, 2, 3, 4]

rows:
  path:
    add-one-in:
<steps>
"""


def study_between(start: str, end: str) -> str:
    """The text of a study with a row for each part in which two presets differ.

    Raises:
        UsageError: a preset is not known, or they do not differ in two parts or more.
    """
    for name in (start, end):
        if name not in PRESETS:
            raise UsageError("--between: " + unknown_name("preset", name, PRESETS))
    try:
        steps = steps_between(start, end)
    except ValueError as error:
        raise UsageError(f"--between: {error}") from None
    if len(steps) < 2:
        parts = plural(len(steps), "part")
        raise UsageError(f"--between: {start} and {end} differ in {parts}; a path needs two")
    lines = []
    for part, fields in steps.items():
        values = {
            field: list(value) if isinstance(value, tuple) else value
            for field, value in fields.items()
        }
        flow = yaml.safe_dump(values, default_flow_style=True, sort_keys=False, width=1000)
        lines.append(f"      {part}: {flow.strip()}")
    filled = STUDY.replace("<from>", start).replace("<to>", end)
    return filled.replace("<steps>", "\n".join(lines))
