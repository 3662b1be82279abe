"""Which rule prunes a recipe of eight parts, three of them real, and how many runs it needs.

    python -m benchmarks.pruning [--draws 20000]

A score has a standard deviation of 1, and a real part is worth the margin. A screen estimates the
loss without each part: `fraction` is that of `prune`, `leave-one-out` has the recipe, and the
recipe without each part. Parts without which the loss rises by less than a share of the margin are
removed together. The pruned recipe is then compared with the whole one by fresh seeds, and
confirmed if it loses significantly less than the margin (one-sided t test at 0.05, paired by seed).

recovered: exactly the parts that the recipe needs are left, and this is confirmed.
false as good: a recipe is confirmed that loses the margin or more.
false part: the rise without a part that does nothing is significant (Holm over the effects).

All subsets of eight parts are 256 recipes. benchmarks/LOG.md has the result.
"""

import argparse

import numpy as np

from ablate.stats.distributions import critical_t
from ablate.stats.factorial import smallest_fraction
from ablate.stats.significance import LEVEL
from ablate.study.pruning import RESOLUTION, SHARE

PARTS = 8
REAL = 3  # the first parts
FRACTION = smallest_fraction(tuple("ABCDEFGH"), RESOLUTION)
CELLS = np.array([[cell[part] < 0 for part in FRACTION.factors] for cell in FRACTION.cells()])
LEFT_OUT = np.vstack([np.ones(PARTS, bool), ~np.eye(PARTS, dtype=bool)])


def together(*parts):
    return lambda has: np.all([has[..., part] for part in parts], 0).astype(int)


# What the parts give, in margins, by those that a recipe has.
RECIPES = {
    "each alone": lambda has: has[..., :REAL].sum(-1),
    "B only with A": lambda has: together(0)(has) + together(0, 1)(has) + has[..., 2],
    "A and B only together": lambda has: together(0, 1)(has) + has[..., 2],
    "A, B and C only together": together(0, 1, 2),
    "A or B is enough": lambda has: (has[..., 0] | has[..., 1]).astype(int) + has[..., 2],
}
# Margin in standard deviations, seeds of the screen, fresh seeds of both recipes.
SIZES = ((1.5, 10, 16), (2.0, 4, 10), (2.0, 6, 10), (3.0, 2, 6), (3.0, 3, 6), (4.0, 2, 5))


def is_minimal(recipe, kept):
    """Whether the kept parts give what all give, and none of them can be removed."""
    found = recipe(kept) == recipe(np.ones(PARTS, bool))
    for part in range(PARTS):
        less = kept.copy()
        less[:, part] = False
        found &= ~kept[:, part] | (recipe(less) < recipe(kept))
    return found


def screen(rows, recipe, margin, seeds, draws, draw):
    """The estimated rise of the loss without each part, and the t of every effect, parts first."""
    means = draw.normal(size=(draws, len(rows))) / np.sqrt(seeds) - margin * recipe(rows)
    df = len(rows) * (seeds - 1)
    sd = np.sqrt(draw.chisquare(df, draws) / df)[:, None]
    if rows is LEFT_OUT:
        rise = means[:, 1:] - means[:, :1]
        return rise, rise / (sd * np.sqrt(2 / seeds)), df
    levels = {part: np.where(rows[:, place], -1, 1) for place, part in enumerate("ABCDEFGH")}
    effects = [np.prod([levels[part] for part in effect], 0) for effect in FRACTION.contrasts()]
    estimates = 2 / len(rows) * means @ np.array(effects).T
    return estimates[:, :PARTS], estimates / (sd * 2 / np.sqrt(len(rows) * seeds)), df


def holm(t, df):
    """Which effects are significant."""
    order = np.argsort(-np.abs(t), 1)
    count = t.shape[1]
    limits = np.array([critical_t(LEVEL / (count - place), df) for place in range(count)])
    passed = np.abs(np.take_along_axis(t, order, 1)) > limits
    found = np.zeros_like(passed)
    np.put_along_axis(found, order, np.logical_and.accumulate(passed, 1), 1)
    return found


def simulate(rows, recipe, margin, share, seeds, fresh, draws):
    """Shares of the draws: recovered, false as good, false part."""
    draw = np.random.default_rng(41)
    rise, t, df = screen(rows, recipe, margin, seeds, draws, draw)
    kept = rise >= share * margin
    loss = margin * (recipe(np.ones(PARTS, bool)) - recipe(kept))
    observed = loss + draw.normal(size=draws) * np.sqrt(2 / fresh)
    error = np.sqrt(2 / fresh * draw.chisquare(fresh - 1, draws) / (fresh - 1))
    is_confirmed = margin - observed > critical_t(2 * LEVEL, fresh - 1) * error
    recovered = is_minimal(recipe, kept) & is_confirmed
    false_part = holm(t, df)[:, REAL:PARTS].any(1)
    return recovered.mean(), (is_confirmed & (loss >= margin)).mean(), false_part.mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=20_000)
    draws = parser.parse_args().draws
    heads = "recipe, screen, kept from, margin in sd, seeds, fresh, runs, recovered, false as good"
    heads = [*heads.split(", "), "false part"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * 2}{' ---: |' * (len(heads) - 2)}")
    for name, recipe in RECIPES.items():
        for title, rows, share in (
            ("fraction", CELLS, SHARE),
            ("fraction", CELLS, 0.5),
            ("leave-one-out", LEFT_OUT, 0.5),
        ):
            for margin, seeds, fresh in SIZES:
                # As many runs as the fraction has, about.
                seeds = seeds * len(CELLS) // len(rows)
                shares = simulate(rows, recipe, margin, share, seeds, fresh, draws)
                cells = [name, title, f"{share:g}", f"{margin:g}", seeds, fresh]
                cells += [len(rows) * seeds + 2 * fresh, *(f"{value:.3f}" for value in shares)]
                print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
