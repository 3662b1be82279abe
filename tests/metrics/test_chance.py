"""The level of chance: what the frequencies of tokens and answers give, without any learning."""

import math

import numpy as np
import pytest

from ablate.metrics.chance import guess_accuracy, lucky_accuracy, unigram_perplexity


def of_rows(rows):
    return lambda items: np.concatenate([np.array(rows[i]) for i in items])


def test_the_perplexity_by_chance_is_that_of_the_frequencies_in_training_and_dev():
    """Tokens 4 and 5 occur 6 and 2 times: dev, `4 4 5 5`, has 3/4 and 1/4 by them."""
    train, dev = [[4, 4], [4], [4]], [[4, 4, 5], [5]]
    value = unigram_perplexity(of_rows(train), 3, of_rows(dev), 2)
    assert value == pytest.approx(math.exp(-(math.log(3 / 4) + math.log(1 / 4)) / 2))


def test_a_token_that_training_lacks_has_a_probability():
    assert unigram_perplexity(of_rows([[4]] * 9), 9, of_rows([[7]]), 1) == pytest.approx(10)


def test_many_training_items_are_sampled(monkeypatch):
    asked = []

    def train(items):
        asked.append(len(items))
        return np.full(1000, 4)

    monkeypatch.setattr("ablate.metrics.chance._ENOUGH_TOKENS", 3000)
    unigram_perplexity(train, 10**6, of_rows([[4]]), 1)
    assert asked == [256, 256, 256]


def test_the_accuracy_by_chance_is_the_share_of_the_most_frequent_answer_and_luck():
    answers = np.array([4] * 60 + [5] * 40)
    assert guess_accuracy(answers) == pytest.approx(100 * (0.6 + 3 * math.sqrt(0.0024)))
    # Of items with several answers, all have to be right.
    assert guess_accuracy(np.array([[4, 5]] * 10 + [[5, 4]] * 10)) == lucky_accuracy(0.5, 20)
    assert guess_accuracy(np.array([4, 4])) == 100.0


@pytest.mark.parametrize("seed", range(20))
def test_a_guess_is_never_luckier(seed):
    random = np.random.default_rng(seed)
    answers, guesses = random.integers(4, 20, (2, 500))
    assert 100 * (answers == guesses).mean() <= guess_accuracy(answers)
