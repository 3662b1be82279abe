"""Family-wise error and power of the verdicts, by simulation, beside the rule of revision 8c9acca.

python benchmarks/verdicts.py [--draws 20000] [--seed 1] [--only looks]

A study is drawn as score = row + seed + noise of the run + noise of the sentences, which all seeds
of a row share. The family-wise error is the share of studies without any true difference in which
some row is worse or better; the power is the share in which the first row is, when it is 3 sds of
a run of the usual row away from base: the median over rows. Whole studies are drawn and judged as arrays; `judge`
restates `ablate.stats.judge` for that, and tests hold the two equal.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablate.stats.comparison import PairedScores
from ablate.stats.distributions import critical_t, f_tail
from ablate.stats.judge import verdicts
from ablate.stats.metrics import TRANSLATION_METRICS
from ablate.stats.noise import OUTLIER_LEVEL, BaseScores
from ablate.stats.significance import LEVEL

Array = NDArray[Any]
SEEDS, ROWS = (2, 3, 5, 8), (5, 13, 20)
EFFECT = 3.0
SENTENCES = 0.5  # sd of the noise of the sentences in a score, in the crossed null
Z = critical_t(LEVEL, math.inf)

_t = cache(critical_t)


@cache
def _f_threshold(level: float, df1: float, df2: float) -> float:
    low, high = 0.0, 1e12
    while high - low > 1e-9 * high:
        middle = math.sqrt(max(low, 1e-12) * high)
        low, high = (middle, high) if f_tail(middle, df1, df2) > level else (low, middle)
    return high


def residual_variances(scores: Array) -> tuple[Array, Array]:
    """Each row's variance around the seeds' effects, and which rows are pooled: (studies, rows +
    base) each.
    """
    studies, rows, n = scores.shape
    pooled = np.ones((studies, rows), bool)
    centered = scores - scores.mean(axis=2, keepdims=True)
    while True:
        count = pooled.sum(axis=1)
        effects = (centered * pooled[:, :, None]).sum(axis=1) / count[:, None]
        weights = (n - 1) * np.where(pooled, 1 - 1 / count[:, None], 1.0)
        own = ((centered - effects[:, None]) ** 2).sum(axis=2) / weights
        of_pool = np.where(pooled, own, -1.0)
        noisiest = of_pool.argmax(axis=1)
        largest = of_pool.max(axis=1)
        rest = (np.where(pooled, own, 0.0).sum(axis=1) - largest) / np.maximum(count - 1, 1)
        limits = [
            _f_threshold(LEVEL / k, n - 1, (n - 1) * (k - 1)) if k > 2 else math.inf
            for k in range(rows + 1)
        ]
        out = largest > np.array(limits)[count] * rest
        if not out.any():
            return own, pooled
        pooled[np.arange(studies)[out], noisiest[out]] = False


def _step_down(
    reaches: Callable[[Array], Array], studies: int, rows: int, settled: Array | None = None
) -> Array:
    """Holm's method: rows that reach the level / (rows not yet significant), until no more do."""
    significant = np.zeros((studies, rows), bool) if settled is None else settled.copy()
    for _ in range(rows):
        left = rows - significant.sum(axis=1)
        more = reaches(left) & ~significant
        if not more.any():
            break
        significant |= more
    return significant


def judge(
    scores: Array,
    sentences: float = 0.0,
    gate: bool = True,
    level: float = LEVEL,
    settled: Array | None = None,
) -> Array:
    """Which rows are worse or better than base, the first row: (studies, rows).

    Args:
        scores: (studies, rows + base, seeds).
        sentences: variance of the difference of two rows over test sentences.
        gate: whether the second test, of the row's own seeds, is made.
        level: of all rows together.
        settled: rows that are worse or better from an earlier look.
    """
    studies, rows = scores.shape[0], scores.shape[1] - 1
    reaches, passes = _both_tests(scores, sentences, level, rows)
    before = np.zeros((studies, rows), bool) if settled is None else settled
    significant = _step_down(reaches, studies, rows, before)
    return np.asarray(before | (significant & passes)) if gate else significant


def judge_sizes(scores: Array) -> Array:
    """Which rows are worse or better than the base of their size, in one family: (studies, sizes x
    rows).

    Args:
        scores: (studies, sizes, rows + base, seeds), without noise of the sentences.
    """
    studies, sizes, rows = scores.shape[0], scores.shape[1], scores.shape[2] - 1
    tests = [_both_tests(scores[:, size], 0.0, LEVEL, sizes * rows) for size in range(sizes)]

    def reaches(left: Array) -> Array:
        return np.concatenate([of_size(left) for of_size, _ in tests], axis=1)

    significant = _step_down(reaches, studies, sizes * rows)
    return significant & np.concatenate([passes for _, passes in tests], axis=1)


