"""Every model of another library that a run can be exported to."""

from ablate.export.target import Target
from ablate.export.targets import TARGETS


def all_targets() -> list[Target]:
    """Every model of every library."""
    targets: dict[str, Target] = {}
    for kinds in TARGETS.values():
        for architectures in kinds.values():
            for group in architectures.values():
                targets |= {target.name: target for target in group}
    return list(targets.values())
