"""Named groups of settings, and the parts of an architecture, from `presets.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ablate.config.model import ModelConfig
from ablate.fields import facts_of

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FILE: dict[str, Any] = yaml.load(
    Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), _Loader
)
SIZES: tuple[str, ...] = tuple(_FILE["sizes"])


def _all_parts() -> dict[str, tuple[str, ...]]:
    """The fields of each part: the fields that choose it, and fields that have an effect only with
    one of these choices, such as `rope_base`.
    """
    parts = {part: tuple(names) for part, names in _FILE["parts"].items()}
    part_of = {name: part for part, names in parts.items() for name in names}
    for name, facts in facts_of(ModelConfig).items():
        if name in part_of or name in SIZES or facts.part is None:
            continue
        for choice in facts.part.fields:
            if choice in part_of:
                part_of[name] = part_of[choice]  # and it may choose further fields
                parts[part_of[name]] += (name,)
                break
    return parts


PARTS = _all_parts()


def _presets() -> dict[str, dict[str, Any]]:
    """The presets. A preset without sizes sets all parts, so that a row has no part of base."""
    defaults = {}
    for names in PARTS.values():
        for name in names:
            defaults[name] = ModelConfig.model_fields[name].default
    presets: dict[str, dict[str, Any]] = {}
    for preset, fields in _FILE["presets"].items():
        presets[preset] = {} if "n_layers" in fields else dict(defaults)
        for name, value in fields.items():
            presets[preset][name] = tuple(value) if isinstance(value, list) else value
    return presets


PRESETS = _presets()


def small_sizes(preset: dict[str, Any]) -> dict[str, int]:
    """The sizes of the parts of a preset for a start on a CPU."""
    small = {}
    for name, value in _FILE["small_sizes"].items():
        if preset.get(name) not in (None, ModelConfig.model_fields[name].default):
            small[name] = value
    return small
