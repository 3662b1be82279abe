"""Scores of constituency trees as EVALB computes them with COLLINS.prm.

Words that the reference tags as punctuation do not count. Neither do the root and constituents that
contain only punctuation. PRT equals ADVP.

Deviation: EVALB skips sentences whose words do not match. Here a tree that is not well-formed has
no brackets, so all brackets of the reference are missed. EVALB also skips sentences that contain
only punctuation; here they count as matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ablate.config.parsing_data import replace_leaves
from ablate.data.trees import ROOT, Leaf, Tree, leaves_of, restored
from ablate.metrics.resampling import Statistics

Bracket = tuple[str, int, int]  # label, first word, word after the last, without punctuation

PUNCTUATION = frozenset((",", ":", "``", "''", "."))  # tags
_EQUAL = {"PRT": "ADVP"}


def brackets(tree: Tree) -> Counter[Bracket]:
    """The number of occurrences of each bracket that counts."""
    counts: Counter[Bracket] = Counter()
    _collect(tree, 0, counts)
    return counts


def _collect(tree: Tree, start: int, counts: Counter[Bracket]) -> int:
    """Add the brackets of a tree that begins at word `start`, and return the word after it."""
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
    """Statistics of each sentence.

    Args:
        predictions: linearized trees.
        sentences: words with spaces between them.
        references: linearized trees with tags.

    Returns:
        (n_sentences, 6): the numbers of matched brackets, of brackets in the reference and of
        brackets in the prediction; 1 if all match; 1 if the prediction is well-formed; 1.
    """
    assert len(predictions) == len(sentences) == len(references)
    return np.array(list(map(_statistics, predictions, sentences, references)))


def _statistics(prediction: str, sentence: str, reference: str) -> tuple[int, ...]:
    leaves = leaves_of(reference, sentence)
    reference_tree = restored(replace_leaves(reference, sentence), leaves)
    assert reference_tree is not None, reference
    expected = brackets(reference_tree)
    predicted_tree = restored(prediction, leaves)
    if predicted_tree is None:
        return 0, expected.total(), 0, 0, 0, 1
    predicted = brackets(predicted_tree)
    # The intersection takes the smaller count of a repeated bracket, as EVALB does.
    matched = (expected & predicted).total()
    return matched, expected.total(), predicted.total(), int(expected == predicted), 1, 1


def f1(sums: NDArray[np.float64]) -> float:
    """Labeled bracket F1 in percent: the harmonic mean of precision and recall.

    If neither references nor predictions have brackets, it is the percentage of exact matches.
    """
    matched, expected, predicted = sums[:3]
    if not expected + predicted:
        return float(100 * sums[3] / max(1, sums[5]))
    return float(200 * matched / (expected + predicted))


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
    """The statistics of each tree for a score of `_SCORES`."""
    values = statistics(predictions, sentences, references)
    counted = f"trees:{len(values)}|brackets:{values[:, 1].sum()}|split:{split}"
    signature = f"EVALB:COLLINS|not-well-formed:0|{counted}"
    return Statistics(values.astype(np.float64), _SCORES[name], signature)
