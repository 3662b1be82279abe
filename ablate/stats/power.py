"""Power of the verdicts: detectable differences, and numbers of seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache

from ablate.stats.distributions import critical_t
from ablate.stats.significance import LEVEL, POWER

MAX_SEEDS = 1000  # of a study
_DRAWS = 4000


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

    The rule of `ablate.stats.judge` is simulated with fixed random numbers. The simulation assumes
    that all rows have equal noise, that the seed has no effect that rows and base share (as in most
    published studies), and that Holm's method is at its first step, which divides the level by the
    number of rows. With one row and without noise of sentences, the result is the difference at
    which the paired t test has this power.

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
    generator = random.Random(0)  # a fixed seed, so that a plan prints the same number each time
    row_df = seeds - 1
    base_df = row_df + max(0, further - 1)
    pooled_df = row_df * rows + base_df
    base_share = seeds / (seeds + further)  # further seeds reduce the noise of base's mean
    shared_t = critical_t(level / n_tests, pooled_df - row_df)
    shared_z = critical_t(level / n_tests, math.inf)
    row_t = critical_t(level, row_df)
    base_t = critical_t(level, base_df)
    z = critical_t(level, math.inf)
    found_from = []
    for _ in range(_DRAWS):
        # Estimated variances; the true variance is 1.
        row = _variance(generator, row_df)
        base = row  # the residuals of two rows alone mirror each other
        others = 0.0
        if rows > 1 or further:
            base = _variance(generator, base_df)
        if rows > 1:
            others = _variance(generator, row_df * (rows - 1))
        pooled = (row_df * (row + (rows - 1) * others) + base_df * base) / pooled_df
        # The limits of the pooled test and of the row's own test.
        shared_variance = max(row, pooled) + base_share * max(base, pooled)
        shared_error = sd * math.sqrt(shared_variance / seeds)
        shared_limit = math.hypot(shared_t * shared_error, shared_z * sentences)
        if base > pooled:
            row = max(row, pooled)
        own_squares = row_t**2 * row + base_t**2 * base_share * base
        own_limit = math.hypot(sd * math.sqrt(own_squares / seeds), z * sentences)
        error = math.hypot(sd * math.sqrt((1 + base_share) / seeds), sentences)
        noise = generator.gauss(0, 1) * error
        # A true difference d is found in this draw if d + noise exceeds both limits.
        found_from.append(max(shared_limit, own_limit) - noise)
    return sorted(found_from)[int(POWER * _DRAWS)]


def _variance(generator: random.Random, df: int) -> float:
    """A random estimate of a variance of 1, with these degrees of freedom."""
    return generator.gammavariate(df / 2, 2 / df)


def seeds_needed(
    difference: float,
    rows: int,
    sd: float,
    sentences: float = 0.0,
    level: float = LEVEL,
    n_tests: int | None = None,
) -> int | None:
    """Smallest number of seeds that detects a difference with a power of 80 %; None above 1000."""

    def is_enough(seeds: int) -> bool:
        detectable = detectable_difference(seeds, rows, sd, sentences, level, n_tests=n_tests)
        return detectable <= difference

    return fewest_seeds(1, is_enough)


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