def _both_tests(
    scores: Array, sentences: float, level: float, family: int
) -> tuple[Callable[[Array], Array], Array]:
    """Which rows pass the first test, by the number of rows that Holm's method has left of the
    family; and which pass the second.
    """
    rows, n = scores.shape[1] - 1, scores.shape[2]
    mean = scores[:, 1:].mean(axis=2) - scores[:, :1].mean(axis=2)
    own, pooled = residual_variances(scores)
    count = pooled.sum(axis=1)
    shared = np.where(pooled, own, 0.0).sum(axis=1) / count
    larger = np.where(pooled, np.maximum(own, shared[:, None]), 0.0)
    together = (larger[:, 1:] + larger[:, :1]) / n
    alone = np.where(pooled, 0.0, own)
    alone = (alone[:, 1:] + alone[:, :1]) / n

    def reaches(left: Array) -> Array:
        table = np.array([[0.0] * (rows + 2), *(
            [0.0] + [_t(level / factor, max(1.0, (n - 1.0) * (k - 1))) for k in range(1, rows + 2)]
            for factor in range(1, family + 1)
        )])  # fmt: skip
        own_t = np.array([0.0] + [_t(level / factor, n - 1.0) for factor in range(1, family + 1)])
        z = np.array([0.0] + [_t(level / factor, math.inf) for factor in range(1, family + 1)])
        factor = np.maximum(left, 1)
        squares = (
            table[factor, count][:, None] ** 2 * together + own_t[factor][:, None] ** 2 * alone
        )
        return np.asarray(mean**2 > squares + z[factor][:, None] ** 2 * sentences)

    apart = rows + 1 - count
    levels = [level / (1 + k) for k in range(rows + 2)]
    t, z = (
        np.array([_t(level, n - 1.0) for level in levels]),
        np.array([_t(level, math.inf) for level in levels]),
    )
    of_row = np.where((own[:, :1] > shared[:, None]) & pooled[:, 1:], larger[:, 1:], own[:, 1:])
    squares = (
        t[apart][:, None] ** 2 * (of_row + own[:, :1]) / n + z[apart][:, None] ** 2 * sentences
    )
    return reaches, np.asarray(mean**2 > squares)


def judge_over_looks(
    scores: Array, levels: Sequence[float], plan: Sequence[int]
) -> tuple[Array, Array]:
    """Which rows are worse or better at the look at which each study ends, and the seeds that it
    has trained.

    Args:
        scores: (studies, rows + base, seeds), without noise of the sentences.
        levels: of each look.
        plan: number of seeds at each look.
    """
    studies, rows = scores.shape[0], scores.shape[1] - 1
    found, seeds = np.zeros((studies, rows), bool), np.full(studies, plan[-1])
    running = np.ones(studies, bool)
    for level, n in zip(levels, plan, strict=True):
        found[running] = judge(scores[running, :, :n], level=level, settled=found[running])
        seeds[running & found.all(axis=1)] = n
        running &= ~found.all(axis=1)
        if not running.any():
            break
    return found, seeds


def judge_at_8c9acca(scores: Array, sentences: float = 0.0) -> Array:
    """The former rule: paired t tests, and the bootstrap with sacreBLEU's p value, each with Holm's
    correction.
    """
    from scipy.stats import norm

    studies, rows, n = scores.shape[0], scores.shape[1] - 1, scores.shape[2]
    differences = scores[:, 1:] - scores[:, :1]
    mean, error = differences.mean(axis=2), differences.std(axis=2, ddof=1) / math.sqrt(n)

    def over_seeds(left: Array) -> Array:
        t = np.array([0.0] + [_t(LEVEL / factor, n - 1.0) for factor in range(1, rows + 1)])
        return np.asarray(abs(mean) > t[np.maximum(left, 1)][:, None] * error)

    significant = _step_down(over_seeds, studies, rows)
    if not sentences:
        return significant
    sd, size = math.sqrt(sentences), abs(mean)
    expected = sd * math.sqrt(2 / math.pi) * np.exp(-(size**2) / (2 * sentences)) + size * (
        1 - 2 * norm.sf(size / sd)
    )
    # P(|d*| - mean |d*| > |d|) for a resampled difference d* around d, and at most 1000 resamples.
    p = np.maximum(norm.sf(expected / sd) + norm.cdf((-2 * size - expected) / sd), 1 / 1001)
    return np.asarray(
        significant
        & _step_down(lambda left: p < LEVEL / np.maximum(left, 1)[:, None], studies, rows)
    )


def judge_pooled(scores: Array, sentences: float = 0.0) -> Array:
    """A simpler rule: residual variance of all rows with Holm's correction, and the paired t test
    of the row.
    """
    studies, rows, n = scores.shape[0], scores.shape[1] - 1, scores.shape[2]
    differences = scores[:, 1:] - scores[:, :1]
    mean, own = differences.mean(axis=2), differences.var(axis=2, ddof=1) / n
    centered = scores - scores.mean(axis=2, keepdims=True)
    residual = centered - centered.mean(axis=1, keepdims=True)
    df = (n - 1.0) * rows
    pooled = 2 * (residual**2).sum(axis=(1, 2)) / df / n

    def reaches(left: Array) -> Array:
        t = np.array([0.0] + [_t(LEVEL / factor, df) for factor in range(1, rows + 1)])
        return np.asarray(
            abs(mean) > t[np.maximum(left, 1)][:, None] * np.sqrt(pooled + sentences)[:, None]
        )

    return np.asarray(
        _step_down(reaches, studies, rows)
        & (mean**2 > _t(LEVEL, n - 1.0) ** 2 * own + Z**2 * sentences)
    )


