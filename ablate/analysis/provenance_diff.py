"""Find differences in how the runs of a table were made. Each one is a remark below the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ablate.analysis.results import RunResult
from ablate.formatting import first_few
from ablate.store.records import PACKAGES, Provenance
from ablate.tasks import Task

# Packages whose version may change a score; the scorers of metrics are added to these.
_PACKAGES = ("torch", "sentencepiece")
_REVISION = "revision"


def provenance_remarks(task: Task, runs: Iterable[RunResult]) -> Iterator[str]:
    """Yield a line for each difference in how runs were made; nothing if there is no difference."""
    packages = dict.fromkeys(_PACKAGES)
    for metric in task.metrics.values():
        if metric.scorer:
            packages[metric.scorer.lower()] = None
    properties: dict[str, dict[str, dict[str, None]]] = {}  # property -> value -> labels of rows
    updates: dict[str, set[int]] = {}  # label -> numbers of updates
    averaged: dict[str, str] = {}  # label -> label with the number of averaged checkpoints
    smallest: dict[str, int] = {}  # label -> tokens of the smallest micro-batch
    for run in runs:
        label = run.row.label
        config = run.row.config
        result = run.result
        if result is None:
            continue
        for name, value in _properties(run.provenance, packages):
            # A precision that the row names needs no remark.
            if name != "precision" or config.precision in (None, "auto"):
                properties.setdefault(name, {}).setdefault(value, {})[label] = None
        if result.halvings:
            tokens = result.micro_batch_tokens
            smallest[label] = min(tokens, smallest.get(label, tokens))
        if run.decoding is not None:
            updates.setdefault(label, set()).add(result.steps)
            if run.decoding.averaged < config.average_checkpoints:
                averaged[label] = f"{label} ({run.decoding.averaged})"
    for name, values in properties.items():
        groups = [f"{value}: {first_few(list(labels))}" for value, labels in values.items()]
        if len(groups) > 1 and name == _REVISION:
            revisions = f"{len(groups)} revisions of ablate: {first_few(list(values))}"
            yield f"These runs were trained with {revisions}."
        elif len(groups) > 1:
            yield f"These runs differ in {name}: {'; '.join(groups)}."
    unequal = []
    for label, steps in updates.items():
        if len(steps) > 1:
            unequal.append(f"{label} ({min(steps)} to {max(steps)})")
    small = [f"{label} ({tokens} tokens)" for label, tokens in smallest.items()]
    for difference, rows in (
        ("Seeds of one row made different numbers of updates", unequal),
        ("Training made fewer checkpoints than average_checkpoints asks for", [*averaged.values()]),
        ("Memory ran out, so micro-batches were made smaller, at the same batch", small),
    ):
        if rows:
            yield f"{difference}: {first_few(rows)}."


def _properties(
    provenance: Provenance | None, packages: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of each recorded property of a run that may change its scores; several
    values of a property with which the run was resumed.
    """
    for part in provenance.all_parts if provenance else ():
        yield from _properties_of_part(part, packages)


def _properties_of_part(
    provenance: Provenance, packages: Iterable[str]
) -> Iterator[tuple[str, str]]:
    yield "device", provenance.device
    if provenance.precision is not None:
        yield "precision", provenance.precision
    if provenance.device == "cpu":  # the order of sums, and so the last digits, depends on them
        yield "threads", str(provenance.threads)
    # Packages that only custom classes import are recorded in addition to PACKAGES.
    class_packages = (name for name in provenance.packages if name not in PACKAGES)
    for name in dict.fromkeys((*packages, *class_packages)):
        if version := provenance.packages.get(name):
            yield name, version
    if code := provenance.ablate:
        # A run without a revision also has a value, since it differs from runs with a revision.
        revision = f"not recorded (version {code.version})"
        if code.revision:
            changes = f" with changes {code.changes or ''}".rstrip() if code.dirty else ""
            revision = f"{code.revision[:12]}{changes}"
        yield _REVISION, revision
