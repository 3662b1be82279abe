"""Find rows with different settings whose trainings have the same weights or losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ablate.analysis.results import RunResult
from ablate.config import DecodingConfig
from ablate.formatting import enumeration, first_few
from ablate.study.row import changes

# The run id of each trained run of a row, and the hashes of its weights and of its log, by seed.
_Weights = Mapping[int, tuple[str, str, str]]


def equal_weights_remarks(by_label: Mapping[str, Sequence[RunResult]]) -> Iterator[str]:
    """Yield a line for each row whose weights or losses further rows have with every seed, although
    these rows were trained with other settings, which then had no effect.

    Losses may be equal where weights are not: a part that nothing reads has weights. Rows that
    share a run are left out: they differ only in decoding.

    Args:
        by_label: the results of each row's runs, by the label of the row, base first.
    """
    distinct: dict[str, _Weights] = {}  # weights of the first row that has them, by its label
    equal: dict[str, list[str]] = {}  # label of such a row -> labels of further rows
    for label, runs in by_label.items():
        weights = _weights(runs)
        same = [first for first in distinct if _are_equal(distinct[first], weights)]
        if same:
            equal.setdefault(same[0], []).append(label)
        else:
            distinct[label] = weights
    for first, labels in equal.items():
        settings: dict[str, None] = {}
        for label in labels:
            settings |= dict.fromkeys(_training_changes(by_label[label], by_label[first]))
        yield (
            f"The same weights or losses as {first} with every seed: {first_few(labels)}. "
            f"The difference in {enumeration(settings)} had no effect on training."
        )


def _weights(runs: Sequence[RunResult]) -> _Weights:
    weights = {}
    for run in runs:
        if run.result is not None and run.result.weights is not None:
            hashes = (run.result.weights.sha256, run.result.metrics_sha256)
            weights[run.run.seed] = (run.run.id, *hashes)
    return weights


def _are_equal(first: _Weights, second: _Weights) -> bool:
    """Whether two rows have different runs with equal weights, or with equal logs of their losses,
    with all seeds that both have.
    """
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if not pairs or any(a[0] == b[0] for a, b in pairs):
        return False
    return any(all(a[file] == b[file] for a, b in pairs) for file in (1, 2))


def _training_changes(runs: Sequence[RunResult], first: Sequence[RunResult]) -> list[str]:
    """The fields of training in which two rows differ."""
    changed = changes(runs[0].row.config, first[0].row.config)
    return [name for name in changed if name not in DecodingConfig.model_fields]