def judge_with_further_seeds(scores: Array, further: Array) -> Array:
    """Which rows are worse or better than a base that has further seeds: (studies, rows).

    Args:
        scores: (studies, rows + base, seeds), without noise of the sentences.
        further: (studies, further seeds) of base.
    """
    from scipy import stats

    studies, rows, n = scores.shape[0], scores.shape[1] - 1, scores.shape[2]
    k, all_studies = further.shape[1], np.arange(studies)
    pooled = np.ones((studies, rows + 1), bool)
    centered = scores - scores.mean(axis=2, keepdims=True)
    spread = further.var(axis=1, ddof=1)
    while True:
        count = pooled.sum(axis=1)
        means = (centered * pooled[:, :, None]).sum(axis=1) / count[:, None]
        weights = (n - 1) * np.where(pooled, 1 - 1 / count[:, None], 1.0)
        own = ((centered - means[:, None]) ** 2).sum(axis=2) / weights
        of_rows = pooled[:, 1:]
        fitted = of_rows.sum(axis=1)
        noise = np.where(of_rows, own[:, 1:], 0.0).sum(axis=1) / fitted
        effects = (centered[:, 1:] * of_rows[:, :, None]).sum(axis=1) / fitted[:, None]
        from_means = effects.var(axis=1, ddof=1) - noise / fitted
        estimate = ((n - 1) * from_means + (k - 1) * (spread - noise)) / (n + k - 2)
        effect = np.maximum(0.0, estimate)
        by_rows = np.maximum(0.0, from_means)
        of_means = by_rows + noise / fitted
        p = stats.f.sf(spread / (of_means + noise), k - 1, n - 1)
        likely = np.where(p < OUTLIER_LEVEL, spread - of_means, noise)
        more = likely**2 / ((likely + by_rows) ** 2 / (k - 1) + of_means**2 / (n - 1))
        base_df = n - 1 + more
        total = (n - 1) * own[:, 0] + more * (spread - from_means)
        own[:, 0] = np.maximum(0.0, total / base_df)
        df = np.maximum(1.0, (n - 1.0) * (count - 1)) + more * pooled[:, 0]
        of_pool = np.where(pooled, own, -1.0)
        noisiest = of_pool.argmax(axis=1)
        largest = of_pool.max(axis=1)
        rest = (np.where(pooled, own, 0.0).sum(axis=1) - largest) / np.maximum(count - 1, 1)
        own_df = np.where(noisiest == 0, base_df, n - 1.0)
        p = np.asarray(stats.f.sf(largest / rest, own_df, df))
        out = (p < OUTLIER_LEVEL / count) & (count > 2)
        if not out.any():
            break
        pooled[all_studies[out], noisiest[out]] = False
    of_base = pooled[:, 0]
    total = fitted * (n - 1) * noise + np.where(of_base, base_df * own[:, 0], 0.0)
    shared = total / (fitted * (n - 1) + np.where(of_base, base_df, 0.0))
    base = np.where(of_base, np.maximum(own[:, 0], shared), own[:, 0])
    left_over = 1 - k / ((n + k) * (1 + effect / base))
    of_all = scores[:, 0].mean(axis=1) * left_over + further.mean(axis=1) * (1 - left_over)
    mean = scores[:, 1:].mean(axis=2) - of_all[:, None]
    larger = np.where(of_rows, np.maximum(own[:, 1:], shared[:, None]), 0.0)
    base_part = (base * left_over)[:, None]
    together = larger + np.where(of_base[:, None], base_part, 0.0)
    alone_rows = np.where(of_rows, 0.0, own[:, 1:])
    alone_base = np.where(of_base[:, None], 0.0, base_part)

    def reaches(left: Array) -> Array:
        level = (LEVEL / np.maximum(left, 1))[:, None]
        squares = stats.t.isf(level / 2, df[:, None]) ** 2 * together
        squares = squares + stats.t.isf(level / 2, n - 1.0) ** 2 * alone_rows
        squares = squares + stats.t.isf(level / 2, base_df[:, None]) ** 2 * alone_base
        return np.asarray(mean**2 > squares / n)

    significant = _step_down(reaches, studies, rows)
    level = (LEVEL / (2 + rows - pooled.sum(axis=1)))[:, None]
    is_noisier = (own[:, :1] > shared[:, None]) & of_rows
    of_row = np.where(is_noisier, larger, own[:, 1:])
    squares = stats.t.isf(level / 2, n - 1.0) ** 2 * of_row
    own_base = (own[:, 0] * left_over)[:, None]
    squares = squares + stats.t.isf(level / 2, base_df[:, None]) ** 2 * own_base
    return np.asarray(significant & (mean**2 > squares / n))


