"""Differences in how the runs behind a table were made. Each is a remark below the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ablate.analysis.results import RunResult
from ablate.formatting import first_few
from ablate.store.records import PACKAGES, Provenance
from ablate.tasks import Task

# Packages whose version may change a score, beside those that compute scores.
_PACKAGES = ("torch", "sentencepiece")


def provenance_remarks(task: Task, runs: Iterable[RunResult]) -> Iterator[str]:
    """Yield a line for each difference in how runs were made; none if all were made alike."""
    packages = dict.fromkeys(_PACKAGES)
    for metric in task.metrics.values():
        if metric.scorer:
            packages[metric.scorer.lower()] = None
    # For each property, the labels of the rows with each value
    properties: dict[str, dict[str, dict[str, None]]] = {}
    updates: dict[str, set[int]] = {}
    averaged, smaller = dict[str, str](), dict[str, int]()
    for run in runs:
        label, config, result = run.row.label, run.row.config, run.result
        if result is None:
            continue
        for name, value in _properties(run.provenance, packages):
            # A precision that the row names needs no remark.
            if name != "precision" or config.precision in (None, "auto"):
                properties.setdefault(name, {}).setdefault(value, {})[label] = None
        if result.halvings:
            # Of several seeds, the one that had least memory.
            tokens = result.micro_batch_tokens
            smaller[label] = min(tokens, smaller.get(label, tokens))
        if run.decoding is not None:
            updates.setdefault(label, set()).add(result.steps)
            if run.decoding.averaged < config.average_checkpoints:
                averaged[label] = f"{label} ({run.decoding.averaged})"
    for name, values in properties.items():
        groups = [f"{value}: {first_few(list(labels))}" for value, labels in values.items()]
        if len(groups) > 1:
            yield f"NOTE: these runs differ in {name}: {'; '.join(groups)}."
    unequal = []
    for label, steps in updates.items():
        if len(steps) > 1:
            unequal.append(f"{label} ({min(steps)} to {max(steps)})")
    few = [*averaged.values()]
    small = [f"{label} ({tokens} tokens)" for label, tokens in smaller.items()]
    for what, rows in (
        ("seeds of one row made different numbers of updates", unequal),
        ("training made fewer checkpoints than average_checkpoints asks for", few),
        ("memory ran out, so micro-batches were made smaller, at the same batch", small),
    ):
        if rows:
            yield f"NOTE: {what}: {first_few(rows)}."


def _properties(
    provenance: Provenance | None, packages: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the known properties of a run that may change its scores."""
    if provenance is None:
        return
    yield "device", provenance.device
    if provenance.precision is not None:
        yield "precision", provenance.precision
    if provenance.device == "cpu":  # the order of sums, and so the last digits, depends on them
        yield "threads", str(provenance.threads)
    of_classes = (name for name in provenance.packages if name not in PACKAGES)
    for name in dict.fromkeys((*packages, *of_classes)):
        if version := provenance.packages.get(name):
            yield name, version
    if code := provenance.ablate:
        # One property: a run without a revision differs from those with one.
        known = f"not recorded (version {code.version})"
        if code.revision:
            known = code.revision[:12] + " with changes" * bool(code.dirty)
        yield "revision of ablate", known
