"""Expand the groups of the section `rows` into rows, each with a name of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ablate.study.names import folded_name
from ablate.study.rows import MAX_ROWS, Group, PartsTo, RowSpec, expand_group
from ablate.study.yaml_nodes import Report


def expand_groups(
    groups: Iterable[tuple[str, Group]], report: Report, parts_to: PartsTo, size: str
) -> list[RowSpec]:
    """The rows of all groups, in the order of the file. Errors are reported."""
    specs: list[RowSpec] = []
    for name, options in groups:
        specs += expand_group(name, options, report, MAX_ROWS - len(specs), parts_to, size)
    return _with_own_labels(specs, report)


def _with_own_labels(specs: Sequence[RowSpec], report: Report) -> list[RowSpec]:
    """The rows without those whose written label is also base, another row or another group."""
    labels = Counter(folded_name(spec.label) for spec in specs)
    groups = Counter(folded_name(spec.group) for spec in specs)
    kept = []
    for spec in specs:
        name = folded_name(spec.label)
        # The only row of a group may have the name of the group.
        of_others = groups[name] - (name == folded_name(spec.group))
        if name == "base":
            kind = "base"
        elif labels[name] > 1:
            kind = "another row"
        else:
            kind = "a group with other rows"
        if not spec.options.label or (kind == "a group with other rows" and not of_others):
            kept.append(spec)
            continue
        where = spec.options.node("label").mark
        report(where, f'label "{spec.label}" is also the name of {kind}; choose another')
    return kept
