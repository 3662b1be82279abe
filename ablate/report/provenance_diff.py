"""Whether the runs behind a table were made alike: what differs between them is said under it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What of provenance.json may move a score, by the name it has in the remark.
_VERSIONS = ("torch", "sentencepiece", "sacrebleu")


@dataclass
class Comparison:
    """Collects how each run was made. `values[what][value]` has the labels of the rows with that value."""

    values: dict[str, dict[str, dict[str, None]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    smaller: dict[str, int] = field(default_factory=dict)  # rows whose micro-batches were halved, and to how much
    unlike: list[str] = field(default_factory=list)  # rows whose seeds made different numbers of updates
    fewer: dict[str, int] = field(default_factory=dict)  # rows that average fewer checkpoints than asked for

    def add(self, label: str, result: Mapping[str, Any], provenance: Mapping[str, Any] | None) -> None:
        """A run of a row."""
        for what, value in _facts(provenance or {}).items():
            self.values[what][value][label] = None  # an ordered set
        if result.get("halvings"):
            self.smaller[label] = min(result["micro_batch_tokens"], self.smaller.get(label, 1 << 62))

    def updates(self, label: str, steps: set[int]) -> None:
        """The numbers of updates that the seeds of a row made."""
        if len(steps) > 1:
            self.unlike.append(f"{label} ({min(steps)} to {max(steps)})")

    def remarks(self) -> list[str]:
        """A line for each thing that differs; none where all were made alike."""
        lines = []
        for what, found in self.values.items():
            if len(found) > 1:
                groups = "; ".join(f"{value}: {_some(list(rows))}" for value, rows in found.items())
                lines.append(f"NOTE: these runs differ in {what}: {groups}.")
        if self.unlike:
            lines.append(f"NOTE: seeds of one row made different numbers of updates: {_some(self.unlike)}.")
        if self.fewer:
            rows = [f"{label} ({count})" for label, count in self.fewer.items()]
            lines.append(f"NOTE: training made fewer checkpoints than average_checkpoints asks for: {_some(rows)}.")
        if self.smaller:
            rows = [f"{label} ({tokens} tokens)" for label, tokens in self.smaller.items()]
            lines.append(f"NOTE: memory ran out, so micro-batches were made smaller, at the same batch: {_some(rows)}.")
        return lines


def _facts(provenance: Mapping[str, Any]) -> dict[str, str]:
    """What a run was made with, as far as it is known."""
    facts = {}
    if provenance.get("device"):
        facts["device"] = str(provenance["device"])
    if provenance.get("threads") and provenance.get("device") == "cpu":
        facts["threads"] = str(provenance["threads"])
    packages = provenance.get("packages", {})
    facts.update({name: str(packages[name]) for name in _VERSIONS if packages.get(name)})
    ablate = provenance.get("ablate", {})
    if ablate.get("revision"):
        facts["revision of ablate"] = ablate["revision"][:12] + (" with changes" if ablate.get("dirty") else "")
    elif ablate.get("version"):
        facts["version of ablate"] = str(ablate["version"])
    return facts


def _some(rows: list[str], most: int = 4) -> str:
    """`base, A h=1 and 3 more`."""
    return ", ".join(rows) if len(rows) <= most else f"{', '.join(rows[:most])} and {len(rows) - most} more"
