"""BLEU is sacreBLEU's, and its signature goes with it."""

import math

import pytest
import sacrebleu

from ablate.scoring.bleu import bleu

REFERENCES = ["The old dog sleeps near the river.", "A king writes, slowly, a letter.", "Two birds sing in the tree."]
HYPOTHESES = ["The old dog sleeps by the river.", "A king slowly writes a letter.", "Two birds sing in a tall tree!"]


def test_identical_text_scores_a_hundred():
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100.0)


def test_it_is_sacrebleus_corpus_score():
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 0 < expected < 100
    assert bleu(HYPOTHESES, REFERENCES).value == pytest.approx(expected)


def test_precisions_and_brevity_are_as_computed_by_hand():
    """Of 5 words the last is wrong: 4/5, 3/4, 2/3 and 1/2 of the n-grams match, and their product is 1/5."""
    assert bleu(["a b c d e"], ["a b c d f"]).value == pytest.approx(100 * (1 / 5) ** 0.25)
    assert bleu(["a b c d"], ["a b c d e"]).value == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_it_is_of_the_corpus_and_not_a_mean_over_sentences():
    """n-grams and lengths are summed: 4 + 4 of 5 + 5 words match, and so on, however they are spread."""
    hypotheses, references = ["a b c d e", "a b c d e f g h"], ["a b c d x", "a b c d e f g h"]
    expected = 100 * (12 / 13 * 10 / 11 * 8 / 9 * 6 / 7) ** 0.25
    assert bleu(hypotheses, references).value == pytest.approx(expected)


def test_case_and_order_count():
    assert bleu([text.lower() for text in REFERENCES], REFERENCES).value < 100
    assert bleu(REFERENCES[::-1], REFERENCES).value < 50


def test_translations_without_a_word_score_zero():
    assert bleu(["", "", ""], REFERENCES).value == 0.0


def test_the_signature_says_how_the_score_was_computed():
    parts = bleu(HYPOTHESES, REFERENCES).signature.split("|")
    assert parts == ["nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"]
