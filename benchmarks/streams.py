"""How often a keep of `ablate judge --stream` is false, and the share of the gains that it finds:
simulated nights of 100 proposals, beside the greedy rule that keeps every better score.

    python -m benchmarks.streams [--nights 10000]

A score has a standard deviation of 1. Of the proposals 0, 5 or 10 % are real, with a gain of 0.3 to
1, and the others have none. An oracle keeps exactly the real ones. benchmarks/LOG.md has the result.
"""

import argparse
import math

import numpy as np

from ablate.stats.distributions import critical_t
from ablate.stats.proposals import (
    DROP,
    MAX_PROPOSALS,
    MAX_RUNS,
    MIN_CHAIN_RUNS,
    log_evidence,
    proposal_level,
)

SHARES = (0.0, 0.05, 0.1)


class Rows:
    """One row in each night: its number of runs, and the sum and squares of their noise."""

    def __init__(self, nights, draw):
        self.draw = draw
        self.n, self.sum, self.squares = (np.zeros(nights) for _ in range(3))

    def run(self, more):
        """Run each row so many times more."""
        drawn = np.flatnonzero(more)
        count = more[drawn]
        total = self.draw.normal(size=len(drawn)) * np.sqrt(count)
        # The squares of normal numbers about their mean, whose sum is drawn already.
        around = np.where(count > 1, self.draw.chisquare(np.maximum(count - 1, 1)), 0.0)
        self.n[drawn] += count
        self.sum[drawn] += total
        self.squares[drawn] += around + total**2 / count

    def mean(self):
        return self.sum / np.maximum(self.n, 1)

    def within(self):
        """Sum of squares about the mean, and its degrees of freedom."""
        return self.squares - self.sum**2 / np.maximum(self.n, 1), np.maximum(self.n - 1, 0)

    def clear(self, nights):
        for values in (self.n, self.sum, self.squares):
            values[nights] = 0.0


def gate(gains, draw):
    """Nights with the rule of the gate: (kept, runs, gain by fresh runs, half its interval, and the
    sum of the differences at which proposals were kept).
    """
    nights = len(gains)
    chain, squares, df = Rows(nights, draw), np.zeros(nights), np.zeros(nights)
    kept, runs, naive = np.zeros(gains.shape, bool), np.zeros(nights), np.zeros(nights)
    for place in range(MAX_PROPOSALS):
        limit = -np.log([proposal_level(count) for count in kept.sum(1)])
        proposal, is_open = Rows(nights, draw), np.ones(nights, bool)
        while is_open.any():
            proposal.run(is_open.astype(float))
            needed = np.where(is_open, np.maximum(MIN_CHAIN_RUNS, proposal.n) - chain.n, 0)
            chain.run(np.maximum(0, needed))
            runs += is_open + np.maximum(0, needed)
            parts = [(squares, df), chain.within(), proposal.within()]
            sd = np.sqrt(sum(part[0] for part in parts) / sum(part[1] for part in parts))
            difference = proposal.mean() + gains[:, place] - chain.mean()
            evidence = log_evidence(difference / sd, proposal.n, chain.n)
            keeps = is_open & (evidence >= limit)
            naive += np.where(keeps, difference, 0.0)
            kept[:, place] |= keeps
            is_open &= ~(keeps | (evidence <= math.log(DROP)) | (proposal.n >= MAX_RUNS))
        for row, ends in ((proposal, np.ones(nights, bool)), (chain, kept[:, place])):
            within = row.within()
            squares, df = squares + within[0] * ends, df + within[1] * ends
        chain.clear(kept[:, place])
    base, last = Rows(nights, draw), Rows(nights, draw)
    for row in (base, last):
        row.run(np.full(nights, float(MIN_CHAIN_RUNS)))
    runs += 2 * MIN_CHAIN_RUNS * kept.any(1)
    half = critical_t(0.05, 2 * MIN_CHAIN_RUNS - 2) * np.sqrt(squares / df * 2 / MIN_CHAIN_RUNS)
    gain = last.mean() - base.mean() + (gains * kept).sum(1)
    return kept, runs, gain, half, naive


def greedy(gains, draw):
    """Nights in which each proposal is run once, and kept if its score is the best so far."""
    best, true = draw.normal(size=len(gains)), np.zeros(len(gains))
    first, kept = best.copy(), np.zeros(gains.shape, bool)
    for place in range(MAX_PROPOSALS):
        score = true + gains[:, place] + draw.normal(size=len(gains))
        kept[:, place] = score > best
        best = np.maximum(best, score)
        true += np.where(kept[:, place], gains[:, place], 0.0)
    return kept, best - first


def line(name, gains, kept, runs, claimed, rest=""):
    false = (kept & (gains == 0)).sum(1)
    rate = np.mean(false / np.maximum(1, kept.sum(1)))
    possible, true = gains.sum(), (gains * kept).sum(1)
    share = f"{true.sum() / possible:.3f}" if possible else "-"
    return (
        f"| {name} | {kept.sum(1).mean():.2f} | {rate:.3f} | {np.mean(false > 0):.3f} | {share} | "
        f"{runs:.1f} | {true.mean():.2f} | {claimed:.2f} | {rest} |"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nights", type=int, default=10_000)
    nights = parser.parse_args().nights
    print(
        "| real, rule | keeps | false share | any false | share of gains | runs | gain | claimed | |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for share in SHARES:
        draw = np.random.default_rng(0)
        size = (nights, MAX_PROPOSALS)
        gains = np.where(draw.random(size) < share, draw.uniform(0.3, 1.0, size), 0.0)
        kept, claimed = greedy(gains, draw)
        print(line(f"{share:.0%}, greedy", gains, kept, 1.0, claimed.mean()))
        kept, runs, gain, half, naive = gate(gains, draw)
        some = kept.any(1)
        covered = np.mean(abs(gain - (gains * kept).sum(1))[some] < half[some]) if some.any() else 1
        rest = f"{naive.mean():.2f} by the differences at the keeps; covered {covered:.3f}"
        print(line(f"{share:.0%}, gate", gains, kept, runs.mean() / MAX_PROPOSALS,
                   np.where(some, gain, 0.0).mean(), rest), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
