"""Power of the verdicts: what a study can detect, and the seeds that a difference takes."""

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
def detectable(
    seeds: int,
    rows: int,
    sd: float,
    sentences: float = 0.0,
    level: float = LEVEL,
    further: int = 0,
    tests: int | None = None,
) -> float:
    """Smallest true difference from base that a verdict finds with a probability of 80 %.

    The rule of `ablate.stats.judge` is simulated with fixed random numbers, for rows of equal noise
    and for Holm's first step, in which the level is divided by all rows. With one row and without
    noise of sentences, it is the difference at which the paired t test has this power. Rows and
    base are taken to have no effect of the seed in common, as in most published studies.

    Args:
        seeds: at least 2.
        rows: number of rows besides base, which share the noise of seeds.
        sd: standard deviation of a score over seeds.
        sentences: standard deviation of a difference from base over test sentences.
        level: of the verdicts; smaller where a study is judged several times.
        further: seeds that only base has.
        tests: number of rows that Holm's correction covers: more than `rows` in a study of several
            bases; None for `rows`.
    """
    tests = rows if tests is None else tests
    # A fixed seed, so that a plan prints the same number each time.
    draw, n = random.Random(0), seeds
    of_base = n - 1 + max(0, further - 1)  # degrees of freedom of base's noise
    df = (n - 1) * rows + of_base - (n - 1)
    share = n / (n + further)  # of the noise that base's mean over the rows' seeds has
    shared_t, row_t = critical_t(level / tests, df), critical_t(level, n - 1)
    base_t = critical_t(level, of_base)
    z, shared_z = critical_t(level, math.inf), critical_t(level / tests, math.inf)
    needed = []
    for _ in range(_DRAWS):
        row = _variance(draw, n - 1)
        # Without further seeds, the residuals of two rows mirror each other.
        base, others = row, 0.0
        if rows > 1 or further:
            base = _variance(draw, of_base)
        if rows > 1:
            others = _variance(draw, (n - 1) * (rows - 1))
        squares = (n - 1) * (row + (rows - 1) * others) + of_base * base
        pooled = squares / ((n - 1) * rows + of_base)
        together = max(row, pooled) + share * max(base, pooled)
        shared_limit = math.hypot(shared_t * sd * math.sqrt(together / n), shared_z * sentences)
        if base > pooled:
            row = max(row, pooled)
        alone = row_t**2 * row + base_t**2 * share * base
        own_limit = math.hypot(sd * math.sqrt(alone / n), z * sentences)
        # A difference has the noise of the row and that of base.
        noise = draw.gauss(0, 1) * math.hypot(sd * math.sqrt((1 + share) / n), sentences)
        needed.append(max(shared_limit, own_limit) - noise)
    # In a draw, a true difference d is found if d + noise exceeds the limit. So the 80 % quantile
    # of limit - noise is found in 80 % of the draws.
    return sorted(needed)[int(POWER * _DRAWS)]


def _variance(draw: random.Random, df: int) -> float:
    """An estimate of a variance of 1 with these degrees of freedom."""
    return draw.gammavariate(df / 2, 2 / df)


def seeds_to_see(
    difference: float,
    rows: int,
    sd: float,
    sentences: float = 0.0,
    level: float = LEVEL,
    tests: int | None = None,
) -> int | None:
    """Fewest seeds with which `detectable` is at most a difference; None above 1000."""

    def is_enough(seeds: int) -> bool:
        return detectable(seeds, rows, sd, sentences, level, tests=tests) <= difference

    return fewest_seeds(1, is_enough)


def fewest_seeds(above: int, is_enough: Callable[[int], bool]) -> int | None:
    """Fewest seeds above a number that are enough, by doubling and bisection; None above 1000."""
    low, high = above, above + 1
    while not is_enough(high):
        if high >= MAX_SEEDS:
            return None
        low, high = high, min(2 * high, MAX_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high
