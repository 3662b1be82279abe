"""Read the section `seeds`: a list of seeds, or the looks at which a study is judged."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.config.training import MAX_SEEDS
from ablate.errors import unknown_name
from ablate.formatting import plural
from ablate.study.yaml_nodes import Mark, Node, Report


@dataclass(frozen=True)
class Looks:
    """Numbers of seeds at which a study is judged: `seeds: {looks: [3, 5, 8]}`.

    plan: increasing; the seeds of the study are 1 to the last of these numbers.
    """

    plan: tuple[int, ...]
    mark: Mark


def read_seeds(node: Node | None, report: Report) -> tuple[int, ...]:
    """Read the list of seeds; (1,) if the study has none. Errors are reported."""
    if node is None:
        return (1,)
    if not isinstance(node.value, list):
        report(node.mark, f"seeds must be a list, such as [1, 2, 3]; got {node.kind}")
        return ()
    values = node.value
    if not values or len(values) > MAX_SEEDS:
        report(node.mark, f"a study has 1 to {MAX_SEEDS} seeds; got {len(values)}")
        return ()
    seeds: list[int] = []
    for value in values:
        if type(value.value) is not int or not 0 <= value.value < 2**32:
            report(
                value.mark,
                f"{value.kind} is not a valid seed; seeds are whole numbers from 0 to {2**32 - 1}",
            )
        elif value.value in seeds:
            report(value.mark, f"duplicate seed {value.value}")
        else:
            seeds.append(value.value)
    return tuple(seeds)


def read_seeds_or_looks(node: Node | None, report: Report) -> tuple[tuple[int, ...], Looks | None]:
    """Read the section `seeds`: a list, or `{looks: [3, 5, 8]}` for the seeds 1 to 8. Errors are
    reported.
    """
    if node is None or not isinstance(node.value, dict) or not node.value:
        return read_seeds(node, report), None
    looks = _read_looks(node, report)
    return tuple(range(1, looks.plan[-1] + 1)) if looks else (), looks


def _read_looks(node: Node, report: Report) -> Looks | None:
    for key, mark, _ in node.items():
        if key != "looks":
            report(mark, unknown_name("key", key, ("looks",)))
    if "looks" not in node.value:
        return None
    looks = node.value["looks"][1]
    if not isinstance(looks.value, list) or len(looks.value) < 2:
        got = plural(len(looks.value), "number") if isinstance(looks.value, list) else looks.kind
        report(
            looks.mark,
            f"looks must be a list of two or more numbers of seeds, such as [3, 5, 8]; got {got}",
        )
        return None
    plan: list[int] = []
    for value in looks.value:
        least = plan[-1] + 1 if plan else 2  # one seed shows no spread
        if type(value.value) is not int or not least <= value.value <= MAX_SEEDS:
            allowed = (
                f"a whole number from {least} to {MAX_SEEDS}, more than at the look before"
                if plan
                else (f"a whole number from {least} to {MAX_SEEDS}: one seed shows no spread")
            )
            report(
                value.mark,
                f"{value.kind} is not a valid number of seeds at a look; allowed: {allowed}",
            )
            return None
        plan.append(value.value)
    return Looks(tuple(plan), looks.mark)
