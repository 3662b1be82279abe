"""The fields that a study writes, with their positions."""

from __future__ import annotations

from ablate.config import PRESETS, canonical, field_names
from ablate.config.resolve import SYMBOLS
from ablate.errors import unknown_name
from ablate.study.yaml_nodes import Node, Report

MAX_SIZES = 10

Settings = dict[str, Node]  # field name or symbol, as the study writes it -> value


def known_fields(fields: Node, report: Report) -> Settings:
    """Select the fields that exist, as written; report unknown names, and a field given by name and by symbol."""
    written: dict[str, str] = {}  # standard name -> name or symbol in the study
    for key, mark, _ in fields.items():
        name = "preset" if key == "preset" else canonical(key)
        if name is None:
            report(mark, unknown_name("field", key, (*field_names(), *SYMBOLS, "preset")))
        elif name in written:
            report(mark, f'"{key}" and "{written[name]}" are the same field')
        else:
            written[name] = key
    return {key: fields.value[key][1] for key in written.values()}


def is_single_value(key: str, node: Node, report: Report) -> bool:
    """Whether a field's value is a scalar without a NUL character, and a preset a known one; otherwise report it."""
    if isinstance(node.value, (dict, list)):
        report(node.mark, f'"{key}" takes a single value; got {node.kind}')
        return False
    if isinstance(node.value, str) and "\0" in node.value:
        report(node.mark, f'"{key}" holds a NUL character: {node.kind}')
        return False
    if key == "preset" and node.value not in PRESETS:
        report(node.mark, unknown_name("preset", str(node.value), PRESETS))
        return False
    return True
