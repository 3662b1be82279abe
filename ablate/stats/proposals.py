"""Decide on a stream of proposals. Each proposal changes the end of a chain: base, then the
proposals that were kept.

A proposal is run again and again until Wald's sequential probability ratio test decides: it is kept
when the evidence for a gain of SMALLEST_GAIN reaches 1 / level, and dropped when the evidence falls
to DROP. The level grows with the number of proposals kept (LORD++, whose initial wealth is spread
evenly over MAX_PROPOSALS), which controls the false discovery rate. The noise of a run is pooled
over all rows. A proposal that is kept becomes the new end of the chain. Because a proposal is kept
for its scores, the runs before that decision do not count for the chain; only later runs do.
benchmarks/streams.py measures the false discovery rate and the share of the true gains that is
found.

Source: Wald, "Sequential Tests of Statistical Hypotheses", Ann. Math. Statist. 16 (1945);
    Ramdas et al., "Online control of the false discovery rate with decaying memory" (2017).
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Literal

from ablate.stats.distributions import critical_t
from ablate.stats.significance import LEVEL

SMALLEST_GAIN = 0.6  # the gain that the test looks for, in standard deviations over seeds
DROP = 0.3  # evidence at which a proposal is dropped
MAX_PROPOSALS = 100
MIN_CHAIN_RUNS = 24  # a decision needs this many runs of the chain, and as many as the proposal has
MAX_RUNS = 200  # a proposal that is still undecided after this many runs is dropped

State = Literal["kept", "dropped", "open", "of an earlier chain", "untested"]


def proposal_level(n_kept: int) -> float:
    """Level of a proposal that is first run when `n_kept` proposals have been kept."""
    return LEVEL / MAX_PROPOSALS * max(1, n_kept)


def log_evidence(difference: float, n: float, n_chain: float) -> float:
    """Logarithm of the likelihood ratio of a gain of SMALLEST_GAIN against no gain.

    Args:
        difference: mean of the proposal minus mean of the chain, in standard deviations over seeds;
            positive if the proposal is better.
        n: number of runs of the proposal.
        n_chain: number of runs of the chain.
    """
    information = 1 / (1 / n + 1 / n_chain)
    return SMALLEST_GAIN * information * (difference - SMALLEST_GAIN / 2)


@dataclass
class Proposal:
    """A proposed change.

    level: level of its test.
    scores: scores of its runs until the decision.
    state: `kept`, `dropped`, `open` (undecided), `of an earlier chain` (undecided when another
        proposal was kept), or `untested` (beyond MAX_PROPOSALS).
    difference: mean minus the mean of the chain at the last test; None before. For a proposal that
        was kept it is biased upwards, because proposals are selected by it.
    """

    name: str
    level: float
    scores: list[float] = field(default_factory=list)
    state: State = "open"
    difference: float | None = None


class Stream:
    """Decisions on a stream of runs, which are added in the order in which they ended.

    Attributes:
        chain: base, then the proposals that were kept, in order.
        proposals: the proposals by name.
        ignored: number of runs that did not count, because their proposal was decided or untested.
    """

    def __init__(self, base: str, more_is_better: bool) -> None:
        self.chain = [base]
        self.proposals: dict[str, Proposal] = {}
        self.ignored = 0
        self._sign = 1.0 if more_is_better else -1.0
        self._chain_scores: list[float] = []
        self._earlier_chains: list[list[float]] = []
        # Scores of base and of the end of the chain after the last run of a proposal. They decided
        # nothing, so they give an unbiased estimate of the gain.
        self._unselected: dict[str, list[float]] = {}

    def add(self, row: str, score: float) -> None:
        """Add a run of base, of the end of the chain, or of a proposal.

        Args:
            row: name of base or of a proposal.
            score: infinite or NaN if the run diverged.
        """
        if row in (self.chain[0], self.chain[-1]):
            self._unselected.setdefault(row, []).append(score)
            if row == self.chain[-1]:
                self._chain_scores.append(score)
        else:
            self._unselected = {}
            new = Proposal(row, proposal_level(len(self.chain) - 1))
            if len(self.proposals) >= MAX_PROPOSALS:  # the level is spent
                new.state = "untested"
            proposal = self.proposals.setdefault(row, new)
            if proposal.state != "open":
                self.ignored += 1
                return
            proposal.scores.append(score)
        for proposal in self.proposals.values():
            if proposal.state == "open":
                self._decide(proposal)

    def _decide(self, proposal: Proposal) -> None:
        n = len(proposal.scores)
        sd = self.sd
        if not math.isfinite(sum(proposal.scores)):
            proposal.state = "dropped"
        elif self.runs_missing(proposal) == 0 and sd:
            chain_mean = statistics.fmean(self._chain_scores)
            difference = statistics.fmean(proposal.scores) - chain_mean
            evidence = log_evidence(self._sign * difference / sd, n, len(self._chain_scores))
            if evidence >= -math.log(proposal.level):
                self._keep(proposal)
            elif evidence <= math.log(DROP) or n >= MAX_RUNS:
                proposal.state = "dropped"
            proposal.difference = difference

    def _keep(self, winner: Proposal) -> None:
        """Make a proposal the end of the chain."""
        for proposal in self.proposals.values():
            if proposal.state == "open":
                proposal.state = "of an earlier chain"
        winner.state = "kept"
        self.chain.append(winner.name)
        self._earlier_chains.append(self._chain_scores)
        self._chain_scores = []

    @property
    def sd(self) -> float:
        """Standard deviation of a score over seeds, pooled over all rows; 0 if it is unknown."""
        samples = [self._chain_scores, *self._earlier_chains]
        samples += [proposal.scores for proposal in self.proposals.values()]
        df = 0
        squares = 0.0
        for scores in samples:
            if len(scores) > 1 and math.isfinite(sum(scores)):
                df += len(scores) - 1
                squares += (len(scores) - 1) * statistics.variance(scores)
        return math.sqrt(squares / max(1, df))

    def runs_missing(self, proposal: Proposal) -> int:
        """Number of runs of the chain that are missing for a decision on a proposal."""
        return max(0, max(MIN_CHAIN_RUNS, len(proposal.scores)) - len(self._chain_scores))

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """Gain of the chain over base: estimate, and 95 % interval (low, high).

        Only runs after the last run of a proposal count, because they decided nothing. None while
        base or the end of the chain has fewer than MIN_CHAIN_RUNS such runs.
        """
        if len(self.chain) == 1 or self.runs_last:
            return None
        base = self._unselected[self.chain[0]]
        chain = self._unselected[self.chain[-1]]
        gain = statistics.fmean(chain) - statistics.fmean(base)
        df = len(chain) + len(base) - 2
        margin = critical_t(LEVEL, df) * self.sd * math.sqrt(1 / len(chain) + 1 / len(base))
        return gain, gain - margin, gain + margin

    @property
    def runs_next(self) -> dict[str, int]:
        """Number of runs to do next, by row: the runs of the chain that a decision needs, otherwise
        one run of each open proposal.
        """
        runs: dict[str, int] = {}
        for proposal in self.proposals.values():
            if proposal.state == "open":
                missing = self.runs_missing(proposal)
                row = self.chain[-1] if missing else proposal.name
                runs[row] = max(runs.get(row, 0), missing, 1)
        return runs

    @property
    def runs_last(self) -> dict[str, int]:
        """Number of runs that `gain` still needs when all proposals are decided, by row."""
        missing = {}
        for row in (self.chain[0], self.chain[-1]):
            count = len(self._unselected.get(row, ()))
            if count < MIN_CHAIN_RUNS and len(self.chain) > 1:
                missing[row] = MIN_CHAIN_RUNS - count
        return missing
