"""Differences in how the runs behind a table were made. Each is a remark below the table."""

from __future__ import annotations

from dataclasses import dataclass, field

from ablate.formatting import first_few
from ablate.store.records import Provenance, Result

# Packages whose version may change a score, beside those that compute scores.
_PACKAGES = ("torch", "sentencepiece")


@dataclass
class ProvenanceDiff:
    """Collects how each run was made.

    scorers: packages that compute scores.
    values: for each property, the labels of the rows with each value.
    smaller: rows whose micro-batches were halved, and their final size in tokens.
    unequal: rows whose seeds made different numbers of updates.
    averaged: rows that average fewer checkpoints than their configuration asks for, and how many.
    """

    scorers: tuple[str, ...] = ()
    values: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    smaller: dict[str, int] = field(default_factory=dict)
    unequal: list[str] = field(default_factory=list)
    averaged: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        label: str,
        result: Result,
        provenance: Provenance | None,
        precision: str | None = None,
    ) -> None:
        """Add a run of a row; `precision` is the row's setting. One that the row names needs no
        remark.
        """
        for name, value in _properties(provenance, self.scorers).items():
            if name != "precision" or precision in (None, "auto"):
                labels = self.values.setdefault(name, {}).setdefault(value, [])
                labels += [] if label in labels else [label]
        if result.halvings:
            # Of several seeds, the one that had least memory.
            self.smaller[label] = min(
                result.micro_batch_tokens, self.smaller.get(label, result.micro_batch_tokens)
            )

    def updates(self, label: str, steps: set[int]) -> None:
        """Add the numbers of updates that the seeds of a row made."""
        if len(steps) > 1:
            self.unequal.append(f"{label} ({min(steps)} to {max(steps)})")

    def remarks(self) -> list[str]:
        """A line for each difference; empty if all runs were made alike."""
        lines = []
        for name, values in self.values.items():
            groups = [f"{value}: {first_few(rows)}" for value, rows in values.items()]
            if len(groups) > 1:
                lines.append(f"NOTE: these runs differ in {name}: {'; '.join(groups)}.")
        averaged = [f"{label} ({count})" for label, count in self.averaged.items()]
        smaller = [f"{label} ({tokens} tokens)" for label, tokens in self.smaller.items()]
        for what, rows in (
            ("seeds of one row made different numbers of updates", self.unequal),
            ("training made fewer checkpoints than average_checkpoints asks for", averaged),
            ("memory ran out, so micro-batches were made smaller, at the same batch", smaller),
        ):
            if rows:
                lines.append(f"NOTE: {what}: {first_few(rows)}.")
        return lines


def _properties(provenance: Provenance | None, scorers: tuple[str, ...]) -> dict[str, str]:
    """The known properties of a run that may change its scores."""
    if provenance is None:
        return {}
    properties = {"device": provenance.device}
    if provenance.precision is not None:
        properties["precision"] = provenance.precision
    if provenance.device == "cpu":  # the order of sums, and so the last digits, depends on them
        properties["threads"] = str(provenance.threads)
    for name in (*_PACKAGES, *scorers):
        if package := provenance.packages.get(name):
            properties[name] = package
    code = provenance.ablate
    if code:
        known = code.revision and code.revision[:12] + (" with changes" if code.dirty else "")
        # One property: a run without a revision differs from those with one.
        properties["revision of ablate"] = known or f"not recorded (version {code.version})"
    return properties