Spread = Callable[[np.random.Generator, int, int], Array]


def _equal(draw: np.random.Generator, studies: int, rows: int) -> Array:
    return np.ones((studies, rows + 1, 1))


def _log_normal(draw: np.random.Generator, studies: int, rows: int) -> Array:
    return np.exp(draw.normal(size=(studies, rows + 1, 1)))


def _base_of(times: float) -> Spread:
    """Base's sd is this many times that of the rows."""

    def spread(draw: np.random.Generator, studies: int, rows: int) -> Array:
        sds = np.ones((studies, rows + 1, 1))
        sds[:, 0] = times
        return sds

    return spread


def _broken(draw: np.random.Generator, studies: int, rows: int) -> Array:
    sds = np.ones((studies, rows + 1, 1))
    sds[:, -1] = 10.0
    return sds


SPREADS: dict[str, Spread] = {
    "equal": _equal,
    "log sd spread by 1": _log_normal,
    "base three times": _base_of(3.0),
    "one row ten times": _broken,
}


def draw_study(
    draw: np.random.Generator, studies: int, rows: int, n: int, sds: Array, seed_effect: float = 1.0
) -> Array:
    """Scores without a difference between rows: (studies, rows + base, seeds)."""
    scores = draw.normal(size=(studies, rows + 1, n)) * sds
    return np.asarray(scores + draw.normal(size=(studies, 1, n)) * seed_effect)


def _usual(sds: Array) -> Array:
    """The sd of the usual row of each study, with base: the median, which one noisy row leaves."""
    return np.asarray(np.median(sds[:, :, 0], axis=1))


def error_and_power(
    rule: Callable[[Array, float], Array], scores: Array, sds: Array, sentences: float = 0.0
) -> tuple[float, float]:
    """Family-wise error, and power for a first row that is EFFECT away."""
    error = float(rule(scores, sentences).any(axis=1).mean())
    shifted = scores.copy()
    shifted[:, 1] += _usual(sds)[:, None] * EFFECT
    return error, float(rule(shifted, sentences)[:, 0].mean())


RULES: dict[str, Callable[[Array, float], Array]] = {
    "8c9acca": judge_at_8c9acca,
    "pooled and paired": judge_pooled,
    "now": judge,
}


def complete_studies(draws: int, seed: int) -> Iterator[str]:
    """Error and power with complete studies, for every rule."""
    yield (
        "| noise of the rows | rows | seeds | "
        + " | ".join(f"{name}: error | power" for name in RULES)
        + " |"
    )
    yield "| --- | ---: | ---: |" + " ---: | ---: |" * len(RULES)
    draw = np.random.default_rng(seed)
    for name, spread in SPREADS.items():
        for rows in ROWS:
            for n in SEEDS:
                sds = spread(draw, draws, rows)
                scores = draw_study(draw, draws, rows, n, sds)
                found = [error_and_power(rule, scores, sds) for rule in RULES.values()]
                yield (
                    f"| {name} | {rows} | {n} | "
                    + " | ".join(f"{e:.3f} | {p:.2f}" for e, p in found)
                    + " |"
                )


def shared_trainings(draws: int, seed: int) -> Iterator[str]:
    """Error and power if rows share trainings with each other and not with base, as in a grid of
    `n_heads` and `beam`. A row has the noise of its training, and a tenth of it of its own.
    """
    seeds = (2, 3, 4, 5, 8)
    heads = " | ".join(f"{n} seeds: error | power" for n in seeds)
    yield f"| noise of the trainings | sd of base | trainings | rows of each | {heads} |"
    yield "| --- | ---: | ---: | ---: |" + " ---: | ---: |" * len(seeds)
    for (name, spread), base in itertools.product(list(SPREADS.items())[:2], (1.0, 2.0, 3.0)):
        for trainings, rows in ((1, 4), (2, 2), (2, 6), (3, 4), (6, 2)):
            draw = np.random.default_rng(seed)
            cells = []
            for n in seeds:
                sds = spread(draw, draws, trainings)
                sds[:, 0] = base
                scores = np.repeat(
                    draw_study(draw, draws, trainings, n, sds), [1] + [rows] * trainings, axis=1
                )
                scores[:, 1:] += draw.normal(size=scores[:, 1:].shape) / 10
                error = judge(scores).any(axis=1).mean()
                scores[:, 1 : 1 + rows] += EFFECT  # the rows of the first training
                cells.append(f"{error:.3f} | {judge(scores)[:, 0].mean():.2f}")
            yield f"| {name} | {base:g} | {trainings} | {rows} | {' | '.join(cells)} |"


