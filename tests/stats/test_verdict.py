"""Verdicts: which word and which sentence a row gets, and the faults of former rules that they must
not have.
"""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import ttost_paired

from ablate.stats.bootstrap import BootstrapTest
from ablate.stats.comparison import (
    DifferenceNoise,
    Noise,
    PairedScores,
    ScoreComparison,
    SeedTest,
    compare,
)
from ablate.stats.judge import _carry_over, _Corrected, _verdict, _word, verdicts
from ablate.stats.looks import SINGLE_LOOK, Look
from ablate.stats.metrics import BITS_PER_BYTE, PPL, TRANSLATION_METRICS
from ablate.stats.noise import Variance
from ablate.stats.power import MAX_SEEDS
from ablate.stats.significance import LEVEL, HolmTest, holm_correction
from ablate.stats.verdict import Verdict, joint_short, joint_word, p_equation

BLEU, TER = (
    next(metric for metric in TRANSLATION_METRICS if metric.name == name)
    for name in ("bleu", "ter")
)


def by_seed(*values):
    return dict(enumerate(values, 1))


def resampled(row, base, spread=0.3, count=1000):
    """Scores of a row and of base on resampled test sets, with common noise."""
    draw = random.Random(0)
    noise = [draw.gauss(0, 2) for _ in range(count)]
    return [row + n + draw.gauss(0, spread) for n in noise], [base + n for n in noise]


def paired(*differences, spread=None, **others):
    """Scores paired by seed; with a noise of the sentences if `spread` is given."""
    resamples = (
        {}
        if spread is None
        else {s: resampled(25 + d, 25, spread) for s, d in by_seed(*differences).items()}
    )
    ended = len(differences) + others.get("diverged", 0)
    counts = {"base_ended": ended, **others}
    return PairedScores(by_seed(*differences), resamples, **counts)


def one(*differences, metric=BLEU, margin=None, **others) -> Verdict:
    (verdict,) = verdicts(metric, [paired(*differences, **others)], margin=margin)
    return verdict


def noisy(rows, seeds=3, sd=1.0, seed=0):
    """Rows without an effect."""
    scores = np.random.default_rng(seed).normal(size=(rows + 1, seeds)) * sd
    return [paired(*(scores[row] - scores[0]).tolist()) for row in range(1, rows + 1)]


# --- words ---


def test_a_significant_difference_is_worse_or_better_by_the_direction_of_the_metric():
    down = (-2.0, -2.1, -1.9)
    assert one(*down).word == "worse"
    assert one(*down, metric=PPL).word == "better"
    assert one(*down, metric=TER).word == "better"
    assert one(2.0, 2.1, 1.9).word == "better"


def test_an_insignificant_difference_reports_what_could_be_seen_and_the_seeds_that_would_see_it():
    verdict = one(-1.0, 1.2, -1.5)
    assert verdict.word == "cannot tell"
    assert verdict.text == (
        f"cannot tell (detectable difference: {verdict.minimum_detectable:.1f} BLEU; "
        f"detecting a true difference as large as observed takes a new study of {3 + verdict.more_seeds} seeds)"
    )
    assert verdict.short == f"cannot tell ({verdict.minimum_detectable:.1f})"
    assert abs(verdict.mean) < verdict.minimum_detectable


def test_two_seeds_that_hold_every_difference_have_all_of_it_as_their_interval():
    verdict = one(-30.0, 20.0, possible=(-100.0, 100.0))
    assert verdict.interval == (-100.0, 100.0)
    assert verdict.text.startswith("cannot tell (detectable difference: >100 BLEU; ")
    assert verdict.short == "cannot tell (>100)"
    content = verdict.as_json()
    assert (content["low"], content["high"]) == (-100.0, 100.0)
    assert content["minimum_detectable"] > 100
    clipped = one(-97.0, -96.0, -95.0)
    assert clipped.interval == (pytest.approx(-98.5, abs=0.05), pytest.approx(-93.5, abs=0.05))
    # Base at 99.0 can lose 99.0 and gain 1.0.
    possible = BLEU.possible_differences(99.0)
    assert one(-99.0, -98.0, -97.0, possible=possible).interval[0] == -99.0
    assert one(-2.0, 0.5, -1.0, possible=possible).interval[1] == 1.0
    assert one(-70.0, 1.0, possible=possible).interval == (-99.0, 1.0)
    assert TER.possible_differences(99.0) == (-100.0, 100.0)
    assert one(-30.0, 20.0, metric=replace(BLEU, is_percentage=False)).interval is not None


def test_an_interval_of_a_perplexity_does_not_reach_below_1():
    base, noise = math.log(1.02), [-0.01, -0.05, 0.03]
    resampled = [0.002 * z for z in range(-100, 101)]
    row = PairedScores(
        by_seed(*noise),
        dict.fromkeys((1, 2, 3), (resampled, [0.0] * len(resampled))),
        possible=PPL.possible_differences(base),
    )
    (verdict,) = verdicts(PPL, [row])
    assert verdict.seed_test.low < -base
    assert verdict.interval == (-base, verdict.seed_test.high)
    assert (verdict.bootstrap.low, verdict.bootstrap.high > 0.1) == (-base, True)
    assert PPL.interval_text(*verdict.interval).startswith("[0.980, ")


