"""Scores of constituency trees as EVALB computes them with COLLINS.prm.

Punctuation is left out by the tags of the reference, and so are the root and constituents of
punctuation alone; PRT equals ADVP. Deviation: EVALB skips a sentence whose words do not match, or
that has punctuation alone. Here a tree that is not well-formed has no brackets, and its reference's
brackets count as missed; punctuation alone is matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.config.parsing_data import with_leaves
from ablate.data.trees import ROOT, Leaf, Tree, leaves_of, restored
from ablate.metrics.resampling import Statistics

Bracket = tuple[str, int, int]  # label, first word, word after the last; words without punctuation

PUNCTUATION = frozenset((",", ":", "``", "''", "."))  # tags
_EQUAL = {"PRT": "ADVP"}


def brackets(tree: Tree) -> Counter[Bracket]:
    """The brackets that count, each as often as it occurs."""
    counts: Counter[Bracket] = Counter()
    _collect(tree, 0, counts)
    return counts


def _collect(tree: Tree, start: int, counts: Counter[Bracket]) -> int:
    """Add the brackets of a tree that begins at word `start`; returns the word after it."""
    end = start
    for child in tree.children:
        if isinstance(child, Leaf):
            end += child.tag not in PUNCTUATION
        else:
            end = _collect(child, end, counts)
    if end > start and tree.label != ROOT:
        counts[_EQUAL.get(tree.label, tree.label), start, end] += 1
    return end


def statistics(
    predictions: Sequence[str], sentences: Sequence[str], references: Sequence[str]
) -> NDArray[np.int64]:
    """Statistics of each sentence, (n_sentences, 6).

    The columns are the matched brackets, those of the reference and of the prediction; and 1 if all
    match, 1 if the prediction is well-formed, 1 for the sentence.

    Args:
        predictions: linearized trees.
        sentences: as many; words with spaces between them.
        references: their linearized trees with tags.
    """
    assert len(predictions) == len(sentences) == len(references)
    return np.array(list(map(_statistics, predictions, sentences, references)))


def _statistics(prediction: str, sentence: str, reference: str) -> tuple[int, ...]:
    leaves = leaves_of(reference, sentence)
    gold = restored(with_leaves(reference, sentence), leaves)
    assert gold is not None, reference
    expected = brackets(gold)
    test = restored(prediction, leaves)
    if test is None:
        return 0, expected.total(), 0, 0, 0, 1
    given = brackets(test)
    # The intersection takes the smaller count of each bracket, as EVALB does for repeated ones.
    return (expected & given).total(), expected.total(), given.total(), int(expected == given), 1, 1


def f1(sums: NDArray[np.float64]) -> float:
    """Labeled bracket F1 in percent: the harmonic mean of precision and recall.

    Of trees without any bracket, the percentage that have to have none.
    """
    matched, expected, given = sums[:3]
    if not expected + given:
        return float(100 * sums[3] / max(1, sums[5]))
    return float(200 * matched / (expected + given))


_SCORES: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "f1": f1,
    "exact_match": lambda sums: float(100 * sums[3] / max(1, sums[5])),
    "well_formed": lambda sums: float(100 * sums[4] / max(1, sums[5])),
}


def tree_statistics(
    name: str,
    predictions: Sequence[str],
    sentences: Sequence[str],
    references: Sequence[str],
    split: str,
) -> Statistics:
    """The statistics of each tree, for a score."""
    of_trees = statistics(predictions, sentences, references)
    counted = f"trees:{len(of_trees)}|brackets:{of_trees[:, 1].sum()}|split:{split}"
    signature = f"EVALB:COLLINS|not-well-formed:0|{counted}"
    return Statistics(of_trees.astype(np.float64), _SCORES[name], signature)