def further_seeds(draws: int, seed: int) -> Iterator[str]:
    """Error and power if base has more seeds than the 13 rows, by the size of the seed effect.

    The effect is stated as its variance over that of a row's noise. The same number of runs for
    every row is beside it.
    """
    yield "| noise of the rows | seed effect | rows | base | error | power | error, all as rows | power |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    rows = 13
    spreads = {**SPREADS, "base 1.5 times": _base_of(1.5), "base twice": _base_of(2.0)}
    spreads["base five times"] = _base_of(5.0)
    for name, spread in spreads.items():
        for effect in (0.0, 1.0, 5.0, 20.0):
            for n, k in ((3, 3), (3, 6), (4, 4), (5, 5)):
                draw = np.random.default_rng(seed)
                sds = spread(draw, draws, rows)
                scores = draw_study(draw, draws, rows, n, sds, math.sqrt(effect))
                of_seed = draw.normal(size=(draws, k)) * math.sqrt(effect)
                further = draw.normal(size=(draws, k)) * sds[:, 0] + of_seed
                error, power = error_and_power(
                    lambda drawn, _, further=further: judge_with_further_seeds(drawn, further),
                    scores,
                    sds,
                )
                before = error_and_power(judge, scores, sds)
                yield (
                    f"| {name} | {effect:g} | {n} | {n + k} | {error:.3f} | {power:.2f} "
                    f"| {before[0]:.3f} | {before[1]:.2f} |"
                )


def diverged_base(draws: int, seed: int) -> Iterator[str]:
    """Error if base diverges with a tenth of its seeds, to 30 sd below, and no row does.

    The 13 rows have the mean of base, so that each difference is found in error. Counted are the
    studies whose seeds have diverged among base's further ones alone, where a rule can know it; the
    last column has those without a diverged seed, too, where no rule can.
    """
    yield "| seed effect | rows | base | studies | error | all seeds as the rows: error | shared seeds whole: error |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    share, depth, rows = 0.1, 30.0, 13
    for effect in (0.0, 1.0, 5.0):
        for n, k in ((3, 3), (3, 6), (4, 4), (5, 5)):
            draw = np.random.default_rng(seed)
            sds = np.ones((draws, rows + 1, 1))
            scores = draw_study(draw, draws, rows, n, sds, math.sqrt(effect))
            further = draw.normal(size=(draws, k)) * math.sqrt(1 + effect)
            diverged = draw.random((draws, n + k)) < share
            scores[:, 1:] -= depth * share
            scores[:, 0] -= depth * diverged[:, :n]
            further -= depth * diverged[:, n:]
            known = diverged[:, n:].any(axis=1) & ~diverged[:, :n].any(axis=1)
            named = judge_with_further_seeds(scores, further).any(axis=1)
            before = judge(scores)[known].any(axis=1).mean()
            shown = f"{named[known].mean():.3f} | {before:.3f} | {named[~diverged[:, :n].any(axis=1)].mean():.3f}"
            yield f"| {effect:g} | {n} | {n + k} | {known.sum()} | {shown} |"


