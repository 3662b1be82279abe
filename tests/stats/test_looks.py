"""Looks: the error that each spends, verdicts that stay, and the error of whole studies with
looks.
"""

import numpy as np
import pytest
from scipy import stats

from ablate.stats.comparison import PairedScores
from ablate.stats.judge import early_verdicts, verdicts, verdicts_over_looks
from ablate.stats.looks import Look, planned_looks
from ablate.stats.metrics import TRANSLATION_METRICS
from ablate.stats.significance import LEVEL
from benchmarks import verdicts as simulation

BLEU = TRANSLATION_METRICS[0]
PLAN = (3, 5, 8)


def paired(*differences, **counts):
    return PairedScores(dict(enumerate(differences, 1)), **counts)


def over_looks(*rows, plan=PLAN, **others):
    """Verdicts at each look of rows that are given by the differences of all of their seeds."""
    looks = [(look, [paired(*row[: look.seeds]) for row in rows]) for look in planned_looks(plan)]
    return verdicts_over_looks(BLEU, looks, **others)


CLEAR = (-5.0, -5.2, -4.9, -5.1, -5.0, -4.8, -5.3, -5.0)
OPEN = (-1.0, 1.4, -0.9, 0.3, 1.1, -0.8, 0.5, -0.2)


def test_a_verdict_is_early_before_the_first_look_only():
    look = planned_looks(PLAN)[0]
    rows = [paired(*OPEN[:3])]
    (before,), (judged,) = early_verdicts(BLEU, rows, look), verdicts(BLEU, rows, look=look)
    assert (before.is_early, before.text) == (True, "cannot tell before look 1 of 3 (3 of 8 seeds)")
    assert (judged.is_early, judged.word) == (False, "cannot tell")
    assert "before" not in judged.text


def test_every_look_spends_the_share_of_its_new_seeds_and_all_together_the_level():
    looks = planned_looks(PLAN)
    assert [look.level for look in looks] == pytest.approx(
        [0.05 * 3 / 8, 0.05 * 2 / 8, 0.05 * 3 / 8]
    )
    assert [look.spent for look in looks] == pytest.approx(
        np.cumsum([look.level for look in looks])
    )
    assert looks[-1].spent == LEVEL
    assert looks[1].text == "look 2 of 3 (5 of 8 seeds)"


@pytest.mark.parametrize("look", planned_looks(PLAN))
def test_a_single_row_at_a_look_is_the_paired_t_test_of_scipy_at_its_level(look):
    differences = OPEN[: look.seeds]
    expected = stats.ttest_1samp(differences, 0.0)
    interval = expected.confidence_interval(1 - look.level)
    (verdict,) = verdicts(BLEU, [paired(*differences)], look=look)
    assert (verdict.seed_test.low, verdict.seed_test.high) == pytest.approx(
        (interval.low, interval.high)
    )
    assert verdict.p_adjusted == pytest.approx(min(1.0, expected.pvalue * LEVEL / look.level))


def test_a_difference_that_is_significant_at_005_is_not_at_a_look():
    differences = (-2.0, -1.1, -1.5)
    assert stats.ttest_1samp(differences, 0.0).pvalue == pytest.approx(
        0.0276, abs=1e-4
    )  # between 0.01875 and 0.05
    assert verdicts(BLEU, [paired(*differences)])[0].word == "worse"
    assert verdicts(BLEU, [paired(*differences)], look=Look(1, PLAN))[0].word == "cannot tell"


def test_a_row_stays_settled_although_later_seeds_blur_it():
    blurred = (*CLEAR[:3], 9.0, -9.0, 8.0, -8.5, -2.0)
    first, second, last = ([one.word for one in found] for found in over_looks(blurred, OPEN))
    assert first == second == last == ["worse", "cannot tell"]
    verdict = over_looks(blurred, OPEN)[-1][0]
    assert verdict.p_adjusted >= LEVEL
    assert verdict.decided_at == 1
    assert verdict.text == "worse; since look 1 of 3 (3 of 8 seeds)"
    assert (
        verdicts(BLEU, [paired(*blurred), paired(*OPEN)], look=Look(3, PLAN))[0].word
        == "cannot tell"
    )


