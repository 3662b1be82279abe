"""`ablate init --between`: a study with a row for each part in which two presets differ."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import yaml

from ablate.config.inactive import inactive_fields
from ablate.config.presets import PRESETS, small_sizes
from ablate.config.resolve import SYMBOL_OF, resolve_row
from ablate.config.steps import steps_between
from ablate.errors import UsageError, unknown_name
from ablate.formatting import plural

# The text of the study, with placeholders such as <from>.
STUDY = Path(__file__).parent / "templates" / "between.txt"
# Sizes that a CPU can train.
SIZES = {"n_layers": 6, "d_model": 64, "d_ff": 256, "n_heads": 4}


def study_between(start: str, end: str) -> str:
    """The text of a study with a row for each part in which two presets differ.

    Raises:
        UsageError: a preset is not known, or they do not differ in two parts or more.
    """
    for name in (start, end):
        if name not in PRESETS:
            raise UsageError(unknown_name("preset", name, PRESETS).about("--between"))
    first, last = ({"preset": name, **small_sizes(PRESETS[name])} for name in (start, end))
    # A size without effect in the first preset (n_heads without attention) goes to the last one.
    model = resolve_row({**PRESETS[start], **SIZES})
    unused = inactive_fields(model)
    for name, value in SIZES.items():
        place = last if name in unused else first
        place[name] = value
        if name in PRESETS[end]:  # so that sizes of the presets are not compared as parts
            last[name] = value
    try:
        steps = steps_between(first, last)
    except ValueError as error:
        raise UsageError(f"--between: {start} and {end}: {error}") from None
    if len(steps) < 2:
        parts = plural(len(steps), "part")
        raise UsageError(f"--between: {start} and {end} differ in {parts}; a path needs two")
    filled = STUDY.read_text(encoding="utf-8").replace("<from>", start)
    filled = filled.replace("<to>", end)
    filled = filled.replace("<parts>", "\n# ".join(textwrap.wrap(", ".join(steps) + ".", 96)))
    filled = filled.replace("<start>", textwrap.indent(_yaml(first, is_flow=False), "  "))
    return filled.replace("<end>", _yaml(last, is_flow=True))


def _yaml(settings: dict[str, Any], is_flow: bool) -> str:
    written = {SYMBOL_OF.get(name, name): value for name, value in settings.items()}
    text = yaml.safe_dump(written, default_flow_style=is_flow, sort_keys=False, width=1000)
    return text.strip()
