"""Names of studies, groups of rows and sizes: each names files, and columns of tables."""

from __future__ import annotations

import re

from ablate.study.yaml_nodes import Mark, Node, Report

_STUDY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}")
_SIZE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,19}")
_RESERVED = ("runs", "corpora")  # folders of the results root


def folded_name(name: str) -> str:
    """A name as some file systems compare it: without case, and without spaces and dots at its
    end.
    """
    return name.rstrip(" .").casefold()


def read_name(node: Node | None, mark: Mark, report: Report) -> str:
    """Read the study's name; errors are reported, at `mark` if there is no name."""
    if node is None or node.value is None:
        report(node.mark if node else mark, 'the study has no name; add "study: NAME"')
        return ""
    name = node.value if isinstance(node.value, str) else str(node.to_python())
    if not _STUDY.fullmatch(name) or ".." in name:
        allowed = 'letters, digits, "-", "_" and "." (at most 64 characters)'
        report(node.mark, f'"{name[:60]}" is not a valid study name; allowed: {allowed}')
    elif folded_name(name) in _RESERVED:
        report(
            node.mark, f'"{name}" is reserved for a folder of the results root; choose another name'
        )
    return name


def check_group_name(group: str, mark: Mark, report: Report) -> bool:
    """Whether a group of rows may have this name; otherwise report it."""
    if _GROUP.fullmatch(group) and ".." not in group and folded_name(group) != "base":
        return True
    allowed = 'letters a-z, digits, spaces and . _ + - (at most 40 characters), but not "base"'
    report(mark, f'"{group[:60]}" is not a valid group name; allowed: {allowed}')
    return False


def check_size_name(size: str, mark: Mark, report: Report) -> None:
    """Report a name that a size may not have."""
    if not _SIZE.fullmatch(size) or folded_name(size) == "base":
        allowed = 'letters, digits, ".", "_" and "-" (at most 20 characters), but not "base"'
        report(mark, f'"{size[:60]}" is not a valid name of a size; allowed: {allowed}')


def refuse_similar_names(kind: str, names: Node, report: Report) -> None:
    """Report each name that file systems, and people, do not tell from an earlier one."""
    seen: dict[str, tuple[str, Mark]] = {}
    for name, mark, _ in names.items():
        other, earlier = seen.setdefault(folded_name(name), (name, mark))
        if other != name:
            where = f'"{other}" on line {earlier.line}'
            report(
                mark,
                f'{kind} "{name}" differs from {where} only in case, or at its end; rename one',
            )