def test_rows_settled_at_an_earlier_look_leave_their_part_of_the_level_to_the_others():
    """By Holm's method: with one of two rows rejected, the other is tested as if it were the only
    one.
    """
    differences = (-1.2, -0.4, -0.9, -1.6, -0.2)
    apart = verdicts(BLEU, [paired(*differences)], n_tests=1, look=Look(2, (3, 5)))[0]
    looks = planned_looks((3, 5))
    clear, row = paired(*CLEAR[:3]), paired(*differences[:3])
    at_first = verdicts(BLEU, [clear, row], look=looks[0])
    assert [one.word for one in at_first] == ["worse", "cannot tell"]
    later = [
        PairedScores({}),
        paired(*differences),
    ]  # the settled row adds nothing to the shared noise
    with_it = verdicts(BLEU, later, look=looks[1], earlier=at_first)[1]
    assert with_it.seed_test.level == pytest.approx(apart.seed_test.level)
    without = verdicts(BLEU, later, look=looks[1])[1]
    assert without.seed_test.level == pytest.approx(apart.seed_test.level / 2)


def test_before_the_first_look_no_row_is_judged():
    rows = [paired(*CLEAR[:2]), PairedScores(), PairedScores({}, diverged=1)]
    found = early_verdicts(BLEU, rows, Look(1, PLAN))
    assert [one.word for one in found] == ["cannot tell", "", "diverged"]
    assert found[0].text == "cannot tell before look 1 of 3 (3 of 8 seeds)"
    assert (found[0].mean, found[0].p_adjusted, found[0].seed_test) == (
        pytest.approx(-5.1),
        None,
        None,
    )


# Simulation


STUDIES = 1500


def drawn(rows, spread="equal", studies=STUDIES, seed=3):
    draw = np.random.default_rng(seed)
    sds = simulation.SPREADS[spread](draw, studies, rows)
    return simulation.draw_study(draw, studies, rows, PLAN[-1], sds)


def levels():
    return simulation.spent_levels(simulation.SPENDING["uniform"], PLAN)


def test_the_simulation_spends_what_the_looks_spend():
    assert levels() == pytest.approx([look.level for look in planned_looks(PLAN)])


@pytest.mark.parametrize("spread", simulation.SPREADS)
def test_the_restatement_for_arrays_gives_the_verdicts_at_the_look_that_settles_every_row(spread):
    scores = drawn(4, spread, studies=40)
    scores[:, 1:] += np.random.default_rng(1).normal(size=(40, 4, 1)) * 4
    significant, seeds = simulation.judge_over_looks(scores, levels(), PLAN)
    for study, row_words, n in zip(scores, significant, seeds, strict=True):
        differences = study[1:] - study[0]
        found = over_looks(*(row.tolist() for row in differences))
        last = next((at for at in found if all(one.is_decided for one in at)), found[-1])
        assert sum(at is last for at in found) == 1
        assert PLAN[[at is last for at in found].index(True)] == n
        # The arrays do not withdraw a verdict of an earlier look whose mean has changed its sign.
        kept = [
            one.is_different or stayed
            for one, stayed in zip(last, was_different(found, last), strict=True)
        ]
        assert kept == row_words.tolist()


def was_different(found, last):
    until = found[: [at is last for at in found].index(True) + 1]
    return [any(at[row].is_different for at in until) for row in range(len(last))]


@pytest.mark.parametrize(
    ("rows", "spread"),
    [(1, "equal"), (5, "equal"), (13, "log sd spread by 1"), (13, "base three times")],
)
def test_the_family_wise_error_over_all_looks_is_at_most_5_percent(rows, spread):
    scores = drawn(rows, spread)
    error = simulation.judge_over_looks(scores, levels(), PLAN)[0].any(axis=1).mean()
    assert error < LEVEL + 2 * (LEVEL * (1 - LEVEL) / STUDIES) ** 0.5


def test_looks_at_the_full_level_each_would_name_rows_by_chance():
    """So the limit above would find looks that do not share the level."""
    error = simulation.judge_over_looks(drawn(1), [LEVEL] * 3, PLAN)[0].any(axis=1).mean()
    assert error > 0.08


def test_large_differences_end_a_study_at_its_first_look():
    scores = drawn(5)
    scores[:, 1:] += 30
    found, seeds = simulation.judge_over_looks(scores, levels(), PLAN)
    assert found.all()
    assert seeds.mean() < 3.5
