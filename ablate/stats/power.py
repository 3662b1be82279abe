"""Power of the verdicts: detectable differences, and numbers of seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache, lru_cache

from ablate.stats.distributions import critical_t
from ablate.stats.significance import LEVEL, POWER

MAX_SEEDS = 1000  # of a study
_DRAWS = 1500
_BISECTIONS = 18  # of the largest possible difference, which is five times the result or less


@cache
def detectable_difference(
    seeds: int,
    rows: int,
    sd: float,
    sentences: float = 0.0,
    level: float = LEVEL,
    further: int = 0,
    n_tests: int | None = None,
) -> float:
    """Smallest true difference from base that a verdict finds with a power of 80 %.

    The rule of `ablate.stats.judge` is simulated: estimates of the variances are drawn with fixed
    random numbers; the probability over the observed difference is in closed form. The simulation
    assumes that all rows have equal noise, that the seed has no effect that rows and base share
    (as in most published studies), and that Holm's method is at its first step, which divides the
    level by the number of rows. With one row and without noise of sentences, the result is the
    difference at which the paired t test has this power.

    Args:
        seeds: at least 2.
        rows: number of rows without base, over which the variance is pooled.
        sd: standard deviation of a score over seeds.
        sentences: standard deviation of a difference from base over test sentences.
        level: level of the verdicts, which is smaller in a study that is judged several times.
        further: number of seeds that only base has.
        n_tests: number of rows that Holm's correction covers; larger than `rows` in a study of
            several bases. None for `rows`.
    """
    n_tests = rows if n_tests is None else n_tests
    row_df = seeds - 1
    base_df, pooled_df = _degrees_of_freedom(seeds, rows, further)
    base_share = seeds / (seeds + further)  # further seeds reduce the noise of base's mean
    # Squared factors of the limits: of the variance over seeds, and of the variance over sentences.
    variance = sd**2 / seeds
    shared_t = critical_t(level / n_tests, pooled_df - row_df) ** 2 * variance
    shared_z = (critical_t(level / n_tests, math.inf) * sentences) ** 2
    row_t = critical_t(level, row_df) ** 2 * variance
    base_t = critical_t(level, base_df) ** 2 * variance * base_share
    z = (critical_t(level, math.inf) * sentences) ** 2
    error = math.sqrt((1 + base_share) * variance + sentences**2)
    limits = []
    for row, base, pooled in _draws(seeds, rows, further):
        # The limits of the pooled test and of the row's own test.
        shared_variance = max(row, pooled) + base_share * max(base, pooled)
        own_row = max(row, pooled) if base > pooled else row
        limit = max(shared_t * shared_variance + shared_z, row_t * own_row + base_t * base + z)
        limits.append(math.sqrt(limit))
    return _difference_with_power(limits, error)


def _difference_with_power(limits: list[float], error: float) -> float:
    """True difference that exceeds a limit with a power of 80 %, on average over the limits.

    An observed difference is normal around the true one, with a standard deviation of `error`.
    """
    if error == 0:
        return max(limits)
    scale = 1 / (error * math.sqrt(2))
    low = 0.0
    high = max(limits) + 5 * error
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        power = 0.5 + 0.5 * sum([math.erf((middle - limit) * scale) for limit in limits]) / _DRAWS
        if power < POWER:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=8)  # the metrics of a study, and its looks, have the same draws
def _draws(seeds: int, rows: int, further: int) -> list[tuple[float, float, float]]:
    """Random results of a study whose true variance over seeds is 1: the estimated variances of a
    row, of base, and of all rows together. See `detectable_difference` for the arguments.
    """
    generator = random.Random(0)  # a fixed seed, so that a plan prints the same number each time
    row_df = seeds - 1
    others_df = row_df * (rows - 1)
    base_df, pooled_df = _degrees_of_freedom(seeds, rows, further)
    of_row = _variances(generator, row_df)
    of_base = of_row  # the residuals of two rows alone mirror each other
    if rows > 1 or further:
        of_base = _variances(generator, base_df)
    of_others = _variances(generator, others_df)
    draws = []
    for row, base, others in zip(of_row, of_base, of_others, strict=True):
        pooled = (row_df * row + others_df * others + base_df * base) / pooled_df
        draws.append((row, base, pooled))
    return draws


def _variances(generator: random.Random, df: int) -> list[float]:
    """Random estimates of a variance of 1 with these degrees of freedom.

    They are scaled to a mean of exactly 1, which divides the error of a detectable difference by
    about three from three seeds on.
    """
    if df == 0:
        return [0.0] * _DRAWS
    draws = [generator.gammavariate(df / 2, 2 / df) for _ in range(_DRAWS)]
    mean = sum(draws) / _DRAWS
    return [draw / mean for draw in draws]


def _degrees_of_freedom(seeds: int, rows: int, further: int) -> tuple[int, int]:
    """Degrees of freedom of base's variance, and of the variance of all rows and base together."""
    base_df = seeds - 1 + max(0, further - 1)
    return base_df, (seeds - 1) * rows + base_df


def fewest_seeds(too_few: int, is_enough: Callable[[int], bool]) -> int | None:
    """Smallest number of seeds that is enough, by doubling and bisection; None above 1000.

    Args:
        too_few: a number of seeds that is not enough; the search starts above it.
        is_enough: whether a number of seeds is enough; if one is, every larger one is.
    """
    low = too_few
    high = too_few + 1
    while not is_enough(high):
        if high >= MAX_SEEDS:
            return None
        low = high
        high = min(2 * high, MAX_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high
