"""Variances over seeds against ordinary least squares of statsmodels, and closed forms."""

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm

from ablate.stats import noise as module
from ablate.stats.noise import OUTLIER_LEVEL, BaseScores, FurtherSeeds, Variance, seed_noise


def draw(rows, seeds, seed=0, sds=1.0, missing=0.0):
    """Differences of rows from base; rows keep at least two seeds."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(rows + 1, seeds)) * np.broadcast_to(sds, (rows + 1,))[:, None]
    absent = generator.random((rows, seeds)) < missing
    absent[:, :2] = False
    return [
        {s: float(scores[row + 1, s] - scores[0, s]) for s in range(seeds) if not absent[row, s]}
        for row in range(rows)
    ]


def least_squares(rows):
    """Residuals, leverages and rows of the two-way layout, by statsmodels; base has zeros."""
    seeds = sorted({seed for row in rows for seed in row})
    cells = [(0, seed, 0.0) for seed in seeds]
    cells += [
        (index, seed, value) for index, row in enumerate(rows, 1) for seed, value in row.items()
    ]
    design = [
        [*np.eye(len(rows) + 1)[row], *np.eye(len(seeds))[seeds.index(seed)][1:]]
        for row, seed, _ in cells
    ]
    fit = sm.OLS([value for *_, value in cells], design).fit()
    return fit, np.array([row for row, *_ in cells])


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize(("rows", "seeds"), [(1, 2), (2, 3), (5, 4), (7, 5)])
def test_variances_match_statsmodels_with_and_without_missing_seeds(rows, seeds, missing):
    differences = draw(rows, seeds, missing=missing)
    noise, (fit, row_of) = seed_noise(differences), least_squares(differences)
    assert not noise.outliers
    leverage = fit.get_influence().hat_matrix_diag
    for row in range(rows + 1):
        ours = row_of == row
        expected = (fit.resid[ours] ** 2).sum() / (1 - leverage[ours]).sum()
        assert noise.row_variances[row].value == pytest.approx(expected)
        assert noise.row_variances[row].df == ours.sum() - 1
    assert noise.pooled.df == fit.df_resid
    if not missing:
        assert noise.pooled.value == pytest.approx(fit.mse_resid)


def test_one_row_gives_the_variance_of_the_paired_t_test():
    differences = [{1: -1.0, 2: -2.0, 3: -4.5}]
    (variance,) = seed_noise(differences).pooled_components(1, 3)
    assert variance.value == pytest.approx(np.var([-1.0, -2.0, -4.5], ddof=1))
    assert variance.df == 2
    assert seed_noise(differences).own_components(1, 3) == (variance,)


@pytest.mark.parametrize(("sd_of_base", "base_is_noisier"), [(2.0, True), (0.1, False)])
def test_a_row_counts_with_no_less_than_the_shared_variance_if_base_is_noisier_than_that(
    sd_of_base, base_is_noisier
):
    noise = seed_noise(draw(5, 4, sds=[sd_of_base, 0.1, 1.0, 1.0, 1.0, 1.0]))
    base, row = noise.row_variances[:2]
    assert not noise.outliers
    assert row.value < noise.pooled.value
    assert (base.value > noise.pooled.value) == base_is_noisier
    counted = noise.pooled.value if base_is_noisier else row.value
    assert noise.own_components(1, 4) == (Variance(base.value + counted, 3),)


def test_what_a_seed_adds_to_every_row_is_no_noise():
    """Differences from a noisy base share its noise, which is base's variance and no other
    row's.
    """
    rows = draw(4, 3)
    shifted = [{seed: value + 10 * seed for seed, value in row.items()} for row in rows]
    plain, moved = seed_noise(rows), seed_noise(shifted)
    assert moved.row_variances[0].value > 50 > plain.row_variances[0].value
    assert max(own.value for own in moved.row_variances[1:]) < 50


def test_a_broken_row_is_set_apart_and_does_not_blind_the_others():
    sds = [1.0] * 9 + [100.0]
    noise = seed_noise(draw(9, 4, sds=sds))
    assert noise.outliers == {9}
    assert noise.pooled.value < 3
    assert noise.pooled.df == 3 * 8
    row, pool = noise.pooled_components(9, 3)
    assert (row, pool.df) == (noise.row_variances[9], noise.pooled.df)
    scores = np.array([[0.0] * 4, *(list(one.values()) for one in draw(9, 4, sds=sds))])
    # Base and eight rows fit the effects of the seeds; of its residuals, the row apart loses its
    # own mean alone.
    assert row.value == pytest.approx(np.var(scores[9] - scores[:9].mean(axis=0), ddof=1))
    others = seed_noise(draw(9, 4, sds=sds)[:8])
    assert noise.pooled == pytest.approx(others.pooled)  # as if the study did not have the row


def test_a_row_quieter_than_the_pool_counts_with_the_pool_and_a_noisier_one_with_its_own_variance():
    noise = seed_noise(draw(6, 5, seed=3))
    pooled = noise.pooled.value
    base = max(noise.row_variances[0].value, pooled)
    for row in range(1, 7):
        (variance,) = noise.pooled_components(row, 3)
        assert variance.value == pytest.approx(max(noise.row_variances[row].value, pooled) + base)
    assert {own.value > pooled for own in noise.row_variances} == {True, False}


@pytest.mark.parametrize(("rows", "outliers"), [(1, set()), (2, {2}), (3, {3})])
def test_a_row_is_set_apart_only_if_two_others_remain(rows, outliers):
    """Base is one of the others. Of two rows, neither can be called the noisy one."""
    scores = {row: {seed: 0.001 * (seed * row % 3) for seed in range(40)} for row in range(1, rows)}
    scores[rows] = {seed: 1000.0 * (-1) ** seed for seed in range(40)}
    assert seed_noise(list(scores.values())).outliers == outliers


def test_the_pool_weighs_each_row_by_its_degrees_of_freedom():
    noise = seed_noise(draw(5, 6, missing=0.5))
    assert len({own.df for own in noise.row_variances}) > 2
    assert noise.pooled.value == pytest.approx(
        np.average(
            [o.value for o in noise.row_variances], weights=[o.df for o in noise.row_variances]
        )
    )


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_variances_and_the_rows_apart_do_not_depend_on_the_unit_of_the_scores(scale):
    rows = draw(9, 4, sds=[1.0] * 9 + [100.0])
    noise, plain = (
        seed_noise([{seed: scale * value for seed, value in row.items()} for row in rows]),
        seed_noise(rows),
    )
    assert noise.outliers == plain.outliers == {9}
    assert [own.value for own in noise.row_variances] == pytest.approx(
        [scale**2 * own.value for own in plain.row_variances]
    )


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9])
def test_rounding_of_the_last_digits_is_no_noise(size):
    row = {1: size, 2: size * (1 + 2**-52), 3: size * (1 - 2**-52)}
    assert seed_noise([row]).pooled == Variance(0.0, 2)


@pytest.mark.parametrize(("share", "outliers"), [(0.99, {9}), (1.0, set())])
def test_a_row_is_set_apart_below_the_level_of_all_rows_together(share, outliers, monkeypatch):
    levels = iter([share * OUTLIER_LEVEL / 10, 1.0])
    monkeypatch.setattr(module, "f_tail", lambda *_: next(levels))
    assert seed_noise(draw(9, 4, sds=[1.0] * 9 + [100.0])).outliers == outliers


def test_a_seed_that_only_rows_apart_have_changes_no_other_row():
    """Base and the last row are noisy, and base has every seed that any row has."""
    rows = draw(7, 5, sds=[100.0, *[1.0] * 6, 1000.0])
    noise, more = seed_noise(rows), seed_noise([*rows[:-1], {**rows[-1], 99: 500.0}])
    assert noise.outliers == more.outliers == {0, 7}
    assert [own.value for own in more.row_variances[1:7]] == pytest.approx(
        [own.value for own in noise.row_variances[1:7]]
    )
    assert more.pooled.value == pytest.approx(noise.pooled.value)


def with_further_seeds(scores, further):
    """Noise of scores (rows + base, seeds), base first, of which base has further ones."""
    base = BaseScores(dict(enumerate(scores[0])), dict(enumerate(further, 100)))
    return seed_noise([dict(enumerate(row - scores[0])) for row in scores[1:]], base)


def test_the_weight_of_further_seeds_and_the_noise_left_are_those_of_the_best_linear_estimate():
    """Of known variances: base's mean is estimated from its scores and those of a row by
    generalized least squares.
    """
    n, k, effect, noise = 3, 6, 0.7, 1.3
    further = FurtherSeeds((0.0,) * k, effect, Variance(noise, 5))
    # Scores: the row's n, base's n, base's k. Base's mean and the row's difference are unknown.
    covariance = np.eye(2 * n + k) * noise
    for place in range(n):
        covariance[place, n + place] = covariance[n + place, place] = effect
    covariance += np.eye(2 * n + k) * effect
    design = np.ones((2 * n + k, 2))
    design[n:, 1] = 0.0
    inverse = np.linalg.inv(covariance)
    information = design.T @ inverse @ design
    weights = np.linalg.solve(information, design.T @ inverse)[1]
    weight = further.weight(n, noise)
    assert -weights[n : 2 * n].sum() == pytest.approx(1 - weight)
    assert -weights[2 * n :].sum() == pytest.approx(weight)
    error = noise / n + noise * (1 - weight) / n
    assert np.linalg.inv(information)[1, 1] == pytest.approx(error)


def test_without_an_effect_of_the_seed_all_seeds_of_base_count_alike():
    draw = np.random.default_rng(3)
    noise = with_further_seeds(draw.normal(size=(400, 3)), draw.normal(size=6))
    assert noise.weight(3) == pytest.approx(6 / 9, abs=0.05)


def test_the_larger_the_effect_of_the_seed_the_less_further_seeds_count():
    draw = np.random.default_rng(4)
    scores, further, of_seed = draw.normal(size=(20, 4)), draw.normal(size=4), draw.normal(size=8)
    weights = []
    for size in (0.0, 1.0, 10.0):
        seeds = size * of_seed
        noise = with_further_seeds(scores + seeds[:4], further + seeds[4:])
        weights.append(noise.weight(4))
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < 0.05


def test_the_estimates_from_further_seeds_are_unbiased():
    draw, own = np.random.default_rng(5), []
    for _ in range(400):
        of_seed = draw.normal(size=9) * 0.5
        scores = draw.normal(size=(9, 3)) + of_seed[:3]
        scores[0] += draw.normal(size=3)  # base has twice the variance of a row
        further = draw.normal(size=6) * 2**0.5 + of_seed[3:]
        noise = with_further_seeds(scores, further)
        own.append(noise.further.base.value)
    assert np.mean(own) == pytest.approx(2.0, abs=4 * np.std(own) / 20)


def with_exact_variances(n, k, effect, spread):
    """Noise of 400 rows with a variance of 1, without and with further seeds of base; the sample
    variances of the seed effect and of the further scores are as given.
    """
    draw = np.random.default_rng(9)

    def scores_of(variance, count):
        values = draw.normal(size=count)
        return (values - values.mean()) * (variance / values.var(ddof=1)) ** 0.5

    scores = draw.normal(size=(400, n)) + scores_of(effect, n)
    alone = seed_noise([dict(enumerate(row - scores[0])) for row in scores[1:]])
    return alone, with_further_seeds(scores, scores_of(spread, k))


@pytest.mark.parametrize(("n", "k"), [(5, 20), (20, 5)])
def test_further_seeds_count_with_the_precision_of_their_variance(n, k):
    """A variance v has 2 v^2 / (variance of its estimate) degrees of freedom."""
    effect, noise = 2.0, 1.0
    alone, further = with_exact_variances(n, k, effect, effect + noise)
    draw = np.random.default_rng(9)
    estimates = (effect + noise) * draw.chisquare(k - 1, 200_000) / (k - 1)
    estimates -= effect * draw.chisquare(n - 1, 200_000) / (n - 1)
    before, after = alone.row_variances[0], further.row_variances[0]
    gained = after.df - before.df
    assert gained == pytest.approx(2 * noise**2 / estimates.var(), rel=0.1)
    assert further.pooled.df == pytest.approx(alone.pooled.df + gained)
    mean = (before.df * before.value + gained * noise) / after.df
    assert after.value == pytest.approx(mean, rel=0.1)


@pytest.mark.parametrize(("n", "k", "spread"), [(4, 7, 6.0), (7, 4, 2.0)])
def test_the_effect_of_the_seed_is_estimated_by_rows_and_by_further_seeds(n, k, spread):
    """Each estimate counts with its degrees of freedom."""
    _, noise = with_exact_variances(n, k, 2.0, spread)
    expected = np.average([2.0, spread - 1.0], weights=[n - 1, k - 1])
    assert noise.further.seed_effect == pytest.approx(expected, rel=0.08)


def test_the_effect_of_the_seed_is_taken_from_what_each_row_has_beside_its_own_level():
    """Rows lack seeds, so that their means by seed depend on their levels, unless these go."""
    draw = np.random.default_rng(11)
    rows = [dict(enumerate(row)) for row in draw.normal(size=(12, 5))]
    for place, row in enumerate(rows[:8]):
        del row[place % 5]
    base = BaseScores(dict(enumerate(draw.normal(size=5))), dict(enumerate(draw.normal(size=4), 9)))
    further = seed_noise(rows, base).further
    raised = [
        {seed: value + 50 * place for seed, value in row.items()} for place, row in enumerate(rows)
    ]
    assert seed_noise(raised, base).further.seed_effect == pytest.approx(further.seed_effect)
    effects = []
    for seed in range(5):
        residuals = [row[seed] - np.mean(list(row.values())) for row in rows if seed in row]
        effects.append(base.common[seed] + np.mean(residuals))
    noise = seed_noise(rows).row_variances[1:]
    of_rows = sum(own.value * own.df for own in noise) / sum(own.df for own in noise)
    count = [sum(seed in row for row in rows) for seed in range(5)]
    by_rows = np.var(effects, ddof=1) - of_rows * np.mean(1 / np.array(count))
    by_further = np.var(list(base.further.values()), ddof=1) - of_rows
    expected = max(0.0, (4 * by_rows + 3 * by_further) / 7)
    assert further.seed_effect == pytest.approx(expected)
    alone, together = seed_noise(rows), seed_noise(rows, base)
    gained = together.row_variances[0].df - alone.row_variances[0].df
    assert together.pooled.df == pytest.approx(alone.pooled.df + gained)


def test_further_seeds_of_a_base_that_is_apart_do_not_count_in_the_pool():
    draw = np.random.default_rng(12)
    scores, further = draw.normal(size=(12, 4)), 50 * draw.normal(size=5)
    scores[0] *= 50
    noise = with_further_seeds(scores, further)
    rows = [dict(enumerate(row - scores[0])) for row in scores[1:]]
    assert noise.outliers == seed_noise(rows).outliers == {0}
    assert noise.pooled.df == seed_noise(rows).pooled.df


def test_the_first_test_takes_from_base_s_variance_what_further_seeds_add():
    _, noise = with_exact_variances(3, 6, 0.5, 1.5)
    row, base = (max(noise.row_variances[place].value, noise.pooled.value) for place in (7, 0))
    (variance,) = noise.pooled_components(7, 3)
    assert variance.value == pytest.approx(row + base * (1 - noise.weight(3)))


def test_two_further_seeds_are_enough_for_an_estimate():
    alone, further = with_exact_variances(4, 2, 2.0, 3.0)
    assert further.row_variances[0].df > alone.row_variances[0].df


def test_the_second_test_takes_row_and_base_by_themselves_if_base_has_further_seeds():
    """The variance of each has the degrees of freedom of its own estimate."""
    _, noise = with_exact_variances(3, 6, 2.0, 3.0)
    row, base = noise.row_variances[7], noise.row_variances[0]
    of_row, of_base = noise.own_components(7, 3)
    larger = max(row.value, noise.pooled.value) if base.value > noise.pooled.value else row.value
    assert of_row == Variance(larger, row.df)
    assert of_base.value == pytest.approx(base.value * (1 - noise.weight(3)))
    assert of_base.df == base.df


@pytest.mark.parametrize(("n", "k"), [(3, 6), (5, 5), (20, 3)])
@pytest.mark.parametrize("share", [0.85, 1.15])  # of the limit
def test_an_excess_is_base_s_own_if_it_is_significant(n, k, share):
    effect, limit = 2.0, scipy.stats.f.isf(OUTLIER_LEVEL, k - 1, n - 1)
    spread = share * limit * (effect + 1.0)
    alone, further = with_exact_variances(n, k, effect, spread)
    gained = further.row_variances[0].df - alone.row_variances[0].df
    noise = spread - effect if share > 1 else 1.0
    variance = (noise + effect) ** 2 / (k - 1) + effect**2 / (n - 1)
    assert gained == pytest.approx(noise**2 / variance, rel=0.15)


@pytest.mark.parametrize("effect", [0.0, 1.0, 5.0])  # variance over that of a row's noise
@pytest.mark.parametrize(("n", "k"), [(3, 6), (4, 4), (5, 5)])
def test_a_further_seed_of_base_that_diverged_is_noise_of_base_and_no_effect_of_the_seed(
    n, k, effect
):
    draw = np.random.default_rng(6)
    uncertain = 0
    for _ in range(100):
        of_seed = draw.normal(size=n + k) * effect**0.5
        scores = draw.normal(size=(14, n)) + of_seed[:n]
        further = draw.normal(size=k) + of_seed[n:]
        further[0] -= 100
        noise = with_further_seeds(scores, further)
        # Base's mean over all seeds is known no better than the spread of them over their number.
        error = sum(part.value for part in noise.pooled_components(1, n)) / n
        uncertain += error > 0.3 * np.var([*scores[0], *further], ddof=1) / (n + k)
    assert uncertain >= 95


def test_the_farther_a_further_seed_of_base_the_less_certain_a_difference():
    draw = np.random.default_rng(7)
    scores, further, errors = draw.normal(size=(14, 3)), draw.normal(size=6), []
    for depth in (0, 10, 20, 40, 80):
        noise = with_further_seeds(scores, further - depth * (np.arange(6) == 0))
        errors.append(sum(part.value for part in noise.pooled_components(1, 3)))
    assert errors == sorted(errors)
    assert errors[-1] > 20 * errors[0]


def test_a_base_that_loses_the_rule_with_one_further_seed_is_uncertain():
    """The accuracy of results/grokking: a row was -32.0 -+ 13.5 from a base of 87.9 +- 32.9."""
    rows = [
        [100.0, 100.0, 100.0],
        [65.8, 67.2, 71.0],
        [19.7, 19.7, 19.7],
        [43.6, 73.0, 70.2],
        [67.8, 83.2, 71.5],
        [99.7, 97.7, 1.7],
        [60.6, 59.4, 59.4],
    ]
    noise = with_further_seeds(np.array(rows), [100.0, 100.0, 0.6, 100.0, 90.1, 100.0])
    error = sum(part.value for part in noise.pooled_components(1, 3)) / 3
    of_nine = np.var([*[100.0] * 7, 0.6, 90.1], ddof=1) / 9
    assert error > 0.7 * of_nine
    assert noise.weight(3) > 0.3


def test_a_single_further_seed_changes_nothing():
    """It shows no spread, so that its weight could not be estimated."""
    scores = np.random.default_rng(6).normal(size=(5, 3))
    noise = with_further_seeds(scores, [0.3])
    assert noise.further is None
    assert noise.weight(3) == 0.0
    assert noise == with_further_seeds(scores, [])


def unpaired(scores):
    """The noise of a study without paired runs; the first row is base, perhaps with more runs."""
    n = min(map(len, scores))
    base = dict(enumerate(scores[0]))
    common = {run: base[run] for run in range(n)}
    further = {run: base[run] for run in range(n, len(base))}
    rows = [{run: row[run] - base[run] for run in range(n)} for row in scores[1:]]
    return seed_noise(rows, BaseScores(common, further, is_paired=False))


def test_unpaired_runs_have_the_variances_of_their_rows():
    scores = [[1.0, 2.0, 4.0, 5.0, 3.0], [3.0, 1.0, 2.0], [5.0, 5.5, 9.0]]
    noise = unpaired(scores)
    expected = [Variance(pytest.approx(np.var(row, ddof=1)), len(row) - 1) for row in scores]
    assert list(noise.row_variances) == expected
    assert noise.pooled.df == 4 + 2 + 2
    # Base's mean of five runs has the variance V / 5, and the mean of a row V / 3.
    row, base = noise.own_components(2, 3)
    assert (row.value / 3, base.value / 3) == pytest.approx(
        (
            4.75 / 3,
            np.var(scores[0], ddof=1) / 5,
        )
    )


def test_an_unpaired_row_that_is_set_apart_does_not_count_in_the_pool():
    scores = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.1], [0.0, 100.0, 200.0], [2.0, 3.0, 4.2]]
    noise = unpaired(scores)
    assert noise.outliers == {2}
    quiet = [np.var(row, ddof=1) for row in (*scores[:2], scores[3])]
    assert noise.pooled.value == pytest.approx(np.mean(quiet))
    assert noise.pooled.df == 2 + 2 + 2


def test_the_order_of_unpaired_runs_does_not_count():
    scores = np.random.default_rng(0).normal(size=(4, 5))
    plain, in_order = unpaired(scores.tolist()), unpaired(np.sort(scores).tolist())
    for one, other in zip(plain.row_variances, in_order.row_variances, strict=True):
        assert one.value == pytest.approx(other.value)
    assert plain.pooled.value == pytest.approx(in_order.pooled.value)


def test_equal_unpaired_scores_have_no_noise():
    noise = unpaired([[0.3, 0.3, 0.3], [0.1 + 0.2, 0.3, 0.3]])
    assert [variance.value for variance in noise.row_variances] == [0.0, 0.0]
