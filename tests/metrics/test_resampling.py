"""Resampled scores: against the exact distribution of a resampled accuracy, and against sacreBLEU's
own draws.
"""

import math

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from ablate.metrics.resampling import measure
from ablate.metrics.sacrebleu import measure_translations
from ablate.stats.bootstrap import RESAMPLES, RESAMPLING_SEED


def accuracy(correct):
    statistics = np.array([[float(one), 1.0] for one in correct])
    return measure(statistics, lambda sums: 100 * sums[0] / sums[1], "accuracy")


def test_resampled_accuracies_follow_the_binomial_distribution():
    n, share = 400, 0.3
    resamples = np.array(accuracy([i < n * share for i in range(n)]).resamples)
    std = 100 * math.sqrt(share * (1 - share) / n)
    assert len(resamples) == RESAMPLES
    # Bounds of four standard errors of the mean, and of the standard deviation, over the resamples.
    assert abs(resamples.mean() - 100 * share) < 4 * std / math.sqrt(RESAMPLES)
    assert abs(resamples.std() - std) < 4 * std / math.sqrt(2 * RESAMPLES)


def test_two_systems_are_scored_on_the_same_resampled_test_sets():
    first = np.array(accuracy([1, 0, 1, 0, 1, 0]).resamples)
    second = np.array(accuracy([0, 1, 0, 1, 0, 1]).resamples)
    assert first + second == pytest.approx(100)  # each item is correct for exactly one of them


def test_resampled_bleu_is_the_bleu_of_the_drawn_sentences():
    words = ["a", "b", "c", "d", "e", "f", "g", "h"]
    references = [" ".join(words[i : i + 5]) for i in range(4)] + ["h g f e d", "a a b b c"]
    hypotheses = [references[0], references[1], "c d e x g", "d e f g", "h g f d e", "a b b c"]
    drawn = np.random.default_rng(RESAMPLING_SEED).choice(6, size=(RESAMPLES, 6), replace=True)
    found = measure_translations("bleu", hypotheses, references).resamples
    for indices, score in list(zip(drawn, found, strict=True))[:20]:
        chosen = [hypotheses[i] for i in indices], [[references[i] for i in indices]]
        assert score == pytest.approx(BLEU(force=True).corpus_score(*chosen).score, abs=1e-6)
