"""Read the groups of the section `rows` into the rows that they make, each with a name of its
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ablate.study.names import check_group_name, folded_name, refuse_similar_names
from ablate.study.rows import MAX_ROWS, WAYS, RowSpec, expand_group
from ablate.study.yaml_nodes import Node, Report


def expand_groups(node: Node | None, report: Report) -> list[RowSpec]:
    """The rows of all groups, in the order of the file. Errors are reported."""
    specs: list[RowSpec] = []
    if node is None or node.value is None:
        return specs
    if not isinstance(node.value, dict):
        report(node.mark, f"rows must be a mapping of groups; got {node.kind}")
        return specs
    refuse_similar_names("group", node, report)
    for group, mark, ways in node.items():
        is_named = check_group_name(group, mark, report)
        if (
            is_named
            and group in WAYS
            and not (isinstance(ways.value, dict) and set(ways.value) & set(WAYS))
        ):
            report(mark, f'"{group}" is a key of a group; write rows: {{GROUP: {{{group}: ...}}}}')
            continue
        specs += expand_group(group, ways, report, MAX_ROWS - len(specs))
    return _with_own_labels(specs, report)


def _with_own_labels(specs: Sequence[RowSpec], report: Report) -> list[RowSpec]:
    """The rows without those whose written label is also base, another row or another group."""
    labels = Counter(folded_name(spec.label) for spec in specs)
    groups = Counter(folded_name(spec.group) for spec in specs)
    kept = []
    for spec in specs:
        name = folded_name(spec.label)
        # The only row of a group may have the name of the group.
        of_others = groups[name] - (1 if name == folded_name(spec.group) else 0)
        if spec.written_label is None or not (name == "base" or labels[name] > 1 or of_others):
            kept.append(spec)
            continue
        kind = (
            "base"
            if name == "base"
            else "another row"
            if labels[name] > 1
            else "a group with other rows"
        )
        report(
            spec.written_label.mark,
            f'label "{spec.label}" is also the name of {kind}; choose another',
        )
    return kept