def test_an_interval_of_a_loss_does_not_reach_below_0():
    def loss(base, *differences):
        row = PairedScores(by_seed(*differences), base_ended=2, possible=(-base, math.inf))
        (verdict,) = verdicts(BITS_PER_BYTE, [row])
        return verdict

    low, high = (pytest.approx(end) for end in stats.t.interval(0.95, 1, 0.03, 0.02))
    assert loss(1.2, 0.01, 0.05).interval == (low, high)
    # The interval of the test is -0.03 -+ 0.2541, which is more than base has to lose.
    assert loss(0.26, -0.01, -0.05).interval == (-0.26, pytest.approx(0.2241, abs=1e-4))
    # A loss has no largest value.
    assert loss(0.2, 0.0, 0.06).interval == (-0.2, pytest.approx(0.4112, abs=1e-4))
    # Base near 0 leaves a larger loss its interval.
    assert loss(0.001, 5.01, 5.05).interval == (
        pytest.approx(5.03 - 0.2541, abs=1e-4),
        pytest.approx(5.2841, abs=1e-4),
    )


def test_seeds_are_added_only_where_later_looks_have_them():
    verdict = one(-1.0, -2.1, -1.9, -0.2)
    more = verdict.more_seeds
    assert verdict.more_seeds_text == f"a new study of {4 + more} seeds"
    later = replace(verdict, look=Look(1, (4, 4 + more)))
    assert later.more_seeds_text == f"about {more} more seed{'s' if more > 1 else ''}"
    unfinished = replace(verdict, pending=more)
    assert unfinished.more_seeds_text == later.more_seeds_text
    too_few = replace(verdict, pending=more - 1)
    assert too_few.more_seeds_text == verdict.more_seeds_text
    assert replace(verdict, look=Look(1, (4, 3 + more))).more_seeds_text.startswith("a new study")
    # At the last look, of which some seeds diverged, no seed is left to run.
    last = replace(verdict, diverged=more, look=Look(2, (2, 4 + more)))
    assert last.more_seeds_text.startswith("a new study")


def test_a_share_of_the_level_makes_tests_stricter_and_p_values_comparable():
    rows = [paired(-2.0, -2.6, -1.7), paired(0.3, -0.2, 0.1), paired(-0.1, 0.2, 0.6)]
    whole, half = verdicts(BLEU, rows), verdicts(BLEU, rows, share=0.5)
    for before, after in zip(whole, half, strict=True):
        assert after.p_adjusted == pytest.approx(min(1.0, 2 * before.p_adjusted))
        assert after.minimum_detectable > before.minimum_detectable
        assert (after.interval[0] <= 0 <= after.interval[1]) == (after.p_adjusted >= LEVEL)


def test_a_row_that_is_told_apart_needs_no_more_seeds():
    for differences in ((-2.0, -2.1, -1.9), (2.0, 2.1, 1.9)):
        verdict = one(*differences)
        assert (verdict.is_different, verdict.more_seeds) == (True, None)


def test_the_seeds_needed_are_the_fewest_whose_t_test_sees_the_observed_mean():
    differences = np.array([-1.0, 1.2, -1.5, -0.9])
    mean, std = differences.mean(), differences.std(ddof=1)

    def sees(n):
        return abs(mean) >= (stats.t.isf(0.025, n - 1) + stats.t.isf(0.2, n - 1)) * std / n**0.5

    n = 4 + one(*differences.tolist()).more_seeds
    assert sees(n)
    assert not sees(n - 1)


def test_no_number_of_seeds_sees_a_difference_below_the_noise_of_the_sentences():
    verdict = one(-0.5, 0.3, -0.4, spread=2.0)
    assert verdict.more_seeds is None
    assert verdict.text.endswith(
        "no number of seeds detects a true difference as large as observed)"
    )
    assert one(-0.5, 0.3, -0.4).more_seeds is not None


def test_a_row_is_as_good_as_base_if_it_is_significantly_within_the_margin():
    verdict = one(0.1, -0.1, 0.05, margin=0.5)
    assert (verdict.word, verdict.short) == ("as good as base", "as good as base within ±0.5")
    assert verdict.text == "as good as base within ±0.5 BLEU"
    assert one(0.1, -0.1, 0.05).word == "cannot tell"
    assert one(0.1, -0.1, 0.05, margin=0.05).word == "cannot tell"
    assert one(-0.2, -0.21, -0.19, margin=0.5).text == "worse, but within ±0.5 BLEU of base"


