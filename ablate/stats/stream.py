"""Decide on a stream of proposals, each of which changes the chain of the proposals kept so far.

A proposal is run again and again until Wald's sequential probability ratio test decides: it is kept
when the evidence for a gain of SMALLEST_GAIN reaches 1 / level, and dropped when the evidence falls
to DROP. The level grows with the number of proposals kept: LORD++, with its wealth spread evenly
over MAX_PROPOSALS. The noise of a run is pooled over all rows. A proposal that is kept is the new
end of the chain. Its runs so far have been selected for their scores, so only its further runs
count for the chain. benchmarks/streams.py measures the false discovery rate and the share of the
gains that is found.

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

SMALLEST_GAIN = 0.6  # the gain that is tested, in standard deviations over seeds
DROP = 0.3  # evidence at which a proposal is dropped
MAX_PROPOSALS = 100
MIN_CHAIN_RUNS = 24  # the chain needs so many runs, and as many as the proposal, for a decision
MAX_RUNS = 200  # a proposal that is still open after so many runs is dropped

State = Literal["kept", "dropped", "open", "of an earlier chain", "untested"]


def proposal_level(n_kept: int) -> float:
    """The level of a proposal whose first run comes after `n_kept` proposals were kept."""
    return LEVEL / MAX_PROPOSALS * max(1, n_kept)


def log_evidence(difference: float, n: float, n_chain: float) -> float:
    """Logarithm of the likelihood ratio of a gain of SMALLEST_GAIN against no gain.

    Args:
        difference: of the means, in standard deviations; positive is better.
        n: number of runs of the proposal.
        n_chain: number of runs of the chain.
    """
    information = 1 / (1 / n + 1 / n_chain)
    return SMALLEST_GAIN * information * (difference - SMALLEST_GAIN / 2)


@dataclass
class Proposal:
    """A change that was tried.

    level: the level at which it is kept.
    scores: of its runs until it was decided.
    difference: from the chain when it was last tested. It is biased upwards for a proposal that was
        kept, because proposals are selected by it.
    """

    name: str
    level: float
    scores: list[float] = field(default_factory=list)
    state: State = "open"
    difference: float | None = None


class Stream:
    """A stream of runs, in the order in which they ended.

    Attributes:
        chain: base, then the proposals that were kept, in order.
        proposals: by name.
        ignored: number of runs of proposals that had been decided, or are not tested.
    """

    def __init__(self, base: str, more_is_better: bool) -> None:
        self.chain = [base]
        self.proposals: dict[str, Proposal] = {}
        self.ignored = 0
        self._sign = 1.0 if more_is_better else -1.0
        self._chain_scores: list[float] = []
        self._earlier_chains: list[list[float]] = []
        # Scores of base and of the chain since the last run of a proposal. No decision has depended
        # on them, so they give an unbiased estimate of the gain.
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
        """Standard deviation of a score over seeds, pooled over all rows; 0 if unknown."""
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
        """Number of runs of the chain that are missing to decide on a proposal."""
        return max(0, max(MIN_CHAIN_RUNS, len(proposal.scores)) - len(self._chain_scores))

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """Gain of the chain over base: estimate, and 95 % interval (low, high).

        It is estimated from the runs after the last run of a proposal, because no decision has
        depended on these. None while base or the chain has fewer than MIN_CHAIN_RUNS of them.
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
        """Number of runs to do next, by row: those of the chain that a decision needs, else one of
        each open proposal.
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
        """Number of runs that `gain` still needs, after all proposals, by row."""
        missing = {}
        for row in (self.chain[0], self.chain[-1]):
            count = len(self._unselected.get(row, ()))
            if count < MIN_CHAIN_RUNS and len(self.chain) > 1:
                missing[row] = MIN_CHAIN_RUNS - count
        return missing