def _exponential(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(draw.exponential(size=shape) - 1.0)


def _heavy(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Student's t with 3 degrees of freedom, of variance 1."""
    return np.asarray(draw.standard_t(3, size=shape) / math.sqrt(3))


def _near_bound(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal noise of scores one sd below a bound, which cuts it: a fifth of them reach it."""
    return np.asarray(np.minimum(draw.normal(size=shape), 0.84))


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "normal": lambda draw, shape: np.asarray(draw.normal(size=shape)),
    "exponential": _exponential,
    "t with 3 df": _heavy,
    "cut at a bound": _near_bound,
}


def other_noise(draws: int, seed: int) -> Iterator[str]:
    """Error with noise that is not normal; 13 rows of equal noise, and a base of other noise."""
    head = " | ".join(f"{n} seeds" for n in SEEDS)
    yield f"| noise | sd of base | {head} |"
    yield "| --- | ---: |" + " ---: |" * len(SEEDS)
    rows = 13
    for (name, noise), times in itertools.product(NOISES.items(), (1.0, 2.0, 3.0)):
        draw, cells = np.random.default_rng(seed), []
        for n in SEEDS:
            scores = noise(draw, (draws, rows + 1, n))
            if name == "cut at a bound":  # a noisier base is cut at the same bound
                scores[:, 0] = np.minimum(draw.normal(size=(draws, n)) * times, 0.84)
                of_base = np.minimum(draw.normal(size=1_000_000) * times, 0.84).mean()
                scores[:, 1:] += of_base - noise(draw, (1_000_000,)).mean()
            else:
                scores[:, 0] *= times
            scores = scores + draw.normal(size=(draws, 1, n))
            cells.append(f"{judge(scores).any(axis=1).mean():.3f}")
        yield f"| {name} | {times:g} | {' | '.join(cells)} |"


BASES = (1.0, 1.5, 2.0, 3.0, 5.0)  # sd of base over that of the rows


def noisier_base(draws: int, seed: int) -> Iterator[str]:
    """Error with 2 to 8 seeds and a base that is noisier than the rows."""
    head = " | ".join(f"{n} seeds" for n in range(2, 9))
    yield f"| sd of base | rows | {head} |"
    yield "| ---: | ---: |" + " ---: |" * 7
    for times, rows in itertools.product(BASES, ROWS):
        draw, cells = np.random.default_rng(seed), []
        for n in range(2, 9):
            sds = _base_of(times)(draw, draws, rows)
            scores = draw_study(draw, draws, rows, n, sds)
            cells.append(f"{judge(scores).any(axis=1).mean():.3f}")
        yield f"| {times:g} | {rows} | {' | '.join(cells)} |"


def sizes(draws: int, seed: int) -> Iterator[str]:
    """Error and power with three sizes of three rows each: a correction over the file, and one over
    the rows of each size.
    """
    head = "error | power | a family for each size: error | power"
    yield f"| noise of the rows | seeds | {head} |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    ladder, rows = 3, 3
    spreads = {**SPREADS, "base 1.5 times": _base_of(1.5), "base twice": _base_of(2.0)}
    for name, spread in spreads.items():
        for n in (*SEEDS, 16):
            draw = np.random.default_rng(seed)
            sds = spread(draw, draws * ladder, rows)
            if spread is _broken:  # one row of the file
                sds.reshape(draws, ladder, -1)[:, :-1] = 1.0
            drawn = draw_study(draw, draws * ladder, rows, n, sds)
            shape = (draws, ladder, rows + 1, n)
            shifted = drawn.copy()
            of_first = slice(None, None, ladder)  # the first size of each study
            shifted[of_first, 1] += EFFECT * _usual(sds[of_first])[:, None]
            cells = []
            for together in (True, False):
                found = []
                for scores in (drawn, shifted):
                    if together:
                        found.append(judge_sizes(scores.reshape(shape)))
                    else:
                        found.append(judge(scores).reshape(draws, -1))
                cells.append(f"{found[0].any(axis=1).mean():.3f} | {found[1][:, 0].mean():.2f}")
            yield f"| {name} | {n} | {' | '.join(cells)} |"


def _losses(draw: np.random.Generator, draws: int, n: int, sd: float, study: str) -> Array:
    """Losses in nats of 13 rows and base: the first row has no effect, the others have some."""
    rows = 13
    losses = 2.0 + draw_study(draw, draws, rows, n, np.full((1, 1, 1), sd), 0.5 * sd)
    if study != "alike":
        losses[:, 2:] += draw.normal(size=(draws, rows - 1, 1)) * 0.5
    if study == "a row learns nothing":
        losses[:, -1] = 8.0 + draw.normal(size=(draws, n)) * 1.5
    return losses


def losses(draws: int, seed: int) -> Iterator[str]:
    """Perplexity judged as it is, and by its logarithm, over 13 rows.

    Error: how often a first row without an effect gets a verdict; power: how often if its loss is 3
    sd lower; the last column, whether the row that learns nothing is worse.
    """
    yield (
        "| rows | sd of the loss | seeds | PPL: error | power | last row | ln PPL: error | power | "
        "last row |"
    )
    yield "| --- | ---: | ---: |" + " ---: |" * 6
    studies = ("alike", "differ by 0.5 nats", "a row learns nothing")
    for study, sd, n in itertools.product(studies, (0.01, 0.05, 0.2), (3, 5)):
        draw = np.random.default_rng(seed)
        drawn = _losses(draw, draws, n, sd, study)
        shifted = drawn.copy()
        shifted[:, 1] -= EFFECT * sd
        cells = []
        for scale in (np.exp, np.array):
            error = judge(scale(drawn))[:, 0].mean()
            found = judge(scale(shifted))
            last = f"{found[:, -1].mean():.2f}" if study == "a row learns nothing" else ""
            cells.append(f"{error:.3f} | {found[:, 0].mean():.2f} | {last}")
        yield f"| {study} | {sd} | {n} | {' | '.join(cells)} |"


def co_primary(draws: int, seed: int) -> Iterator[str]:
    """Two metrics whose noise is correlated: error over rows and metrics, and power.

    A row differs by 3 sd in the first metric, and by 3 / 2.7 in the second, as log loss and BLEU of
    Multi30k do.
    """
    yield (
        "| correlation | seeds | error at 0.025 each | error at 0.05 each | power, first at 0.05 | "
        "second at 0.05 | first at 0.025 | second at 0.025 | either at 0.025 |"
    )
    yield "| ---: | ---: |" + " ---: |" * 7
    rows = 13
    for correlation, n in itertools.product((0.0, 0.5, 0.9), (3, 5)):
        draw, sds = np.random.default_rng(seed), np.ones((1, 1, 1))
        first, more = (draw_study(draw, draws, rows, n, sds) for _ in range(2))
        second = correlation * first + math.sqrt(1 - correlation**2) * more
        errors = []
        for level in (LEVEL / 2, LEVEL):
            either = judge(first, level=level) | judge(second, level=level)
            errors.append(f"{either.any(axis=1).mean():.3f}")
        first[:, 1] += EFFECT
        second[:, 1] += EFFECT / 2.7
        at_whole = [judge(scores)[:, 0] for scores in (first, second)]
        at_half = [judge(scores, level=LEVEL / 2)[:, 0] for scores in (first, second)]
        powers = [*at_whole, *at_half, at_half[0] | at_half[1]]
        shown = " | ".join([*errors, *(f"{found.mean():.2f}" for found in powers)])
        yield f"| {correlation} | {n} | {shown} |"


def found(draws: int, seed: int) -> Iterator[str]:
    """How often a true difference is found that is as large as the d of "cannot tell (d)"."""
    yield "| rows | seeds | mean d, in sd | found |"
    yield "| ---: | ---: | ---: | ---: |"
    sds = np.ones((1, 1, 1))
    for rows, n in itertools.product((5, 13), (2, 3, 4, 5, 8)):
        draw, stated = np.random.default_rng(seed), []
        for scores in draw_study(draw, max(2, draws // 100), rows, n, sds):
            pairs = [
                PairedScores(dict(enumerate((row - scores[0]).tolist()))) for row in scores[1:]
            ]
            for verdict in verdicts(TRANSLATION_METRICS[0], pairs):
                if verdict.minimum_detectable is not None:
                    stated.append(verdict.minimum_detectable)
        size = float(np.mean(stated))
        scores = draw_study(draw, draws, rows, n, sds)
        scores[:, 1] += size
        yield f"| {rows} | {n} | {size:.2f} | {judge(scores)[:, 0].mean():.2f} |"


def _uniform(level: float, share: float) -> float:
    return level * share


def _pocock(level: float, share: float) -> float:
    return level * math.log(1 + (math.e - 1) * share)


def _obrien_fleming(level: float, share: float) -> float:
    normal = NormalDist()
    return 2 - 2 * normal.cdf(normal.inv_cdf(1 - level / 2) / math.sqrt(share))


SPENDING = {"uniform": _uniform, "Pocock": _pocock, "O'Brien and Fleming": _obrien_fleming}
PLAN = (3, 5, 8)


def spent_levels(spending: Callable[[float, float], float], plan: Sequence[int]) -> list[float]:
    """The error that each look spends."""
    spent = [0.0, *(spending(LEVEL, n / plan[-1]) for n in plan)]
    return [after - before for before, after in itertools.pairwise(spent)]


def joint_normal_levels(
    spending: Callable[[float, float], float], plan: Sequence[int], draws: int = 4_000_000
) -> list[float]:
    """Levels with which z tests, whose looks have their joint normal distribution, spend the same
    error.

    From simulation; `draws` gives them to about 1 %.
    """
    draw = np.random.default_rng(0)
    total, inside, levels, before = np.zeros(draws), np.ones(draws, bool), [], 0
    for increment, n in zip(spent_levels(spending, plan), plan, strict=True):
        total += draw.normal(size=draws) * math.sqrt(n - before)
        size = np.sort(abs(total[inside]))[::-1]
        limit = size[min(len(size) - 1, round(increment * draws))]
        inside &= abs(total) < limit
        levels.append(2 * NormalDist().cdf(-limit / math.sqrt(n)))
        before = n
    return levels


def looks(draws: int, seed: int) -> Iterator[str]:
    """Error with looks, power for a row of EFFECT, and seeds and power where every row differs by
    twice as much.
    """
    rules: dict[str, tuple[list[float], tuple[int, ...]]] = {
        f"{PLAN[-1]} seeds at once": ([LEVEL], PLAN[-1:]),
        **{name: (spent_levels(spending, PLAN), PLAN) for name, spending in SPENDING.items()},
        "Pocock, joint normal": (joint_normal_levels(_pocock, PLAN), PLAN),
        "0.05 at each look": ([LEVEL] * len(PLAN), PLAN),
    }
    yield (
        "| noise of the rows | rows | error spent | error | power | power, all rows differ | "
        "seeds |"
    )
    yield "| --- | ---: | --- | ---: | ---: | ---: | ---: |"
    for name, spread in SPREADS.items():
        for rows in (1, 5, 13):
            draw = np.random.default_rng(seed)
            sds = spread(draw, draws, rows)
            scores = draw_study(draw, draws, rows, PLAN[-1], sds)
            size = EFFECT * _usual(sds)[:, None]
            one, all_rows = scores.copy(), scores.copy()
            one[:, 1] += size
            all_rows[:, 1:] += 2 * size[:, :, None]
            for rule, (levels, plan) in rules.items():
                error = judge_over_looks(scores, levels, plan)[0].any(axis=1).mean()
                power = judge_over_looks(one, levels, plan)[0][:, 0].mean()
                found, seeds = judge_over_looks(all_rows, levels, plan)
                shown = f"{error:.3f} | {power:.2f} | {found.mean():.2f} | {seeds.mean():.1f}"
                yield f"| {name} | {rows} | {rule} | {shown} |"


def crossed_null(draws: int, seed: int) -> Iterator[str]:
    """Error if seeds and sentences make noise and nothing is different."""
    yield (
        "| sd over seeds | seeds | "
        + " | ".join(f"{rows} rows: 8c9acca | now" for rows in (1, 10, 20))
        + " |"
    )
    yield "| ---: | ---: |" + " ---: | ---: |" * 3
    draw = np.random.default_rng(seed)
    for sd in (0.1, 0.3, 0.5):
        for n in (2, 3, 5, 10):
            cells = []
            for rows in (1, 10, 20):
                scores = draw_study(draw, draws, rows, n, np.full((1, 1, 1), sd), 0.0)
                scores += draw.normal(size=(draws, rows + 1, 1)) * SENTENCES
                for rule in (judge_at_8c9acca, judge):
                    cells.append(float(rule(scores, 2 * SENTENCES**2).any(axis=1).mean()))
            yield f"| {sd} | {n} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |"


def incomplete_studies(draws: int, seed: int) -> Iterator[str]:
    """Error with missing and with diverged seeds, by the verdicts themselves."""
    yield "| study | rows | seeds | error |"
    yield "| --- | ---: | ---: | ---: |"
    draw = np.random.default_rng(seed)
    for rows in (5, 13):
        for n in (3, 5):
            for name, missing, diverged in (
                ("a quarter of the runs pending", 0.25, 0.0),
                ("5 % of the runs diverged", 0.0, 0.05),
                ("20 % of the runs diverged", 0.0, 0.2),
            ):
                error = (
                    sum(_any_verdict(draw, rows, n, missing, diverged) for _ in range(draws))
                    / draws
                )
                yield f"| {name} | {rows} | {n} | {error:.3f} |"


def _any_verdict(
    draw: np.random.Generator, rows: int, n: int, missing: float, diverged: float
) -> bool:
    scores = draw.normal(size=(rows + 1, n))
    fate = draw.random(size=(rows + 1, n))
    lost, pending = fate < diverged, (fate >= diverged) & (fate < diverged + missing)
    ended = (~pending).sum(axis=1)
    pairs = [
        PairedScores(
            {
                s: float(scores[row, s] - scores[0, s])
                for s in range(n)
                if not (lost | pending)[[0, row], s].any()
            },
            diverged=int(lost[row].sum()),
            base_diverged=int(lost[0].sum()),
            base_ended=int(ended[0]),
            pending=int(pending[row].sum()),
        )
        for row in range(1, rows + 1)
    ]
    return any(one.word in ("worse", "better") for one in verdicts(TRANSLATION_METRICS[0], pairs))


def judge_unpaired(scores: Array, further: int = 0) -> Array:
    """Significant rows, (studies, rows), of studies without seeds. Base has `further` runs more
    than a row; they stand last, and are no scores of rows.
    """
    significant = []
    n = scores.shape[2] - further
    for study in scores.tolist():
        base = dict(enumerate(study[0]))
        common = {run: base[run] for run in range(n)}
        more = {run: base[run] for run in range(n, n + further)}
        base_scores = BaseScores(common, more, is_paired=False)
        pairs = []
        for row in study[1:]:
            differences = {run: row[run] - base[run] for run in range(n)}
            pairs.append(PairedScores(differences, base_scores=base_scores))
        found = verdicts(TRANSLATION_METRICS[0], pairs)
        significant.append([verdict.is_different for verdict in found])
    return np.array(significant)


def unpaired(draws: int, seed: int) -> Iterator[str]:
    """Error and power of runs without seeds, in files that are sorted by score."""
    yield "| noise of the rows | rows | runs of a row | runs of base | error | power |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, spread in SPREADS.items():
        for rows, n, further in ((1, 3, 0), (2, 3, 0), (5, 3, 0), (5, 5, 0), (13, 3, 0), (5, 3, 3)):
            draw = np.random.default_rng(seed)
            sds = spread(draw, draws, rows)
            scores = np.sort(draw_study(draw, draws, rows, n + further, sds, 0.0)[:, :, :n])
            if further:
                more = np.zeros((draws, rows + 1, further))
                more[:, 0] = draw.normal(size=(draws, further)) * sds[:, 0]
                scores = np.concatenate([scores, more], axis=2)
            error, power = error_and_power(
                lambda drawn, _, further=further: judge_unpaired(drawn, further), scores, sds
            )
            yield f"| {name} | {rows} | {n} | {n + further} | {error:.3f} | {power:.2f} |"


TABLES: dict[str, Callable[[int, int], Iterator[str]]] = {
    "complete": complete_studies,
    "base": noisier_base,
    "shared": shared_trainings,
    "further": further_seeds,
    "diverged": diverged_base,
    "sizes": sizes,
    "noise": other_noise,
    "looks": looks,
    "crossed": crossed_null,
    "incomplete": incomplete_studies,
    "losses": losses,
    "metrics": co_primary,
    "found": found,
    "unpaired": unpaired,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=tuple(TABLES))
    options = parser.parse_args()
    assert OUTLIER_LEVEL == LEVEL
    for name, table in TABLES.items():
        if options.only in (None, name):
            draws = options.draws // 10 if name in ("incomplete", "unpaired") else options.draws
            print(*table(draws, options.seed), sep="\n", end="\n\n", flush=True)


if __name__ == "__main__":
    main()
