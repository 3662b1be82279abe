"""Noise of the seeds: the variance of each row around the two-way layout row x seed, and the
variance that rows share.

A score is modeled as effect of the row + effect of the seed + noise. Rows are compared with base on
the same seeds, so
differences from base suffice: the effect of the seed cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.stats.distributions import f_tail

APART_LEVEL = 0.05  # of the test whether a row is noisier than the others, over all rows

Differences = Mapping[int, float]  # row - base, by seed


@dataclass(frozen=True)
class Variance:
    """An estimated variance, with its degrees of freedom."""

    value: float
    df: float


@dataclass(frozen=True)
class SeedNoise:
    """Variances of one score over seeds, of base and of rows, each at its index.

    own: of each row alone, from its residuals; base first. None with fewer than two seeds.
    pooled: mean over the rows whose variances agree.
    apart: indexes of rows that are significantly noisier than the others; they are not pooled.
    """

    own: tuple[Variance | None, ...]
    pooled: Variance
    apart: frozenset[int] = frozenset()

    def of_difference(self, index: int) -> tuple[Variance, ...]:
        """Variance of the difference of row `index` from base with one seed, in components.

        Each of the two counts with its own variance or the pooled one, whichever is larger; one
        that is apart with its own.
        """
        components = {place: self._own(place) for place in (index, 0)}
        alone = tuple(own for place, own in components.items() if place in self.apart)
        shared = [
            max(own.value, self.pooled.value)
            for place, own in components.items()
            if place not in self.apart
        ]
        return (*alone, Variance(sum(shared), self.pooled.df)) if shared else alone

    def own_of_difference(self, index: int) -> Variance:
        """Variance of the difference by the residuals of the row and of base alone; degrees of
        freedom of the row.

        If base is noisier than the shared variance says, the row counts with no less than the
        shared variance. All rows have the noise of base in common, so that one of many rows easily
        seems to have little noise besides.
        """
        row, base = self._own(index), self._own(0)
        is_base_noisier = base.value > self.pooled.value and index not in self.apart
        return Variance(
            (max(row.value, self.pooled.value) if is_base_noisier else row.value) + base.value,
            row.df,
        )

    def _own(self, index: int) -> Variance:
        own = self.own[index]
        assert own is not None
        return own


def seed_noise(rows: Sequence[Differences]) -> SeedNoise:
    """Estimate the variances over seeds from the differences of rows from base.

    Least squares on row and seed; seeds may be missing. A row's variance is the sum of its squared
    residuals, divided by the sum of 1 - leverage. Rows that are noisier than the others (F test
    against the pool of the others, Bonferroni over the rows, the noisiest first) are set apart, and
    the layout is fitted again without them.

    Args:
        rows: differences of each row by seed. Rows with fewer than two seeds are left out.
    """
    own: list[Variance | None] = [None] * (len(rows) + 1)
    fitted = [index for index, row in enumerate(rows, 1) if len(row) > 1]
    if not fitted:
        return SeedNoise(tuple(own), Variance(0.0, 1.0))
    layout = _Layout([rows[index - 1] for index in fitted])
    kept = list(range(len(fitted) + 1))
    while True:
        variances = layout.variances(kept)
        df = max(1.0, sum(layout.n[place] - 1 for place in kept) - (layout.seeds - 1))
        noisiest = _noisiest(variances, kept, df)
        if noisiest is None:
            break
        # One at a time: a very noisy row inflates the pool, behind which a second one may hide.
        kept.remove(noisiest)
    places = [0, *fitted]
    for place, variance in zip(places, variances, strict=True):
        own[place] = variance
    weights = [layout.n[place] - 1 for place in kept]
    pooled = sum(w * variances[place].value for w, place in zip(weights, kept, strict=True)) / sum(
        weights
    )
    apart = frozenset(place for number, place in enumerate(places) if number not in kept)
    return SeedNoise(tuple(own), Variance(pooled, df), apart)


def _noisiest(variances: Sequence[Variance], kept: Sequence[int], df: float) -> int | None:
    """The row whose variance exceeds that of the others, if there is one. At least two rows
    remain.
    """
    place = max(kept, key=lambda one: variances[one].value)
    others = [variances[one].value for one in kept if one != place]
    rest = sum(others) / len(others)
    # Of two rows alone, neither is the exception.
    if len(others) < 2 or not rest:
        return None
    p = f_tail(variances[place].value / rest, variances[place].df, df)
    return place if p < APART_LEVEL / len(kept) else None


class _Layout:
    """The differences as a matrix of rows x seeds; base, with zeros, is the first row.

    n: number of seeds of each row.
    seeds: number of all seeds.
    """

    def __init__(self, rows: Sequence[Differences]) -> None:
        import numpy as np

        names = sorted({seed for row in rows for seed in row})
        self.seeds = len(names)
        self.values = np.array(
            [[0.0] * self.seeds, *([row.get(seed, 0.0) for seed in names] for row in rows)]
        )
        self.present = np.array(
            [[1.0] * self.seeds, *([float(seed in row) for seed in names] for row in rows)]
        )
        self.n: list[int] = self.present.sum(axis=1).astype(int).tolist()
        # Rounding of equal differences must not pass for noise.
        self.resolution = (1e-12 * (1.0 + float(abs(self.values).max()))) ** 2

    def variances(self, kept: Sequence[int]) -> list[Variance]:
        """Variance of every row around the effects of the seeds, which are fitted to the rows
        `kept`.
        """
        import numpy as np

        share = self.present / self.present.sum(axis=1, keepdims=True)
        centered = (self.values - (self.values * share).sum(axis=1, keepdims=True)) * self.present
        # The effects of the rows are eliminated: the normal equations of the seeds remain, singular
        # by a constant.
        present = self.present[kept]
        normal = np.diag(present.sum(axis=0)) - present.T @ share[kept]
        # A constant added to all seeds is absorbed by the rows, so the matrix has no inverse; the
        # pseudo-inverse leaves that constant out, and the seeds of no row kept, if base is apart.
        inverse = np.linalg.pinv(normal, hermitian=True)
        effects = inverse @ centered[kept].sum(axis=0)
        residuals = (centered - effects + (share @ effects)[:, None]) * self.present
        quadratic = np.einsum("rs,st,rt->r", share, inverse, share)[:, None]
        cross = np.diag(inverse) - 2 * share @ inverse + quadratic
        # 1 - leverage of each cell: the part of its variance that the fit leaves in the residual.
        rest = (self.present - share - cross * self.present).sum(axis=1)
        squares = (residuals**2).sum(axis=1)
        found = []
        for row, n in enumerate(self.n):
            # The fit does not contain a row that is apart, so its residuals lose only its own mean.
            divisor = rest[row] if row in kept else n - 1
            value = 0.0 if squares[row] < self.resolution * n else float(squares[row] / divisor)
            found.append(Variance(value, n - 1))
        return found