@pytest.mark.parametrize("margin", [0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("differences", [(0.1, -0.3, 0.4, 0.2), (-0.6, 0.1, 0.2, -0.3, 0.0)])
def test_equivalence_matches_the_two_one_sided_tests_of_statsmodels(differences, margin):
    p, *_ = ttost_paired(np.array(differences), np.zeros(len(differences)), -margin, margin)
    assert one(*differences, margin=margin).is_within_margin == (p < 0.05)


def test_a_quiet_row_is_as_good_as_base_only_if_the_shared_noise_agrees():
    quiet, margin = paired(0.1, -0.1, 0.05, 0.02), 0.9
    rows = [quiet, *noisy(5, seeds=4)]
    (row, *_) = compare(rows, LEVEL)
    shared, own = row.equivalence(margin)
    assert own < LEVEL < 6 * shared
    assert verdicts(BLEU, [quiet], margin=margin)[0].is_within_margin
    assert not verdicts(BLEU, rows, margin=margin)[0].is_within_margin


def test_rows_without_a_result_diverged_rows_and_equal_rows_have_other_words():
    assert (one().word, one().text) == ("", "no result yet")
    assert one(0.0, 0.0).word == "no difference"
    assert one(-5.0, -5.1, -4.9, diverged=1).text == "worse; 1 of 4 seeds diverged"


def test_seeds_that_have_ended_are_those_with_a_difference_or_a_divergence_unless_more_are_counted():
    for unpaired, expected in ((0, 4), (2, 6)):
        row = PairedScores(by_seed(-5.0, -5.1, -4.9), diverged=1, unpaired=unpaired)
        (verdict,) = verdicts(BLEU, [row])
        assert verdict.ended == expected
        assert verdict.text.endswith(f"; 1 of {expected} seeds diverged")


def test_one_seed_cannot_tell_and_reports_the_bootstrap_apart():
    assert one(0.0).word == "cannot tell"  # and not "no difference"
    assert one(-5.0).text == "cannot tell: one seed shows no spread"
    assert one(-5.0, spread=0.3).text == (
        "cannot tell: one seed shows no spread; "
        "beyond the noise of the test sentences (p < 0.001), not the seeds' noise"
    )
    assert "within the noise of the test sentences" in one(-0.01, spread=0.3).text


def test_the_bootstrap_needs_resampled_scores_of_every_seed():
    assert (
        verdicts(BLEU, [PairedScores(by_seed(-1.0, -2.0), {1: resampled(24, 25)})])[0].bootstrap
        is None
    )


def test_p_values_of_the_test_set_are_corrected_over_all_rows_of_the_study():
    rows = [paired(-0.8, spread=0.3), paired(-0.6, spread=0.3)]
    for family, factors in ((None, (2, 1)), (4, (4, 3)), (1, (1, 1))):
        first, second = verdicts(BLEU, rows, n_tests=family)
        assert 0.005 < first.bootstrap.p < second.bootstrap.p < 0.1
        assert first.p_bootstrap == pytest.approx(factors[0] * first.bootstrap.p)
        assert second.p_bootstrap == pytest.approx(factors[1] * second.bootstrap.p)
        for verdict in (first, second):
            noise = "beyond" if verdict.p_bootstrap < LEVEL else "within"
            assert f"{noise} the noise of the test sentences" in verdict.text
    assert first.bootstrap.p < LEVEL <= verdicts(BLEU, rows, n_tests=40)[0].p_bootstrap
    assert "within the noise of the test sentences" in verdicts(BLEU, rows, n_tests=40)[0].text


def test_rows_of_several_bases_are_one_family_and_share_noise_with_their_base_alone():
    bases = {"small": (noisy(3, seed=1), 1.0), "large": (noisy(3, seed=2), 30.0)}
    rows, alone = [], []
    for label, (of_base, scale) in bases.items():
        of_base = [
            replace(row, differences={s: d * scale + 2 for s, d in row.differences.items()})
            for row in of_base
        ]
        alone += verdicts(BLEU, of_base, n_tests=1)
        rows += [replace(row, base_label=label) for row in of_base]
    together = verdicts(BLEU, rows)
    p_values = [verdict.seed_test.p for verdict in alone]
    assert [verdict.seed_test.p for verdict in together] == p_values
    expected = multipletests(p_values, method="holm")[1]
    assert [verdict.p_holm for verdict in together] == pytest.approx(expected)


# --- one row is the paired t test ---


@pytest.mark.parametrize("differences", [(-1.0, -1.2, -1.4), (0.3, -0.8, 1.9, 0.4), (5.0, 4.0)])
def test_a_single_row_without_noise_of_sentences_is_the_paired_t_test_of_scipy(differences):
    verdict, expected = one(*differences), stats.ttest_1samp(differences, 0.0)
    interval = expected.confidence_interval(0.95)
    assert verdict.p_holm == pytest.approx(expected.pvalue)
    assert (verdict.seed_test.low, verdict.seed_test.high) == pytest.approx(
        (interval.low, interval.high)
    )
    assert (verdict.word in ("worse", "better")) == (expected.pvalue < 0.05)


def test_p_of_several_variances_is_the_level_at_which_the_interval_ends():
    noise = Noise((Variance(2.0, 2), Variance(1.0, 20)), 0.3)
    assert noise.error(3) == pytest.approx(((2.0 + 1.0) / 3 + 0.3) ** 0.5)
    for distance in (0.5, 1.5, 3.0, 12.0):
        level = noise.p(distance, 3)
        squares = [
            stats.t.isf(level / 2, df) ** 2 * value / 3 for value, df in ((2.0, 2), (1.0, 20))
        ]
        assert (sum(squares) + stats.norm.isf(level / 2) ** 2 * 0.3) ** 0.5 == pytest.approx(
            distance, rel=1e-4
        )


def test_p_values_end_at_the_smallest_that_is_told_apart():
    noise = Noise((Variance(1.0, 200), Variance(1.0, 300)))
    widest = noise.half_width(1e-15, 1)
    assert [noise.p(sign * (widest + 0.5), 1) for sign in (1, -1)] == [1e-15, 1e-15]
    near = noise.p(widest - 0.5, 1)
    assert 1e-15 < near < 1e-12
    assert noise.half_width(near, 1) == pytest.approx(widest - 0.5, rel=1e-6)
    assert (noise.p(0.0, 1), Noise((Variance(0.0, 2), Variance(0.0, 3))).p(1.0, 3)) == (1.0, 1.0)


def test_rows_share_their_noise_and_a_row_noisier_than_others_counts_with_its_own():
    rows = noisy(8)
    clear = paired(-5.0, -5.6, -4.6)
    assert verdicts(BLEU, [clear, *rows])[0].word == "worse"
    wild = paired(-9.0, -1.0, -5.2)
    assert verdicts(BLEU, [wild, *rows])[0].word == "cannot tell"


def test_a_row_that_only_decodes_bases_trainings_otherwise_is_judged_by_its_own_differences():
    beam = paired(-0.20, -0.21, -0.19, same_training=True)
    assert verdicts(BLEU, [beam, *noisy(5, sd=5.0)])[0].word == "worse"
    assert verdicts(BLEU, [paired(-0.20, -0.21, -0.19), *noisy(5, sd=5.0)])[0].word == "cannot tell"


# --- faults of former rules, by their letters in the issue ---


@pytest.mark.parametrize("spread", [0.1, 0.5, 2.0])
def test_a_p_and_interval_of_the_test_set_never_contradict_each_other_in_either_direction(spread):
    for difference in (-1.0, -0.2, 0.2, 1.0):
        test = one(difference, difference + 0.1, spread=spread).bootstrap
        assert (test.low <= 0 <= test.high) == (test.p >= 0.05)
    up, down = one(0.3, 0.4, spread=spread).bootstrap, one(-0.3, -0.4, spread=spread).bootstrap
    assert up.p == pytest.approx(down.p, abs=0.15)


def test_b_the_smallest_detectable_difference_has_the_noise_of_the_sentences_in_it():
    steady = one(0.64, 0.66, 0.62, spread=0.5)
    assert steady.minimum_detectable > 0.9
    assert steady.word == "cannot tell"
    assert one(0.64, 0.66, 0.62).minimum_detectable < 0.1


@pytest.mark.parametrize("others", [48, 49, 60])
def test_c_the_test_set_counts_with_any_number_of_rows(others):
    """The verdict uses the variance of the resamples, and so does not depend on how small their p
    value can be.
    """
    row = paired(-1.0, -1.05, -0.95, spread=1.5)
    quiet = noisy(others, sd=0.05)
    judged = verdicts(BLEU, [row, *quiet])[0]
    assert judged.word == "cannot tell"
    assert judged.bootstrap is not None
    assert verdicts(BLEU, [paired(-1.0, -1.05, -0.95), *quiet])[0].word == "worse"


def test_d_divergence_counts_against_a_row():
    survivors = one(2.0, 2.1, diverged=3, base_ended=5)
    assert survivors.word == "cannot tell"
    assert survivors.text.endswith("; 3 of 5 seeds diverged")
    clear = one(2.0, 2.1, 1.9, diverged=1)
    assert clear.word == "cannot tell"
    assert "only over the seeds that did not diverge" in clear.text
    assert one(0.01, -0.01, 0.0, margin=5.0, diverged=1).word == "cannot tell"
    assert one(-2.0, -2.1, -1.9, diverged=1).word == "worse"


def test_d_a_row_that_always_or_nearly_always_diverges_is_worse():
    always = one(diverged=3, base_ended=3)
    assert (always.word, always.text) == ("worse", "worse: diverged with 3 of 3 seeds")
    assert one(0.1, diverged=9, base_ended=10).word == "worse"
    assert one(diverged=2, base_ended=2).word == "worse"
    assert one(diverged=1, base_ended=1).word == "diverged"  # one seed shows no more than it did
    assert one(diverged=2, base_ended=3, pending=1).word == "diverged"  # a seed is missing
    assert one(diverged=3, base_ended=3, base_diverged=1).word == "diverged"  # as base does
    assert one(diverged=3, base_ended=1, base_pending=2).word == "diverged"  # base may do so, too


def test_d_a_row_without_any_score_is_worse_if_it_diverges_significantly_more_often():
    # 8 of 8 against 1 of 8 by Fisher's exact test, doubled for the two ways to be worse.
    p = stats.fisher_exact([[8, 0], [1, 7]], alternative="greater").pvalue
    assert 2 * p < 0.05
    assert (
        one(diverged=8, base_ended=8, base_diverged=1).text == "worse: diverged with 8 of 8 seeds"
    )
    rows = [paired(diverged=8, base_ended=8, base_diverged=1), *[paired()] * round(0.025 / p)]
    assert verdicts(BLEU, rows)[0].word == "diverged"  # as corrected for so many rows


def test_d_a_base_that_diverges_makes_no_row_worse_by_its_surviving_seeds():
    assert one(-2.0, -2.1, -1.9, base_diverged=1, base_ended=4).word == "cannot tell"
    assert one(2.0, 2.1, 1.9, base_diverged=1, base_ended=4).word == "better"


def test_e_equal_differences_are_no_proof():
    for differences in ((-2.0, -2.0), (-2.0, -2.0, -2.0)):
        verdict = one(*differences)
        assert (verdict.word, verdict.p_holm) == ("cannot tell", None)
        assert verdict.text == "cannot tell: the differences show no spread in BLEU"
        assert one(*differences, spread=0.1).word == "cannot tell"
    (among, *_) = verdicts(BLEU, [paired(-2.0, -2.0), *noisy(6, seeds=2)])
    assert 0.001 < among.seed_test.p < 1


def test_f_holm_covers_all_rows_from_the_beginning_so_that_filling_the_study_takes_nothing_back():
    row = paired(-2.0, -2.4, -2.2)
    first = verdicts(BLEU, [row, *[PairedScores()] * 8])[0]
    alone = verdicts(BLEU, [row], n_tests=9)[0]
    assert first.p_holm == alone.p_holm == pytest.approx(9 * one(-2.0, -2.4, -2.2).p_holm)
    with_p_1 = [row, *[paired(1.0, -1.0, 0.0)] * 8]
    assert verdicts(BLEU, with_p_1)[0].seed_test.level == first.seed_test.level


@pytest.mark.parametrize("seed", range(30))
def test_g_an_interval_excludes_zero_exactly_if_the_verdict_says_so(seed):
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(7, 3)) * np.exp(draw.normal(size=(7, 1)))
    scores[1:] += draw.normal(size=(6, 1)) * 5
    spread = None if seed % 2 else 0.5
    found = verdicts(
        BLEU, [paired(*(row - scores[0]).tolist(), spread=spread) for row in scores[1:]]
    )
    for verdict in found:
        excluded = not verdict.seed_test.low <= 0 <= verdict.seed_test.high
        assert excluded == (verdict.word in ("worse", "better")) == (verdict.p_adjusted < 0.05)
        assert verdict.seed_test.low > verdict.mean - verdict.minimum_detectable
        narrow = stats.t.isf(0.025, 12) * 2**0.5 * min(map(np.std, scores)) / 3**0.5
        assert verdict.seed_test.high - verdict.seed_test.low > 2 * narrow


@pytest.mark.parametrize("rows", [1, 13])
def test_a_row_that_always_scores_far_below_base_is_worse(rows):
    found = verdicts(BLEU, [paired(-43.0, -45.0, -41.5), *noisy(rows - 1, sd=2.0)])
    assert found[0].word == "worse"


# --- parts of the rule ---


OPEN_TEST = HolmTest(1.0, LEVEL)


def compared(*differences, own_level=LEVEL, **counts):
    """A row whose variances are given: the shared one has 10 degrees of freedom, and its own 2."""
    shared, own = Noise((Variance(0.02, 10),)), Noise((Variance(0.05, 2),))
    noise = DifferenceNoise(shared, own, own_level)
    return ScoreComparison(paired(*differences, **counts), None, noise)


def test_equivalence_is_tested_with_the_shared_and_with_the_row_s_own_variance():
    near = compared(0.1, -0.2, 0.4)  # 0.1 in the mean
    expected = [stats.t.sf(0.2 / (value / 3) ** 0.5, df) for value, df in ((0.02, 10), (0.05, 2))]
    assert near.equivalence(0.3) == pytest.approx(expected)
    assert compared(-0.1, 0.2, -0.4).equivalence(0.3) == pytest.approx(expected)
    for margin in (near.row.mean, 0.05):
        assert near.equivalence(margin) == (1.0, 1.0)
    for counts in ({"diverged": 1}, {"base_diverged": 1}):
        assert compared(0.1, -0.2, 0.4, **counts).equivalence(0.3) == (1.0, 1.0)
    assert ScoreComparison(paired(0.1), None).equivalence(0.3) == (1.0, 1.0)


def test_a_p_value_that_equals_its_level_is_not_below_it():
    def word(row, p):
        return _word(BLEU, row, HolmTest(p, LEVEL), False)

    plain = compared(-1.0, -1.1, -1.2)
    p_own = plain.p_values(plain.row.mean).own
    at = compared(-1.0, -1.1, -1.2, own_level=p_own)
    above = compared(-1.0, -1.1, -1.2, own_level=p_own * 1.001)
    assert (word(at, 0.01), word(above, 0.01)) == ("cannot tell", "worse")
    assert (word(above, LEVEL), word(above, 0.999 * LEVEL)) == ("cannot tell", "worse")
    more = compared(-1.0, diverged=1, base_ended=2)
    assert (word(more, LEVEL), word(more, 0.04)) == ("cannot tell", "worse")


@pytest.mark.parametrize(
    ("factor", "adjusted", "word"),
    [
        (1.0, 0.01, "cannot tell"),
        (1.001, 0.01, "as good as base"),
        (1.001, LEVEL, "cannot tell"),
    ],
)
def test_a_p_value_of_equivalence_that_equals_its_level_is_not_below_it(factor, adjusted, word):
    _, p_own = compared(0.1, -0.1, 0.1).equivalence(0.5)
    near = compared(0.1, -0.1, 0.1, own_level=p_own * factor)
    corrected = _Corrected(OPEN_TEST, HolmTest(adjusted, LEVEL), OPEN_TEST)
    verdict = _verdict(BLEU, near, corrected, 0.5, SINGLE_LOOK)
    assert (verdict.word, verdict.is_within_margin) == (word, word == "as good as base")


def test_a_row_that_diverges_more_often_counts_with_its_scores_or_its_divergences():
    down, up = (-1.0, -1.1, -1.2), (1.0, 1.1, 1.2)
    p = compared(*down).noise.pooled.p(1.1, 3)
    counts = {"diverged": 1, "base_ended": 4}
    assert compared(*down, **counts).p_uncorrected(BLEU) == pytest.approx(2 * p)
    assert (
        compared(*up, **counts).p_uncorrected(BLEU) == 1.0
    )  # of Fisher's test: 1 of 4 against 0 of 4
    assert compared(*up, **counts).p_uncorrected(PPL) == pytest.approx(2 * p)
    p_own = compared(*down).p_values(compared(*down).row.mean).own
    assert compared(*down, own_level=p_own, **counts).p_uncorrected(BLEU) == 1.0
    counts = {"base_diverged": 1, "base_ended": 4}
    assert [compared(*each, **counts).p_uncorrected(BLEU) for each in (down, up)] == pytest.approx(
        [1.0, p]
    )
    often = compared(*up, diverged=7, base_ended=10)
    fisher = stats.fisher_exact([[7, 3], [0, 10]], alternative="greater").pvalue
    assert often.p_uncorrected(BLEU) == pytest.approx(2 * fisher)
    assert compared(*up, diverged=7, base_ended=0).p_uncorrected(BLEU) == 1.0


@pytest.mark.parametrize("seeds", [3, 4, 5, 6, 7, 12])
def test_a_width_that_equals_the_observed_mean_needs_no_further_seed(seeds):
    two = compared(0.0, 0.0)
    mean = two.detectable_difference(LEVEL, seeds)
    assert compared(mean, mean).more_seeds(LEVEL) == seeds - 2
    assert compared(mean * 0.9999, mean * 0.9999).more_seeds(LEVEL) == seeds - 1
    assert compared(1e-3, 1e-3).more_seeds(LEVEL) is None


def test_no_more_seeds_are_named_than_a_study_can_have():
    mean = compared(0.0, 0.0).detectable_difference(LEVEL, MAX_SEEDS)
    assert compared(mean, mean).more_seeds(LEVEL) == MAX_SEEDS - 2
    assert compared(mean * 0.9999, mean * 0.9999).more_seeds(LEVEL) is None


def test_a_row_without_any_seed_or_noise_has_no_evidence():
    nothing = PairedScores()
    assert (nothing.n, nothing.mean, nothing.ended, nothing.base_ended, nothing.pending) == (
        0, None, 0, 0, 0,
    )  # fmt: skip
    assert ScoreComparison(nothing, None).p_uncorrected(BLEU) == 1.0
    assert ScoreComparison(paired(-1.0), None).p_uncorrected(BLEU) == 1.0


def test_rows_of_one_seed_without_an_effect_or_of_no_seed_have_no_noise_and_change_that_of_no_other():
    rows, silent = noisy(4), [paired(5.0), paired(0.0, 0.0, 0.0), paired()]
    assert (
        compare([silent[0], *rows[:2], silent[1], *rows[2:], silent[2]], LEVEL)[1::3]
        == (compare(rows, LEVEL)[::2])
    )
    assert [row.noise for row in compare(silent, LEVEL)] == [None] * 3


def test_the_noise_of_the_test_sentences_is_the_variance_of_the_bootstrap():
    (row,) = compare([paired(-1.0, -1.3, -0.6, spread=0.3)], LEVEL)
    assert row.bootstrap.std == pytest.approx(0.3, rel=0.1)  # the seeds share their test sentences
    variance = pytest.approx(row.bootstrap.std**2)
    assert row.noise.pooled.sentences == row.noise.own.sentences == variance


def test_the_width_is_the_larger_one_of_both_tests_each_at_its_level():
    row = compared(0.3, -0.2, 0.4, own_level=0.01)
    wide = [stats.t.isf(level / 2, df) * (value / 3) ** 0.5 for level, value, df in
            ((0.02, 0.02, 10), (0.01, 0.05, 2))]  # fmt: skip
    assert row.half_width(0.02, 3) == pytest.approx(max(wide))
    strict = compared(0.3, -0.2, 0.4, own_level=0.9)
    assert strict.half_width(0.02, 3) == pytest.approx(wide[0])
    assert strict.half_width(0.02, 5) == pytest.approx(stats.t.isf(0.01, 20) * (0.02 / 5) ** 0.5)


@pytest.mark.parametrize(
    ("p_values", "family", "level", "settled", "expected"),
    [
        ([0.03], 1, 0.05, (), [(0.03, 0.05)]),
        ([0.03, 0.9], 1, 0.025, (), [(0.06, 0.025), (1.0, 0.025)]),
        ([0.9, 0.01, 0.02], 3, 0.05, (), [(0.9, 0.05), (0.03, 0.05 / 3), (0.04, 0.025)]),
        # Equal to the level: the method stops.
        ([0.025, 0.9], 2, 0.05, (), [(0.05, 0.025), (0.9, 0.025)]),
        ([0.02, 0.021, 0.5], 3, 0.05, (), [(0.06, 0.05 / 3), (0.06, 0.05 / 3), (0.5, 0.05 / 3)]),
        # Two rows are still to come.
        ([0.01, 0.04], 4, 0.05, (), [(0.04, 0.0125), (0.12, 0.05 / 3)]),
        ([0.4, 0.01, 0.03], 3, 0.05, (0,), [(1.0, 0.05 / 3), (0.02, 0.025), (0.03, 0.05)]),
        ([0.04, 0.04], 2, 0.05, (0, 1), [(0.04, 0.05), (0.04, 0.05)]),
        ([0.6, 0.7], 2, 0.05, (), [(1.0, 0.025), (1.0, 0.025)]),
    ],
)
def test_holm_s_method_goes_down_from_the_smallest_p_value_and_stops_at_the_first_that_is_not_below_its_level(
    p_values, family, level, settled, expected
):
    found = holm_correction(p_values, family, level, frozenset(settled))
    assert np.array(found) == pytest.approx(np.array(expected))
    assert all(p <= 1 for p, _ in found)
    if family == len(p_values) and level == 0.05 and not settled:
        assert [p for p, _ in found] == pytest.approx(
            multipletests(p_values, method="holm")[1].tolist()
        )


NOW, BEFORE = Look(2, (3, 5)), Look(1, (3, 5))


@pytest.mark.parametrize(
    ("earlier", "mean", "counts", "word"),
    [
        ("worse", -0.1, {}, "worse"),
        ("worse", 0.1, {}, "cannot tell"),
        ("worse", None, {"diverged": 1}, "worse"),
        ("worse", -0.1, {"base_diverged": 1}, "cannot tell"),
        ("worse", -0.1, {"diverged": 1, "base_diverged": 1}, "worse"),
        ("better", 0.1, {}, "better"),
        ("better", -0.1, {}, "cannot tell"),
        ("better", None, {"diverged": 1, "base_diverged": 1}, "cannot tell"),
        ("better", 0.1, {"diverged": 1, "base_diverged": 1}, "better"),
        ("better", 0.1, {"base_diverged": 1}, "better"),
        ("better", 0.1, {"diverged": 1}, "cannot tell"),
        ("as good as base", 0.4, {}, "as good as base"),
        ("as good as base", -0.4, {}, "as good as base"),
        ("as good as base", 0.5, {}, "cannot tell"),
        ("as good as base", -0.6, {}, "cannot tell"),
        ("as good as base", 0.1, {"diverged": 1}, "cannot tell"),
        ("as good as base", 0.1, {"diverged": 1, "base_diverged": 1}, "cannot tell"),
        ("no difference", 0.1, {}, "cannot tell"),
        ("cannot tell", 0.1, {}, "cannot tell"),
    ],
)
def test_a_verdict_of_an_earlier_look_stays_while_mean_and_divergences_agree(
    earlier, mean, counts, word
):
    within = earlier == "as good as base"
    past = Verdict(
        BLEU, earlier, 3, 1.0, margin=0.5, is_within_margin=within, look=BEFORE, decided_at=1
    )
    now = Verdict(BLEU, "cannot tell", 1, mean, diverged=counts.get("diverged", 0), look=NOW)
    found = _carry_over(now, counts.get("base_diverged", 0), past)
    decided_at = None if word == "cannot tell" else 1
    is_within = word == "as good as base"
    assert found == replace(now, word=word, is_within_margin=is_within, decided_at=decided_at)


def test_a_verdict_of_this_look_goes_before_an_earlier_one_and_keeps_what_it_knows_of_the_margin():
    past = Verdict(
        BLEU,
        "as good as base",
        3,
        0.1,
        margin=0.5,
        is_within_margin=True,
        look=BEFORE,
        decided_at=1,
    )
    now = Verdict(BLEU, "worse", 1, -0.2, look=NOW, decided_at=2)
    assert _carry_over(now, 0, past) == now
    assert _carry_over(now, 0, None) == now
    worse = Verdict(BLEU, "worse", 3, -0.2, margin=0.5, decided_at=1)
    within = Verdict(BLEU, "cannot tell", 1, -0.2, is_within_margin=True, look=NOW)
    assert _carry_over(within, 0, worse) == replace(within, word="worse", decided_at=1)
    assert _carry_over(now, 0, worse) == replace(now, decided_at=1)


def test_a_verdict_without_details_says_its_word_alone():
    plain = Verdict(BLEU, "worse", 3, -1.0)
    assert (plain.text, plain.short, plain.is_decided) == ("worse", "worse", True)
    assert (plain.p_adjusted, plain.more_seeds) == (None, None)
    assert (plain.detectable_text, plain.margin_text) == ("", "")
    assert replace(plain, minimum_detectable=0.5).short == "worse"


@pytest.mark.parametrize(
    ("diverged", "ended", "seeds"), [(1, 1, "its only seed"), (2, 3, "2 of 3 seeds")]
)
def test_a_diverged_row_says_with_which_seeds(diverged, ended, seeds):
    verdict = Verdict(BLEU, "diverged", 0, None, diverged=diverged, ended=ended)
    assert verdict.text == f"diverged with {seeds}"


@pytest.mark.parametrize(
    ("metric", "detectable", "text"),
    [
        (BLEU, None, ""),
        (BLEU, 100.0, " (100.0)"),
        (BLEU, 100.1, " (>100)"),
        (BLEU, 0.05, " (0.1)"),
        (BLEU, 0.0321, " (0.03)"),
        (PPL, 1.01, " (×2.746)"),
        (PPL, 14.0, " (>×1e+6)"),
    ],
)
def test_the_cell_of_an_undecided_row_has_its_detectable_difference(metric, detectable, text):
    verdict = Verdict(metric, "cannot tell", 2, 0.0, minimum_detectable=detectable)
    assert verdict.short == f"cannot tell{text}"


def test_a_verdict_with_one_of_two_numbers_goes_on_without_it():
    assert Verdict(BLEU, "cannot tell", 1, -1.0, p_holm=0.2).p_adjusted is None
    unseen = Verdict(BLEU, "cannot tell", 2, -1.0, minimum_detectable=0.5)
    assert unseen.text == "cannot tell: the differences show no spread in BLEU"


@pytest.mark.parametrize(
    ("p", "noise"), [(LEVEL / 2, "beyond"), (LEVEL, "within"), (2 * LEVEL, "within")]
)
def test_one_seed_is_beyond_the_noise_of_the_sentences_below_the_level(p, noise):
    bootstrap = BootstrapTest(0.5, -2.0, 0.0, p)
    text = Verdict(BLEU, "cannot tell", 1, -1.0, bootstrap=bootstrap, p_bootstrap=p).text
    assert text.endswith(
        f"; {noise} the noise of the test sentences (p = {p:.2g}), not the seeds' noise"
    )


@pytest.mark.parametrize(("p", "text"), [(0.0009, "p < 0.001"), (0.001, "p = 0.001"), (0.034, "p = 0.034"),
                                         (0.5678, "p = 0.57"), (1.0, "p = 1"), (0.0497, "p = 0.0497"),
                                         (0.05, "p = 0.05"), (0.0504, "p = 0.0504")])  # fmt: skip
def test_p_values_have_two_digits_and_more_near_the_level(p, text):
    assert p_equation(p) == text


def by_both(ppl, bleu):
    """Verdicts by perplexity and by BLEU, which find 5 % and 1.5 BLEU."""
    return [
        Verdict(PPL, ppl, 3, 0.1, minimum_detectable=math.log(1.05)),
        Verdict(BLEU, bleu, 3, -0.1, minimum_detectable=1.5),
    ]


@pytest.mark.parametrize(
    ("ppl", "bleu", "word"),
    [
        ("worse", "worse", "worse"),
        ("worse", "cannot tell", "worse by PPL"),
        ("cannot tell", "better", "better by BLEU"),
        ("better", "worse", "better by PPL, worse by BLEU"),
        ("as good as base", "cannot tell", "as good by PPL"),
        ("no difference", "worse", "no difference by PPL, worse by BLEU"),
        ("diverged", "diverged", "diverged"),
        ("cannot tell", "cannot tell", "cannot tell"),
        ("", "", ""),
        ("", "cannot tell", "cannot tell"),
    ],
)
def test_verdicts_by_two_metrics_are_one_word_where_they_agree(ppl, bleu, word):
    assert joint_word(by_both(ppl, bleu)) == word
    cell = joint_short(by_both(ppl, bleu))
    assert cell == (f"{word} (×1.050 PPL, 1.5 BLEU)" if word == "cannot tell" else word)


def test_the_cell_of_a_single_metric_is_its_own_verdict():
    (ppl, bleu) = by_both("cannot tell", "worse")
    assert [joint_short([ppl]), joint_short([bleu])] == ["cannot tell (×1.050)", "worse"]


def test_a_cell_of_two_metrics_has_no_difference_that_the_verdict_does_not_lack():
    ppl, bleu = by_both("cannot tell", "cannot tell")
    test = SeedTest(1.0, 0.01, 0.05, 0.01, 0.05, -3.0, -1.0, 0.3)
    survivors = replace(bleu, seed_test=test, diverged=1, ended=4)
    assert survivors.obstacle == "divergence"
    assert joint_short([ppl, survivors]) == "cannot tell (×1.050 PPL)"
    assert survivors.short == "cannot tell"
