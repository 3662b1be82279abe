"""What is said of a row, and when."""

import random

import pytest

from ablate.config.metrics import METRICS
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.verdict import Compared, verdicts

BLEU, PPL, TER = METRICS["bleu"], METRICS["ppl"], METRICS["ter"]


def seeded(*values):
    return dict(enumerate(values, 1))


def steady(row, base, spread=0.3, count=1000):
    """Scores of both on resampled test sets that move together."""
    draw = random.Random(0)
    noise = [draw.gauss(0, 2) for _ in range(count)]
    return [row + n + draw.gauss(0, spread) for n in noise], [base + n for n in noise]


def one(metric=BLEU, **given):
    (verdict,) = verdicts(metric, [Compared(**given)])
    return verdict


def test_a_difference_beyond_its_spread_is_worse_or_better_as_the_metric_goes():
    down = seeded(-2.0, -2.1, -1.9)
    assert one(BLEU, differences=down).word == "worse"
    assert one(PPL, differences=down).word == "better"
    assert one(TER, differences=down).word == "better"
    assert one(BLEU, differences=seeded(2.0, 2.1, 1.9)).word == "better"


def test_a_difference_within_its_spread_says_what_could_have_been_seen():
    verdict = one(differences=seeded(-1.0, 1.2, -0.5))
    assert verdict.word == "within noise"
    assert verdict.text == f"within noise (smallest difference this study could see: {verdict.least:.1f} BLEU)"
    assert abs(verdict.mean) < verdict.least


def test_one_seed_cannot_tell_and_says_apart_what_the_test_set_says():
    assert one(differences=seeded(-5.0)).text == "cannot tell: one seed shows no spread"
    resamples = {1: steady(20, 25)}
    verdict = one(differences=seeded(-5.0), resamples=resamples)
    assert verdict.word == "cannot tell"
    assert verdict.text == (
        "cannot tell: one seed shows no spread; beyond the noise of the test sentences (p < 0.001), which is not the "
        "seeds' noise"
    )
    assert (
        one(differences=seeded(-0.01), resamples={1: steady(24.99, 25)}).text.count("within the noise of the test") == 1
    )


def test_a_difference_that_only_the_test_set_s_noise_covers_is_within_noise():
    shaky = {seed: steady(24, 25, spread=4) for seed in (1, 2, 3)}
    verdict = one(differences=seeded(-1.0, -1.01, -0.99), resamples=shaky)
    assert verdict.p_seeds < 0.05 < verdict.p_test
    assert verdict.word == "within noise"
    assert "steady over seeds, not over test sentences" in verdict.text
    assert "smallest difference" not in verdict.text
    firm = {seed: steady(24, 25, spread=0.1) for seed in (1, 2, 3)}
    assert one(differences=seeded(-1.0, -1.01, -0.99), resamples=firm).word == "worse"


def test_the_bootstrap_wants_every_seed():
    assert one(differences=seeded(-1.0, -2.0), resamples={1: steady(24, 25)}).test is None


def test_no_result_divergence_and_no_difference_have_words_of_their_own():
    assert (one().word, one().text) == ("", "no result yet")
    assert one(diverged=3).word == "diverged"
    assert one(differences=seeded(0.0, 0.0)).word == "no difference"
    assert one(differences=seeded(-5.0, -5.1), diverged=1).text.endswith("; 1 more seed diverged")


def test_verdicts_are_corrected_over_the_rows_that_can_be_tested():
    differences = seeded(-1.0, -1.2, -1.4)
    (alone,) = verdicts(BLEU, [Compared(differences)])
    many = verdicts(
        BLEU, [Compared(differences), *[Compared(seeded(1.0, -1.0, 0.5))] * 8, Compared(), Compared(seeded(1))]
    )
    assert many[0].p_seeds == pytest.approx(9 * alone.p_seeds)
    assert (alone.word, many[0].word) == ("worse", "within noise")
    assert many[0].least > alone.least
    assert many[-2].p_seeds is many[-1].p_seeds is None


def test_where_rows_are_more_than_resamples_can_tell_apart_only_seeds_speak():
    row = Compared(seeded(-5.0), {1: steady(20, 25)})
    assert verdicts(BLEU, [row] * 49)[0].test is not None
    assert verdicts(BLEU, [row] * 50)[0].test is None


def test_a_mean_over_seeds_is_bootstrapped_as_a_mean():
    """Differences of the mean: -2 and 0 for one seed, 0 and -2 for the other, are -1 and -1 in the mean."""
    found = paired_bootstrap(-1.0, [([1.0, 3.0], [3.0, 3.0]), ([3.0, 1.0], [3.0, 3.0])])
    assert (found.low, found.high, found.n) == (-1.0, -1.0, 2)
    assert found.p == 1 / 3  # no resample is further from its mean than the difference is from zero


def test_the_bootstrap_interval_leaves_out_the_outer_twentieth():
    values = [float(value) for value in range(1000)]
    found = paired_bootstrap(500.0, [(values, [0.0] * 1000)])
    assert (found.low, found.high) == (25.0, 974.0)


def test_translations_that_score_alike_on_every_resample_are_no_difference():
    """Of which sacreBLEU's counting, that no resample exceeds, would say 1 in 1001."""
    assert paired_bootstrap(0.0, [([20.0, 30.0], [20.0, 30.0])]).p == 1
    assert paired_bootstrap(0.0, [([20.0, 30.0], [30.0, 20.0])]).p < 1
