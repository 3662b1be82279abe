"""A gate for a stream of proposals, each tried on top of what has been kept.

A proposal is run again until the evidence for a gain of SMALLEST standard deviations over seeds is
1 / level, and it is kept, or at most DROP, and it is dropped (Wald's sequential ratio of
likelihoods). The level grows with what has been kept: LORD++ with all of its wealth spread evenly
over a stream of PROPOSALS. The noise of a run is estimated from all rows together. After a keep the
proposal is the new chain, and only its further runs, which nobody has selected, are its scores.
benchmarks/streams.py measures how often a keep is false, and the share of the gains that is found.

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

SMALLEST = 0.6
DROP = 0.3
PROPOSALS = 100
RUNS_OF_CHAIN = 24  # the chain's least number of runs, and at least that of a proposal
MOST_RUNS = 200  # of a proposal, which is then dropped

State = Literal["kept", "dropped", "open", "of an earlier chain", "untested"]


def level(kept: int) -> float:
    """The level of a proposal that is begun after so many keeps."""
    return LEVEL / PROPOSALS * max(1, kept)


def log_evidence(difference: float, n: float, of_chain: float) -> float:
    """Logarithm of the ratio of likelihoods: a gain of SMALLEST against none.

    Args:
        difference: of the means, in standard deviations; positive is better.
        n: runs of the proposal.
        of_chain: runs of the chain.
    """
    information = 1 / (1 / n + 1 / of_chain)
    return SMALLEST * information * (difference - SMALLEST / 2)


@dataclass
class Proposal:
    """A change that was tried.

    level: of its keep.
    scores: of its runs; for what was kept, of those until then.
    difference: from the chain when it was decided, by chance too high for what was kept.
    """

    name: str
    level: float
    scores: list[float] = field(default_factory=list)
    state: State = "open"
    difference: float | None = None


class Stream:
    """The runs of a stream in their order.

    Attributes:
        chain: base, and what has been kept, in order.
        proposals: by name.
        ignored: number of runs of proposals that had been decided, or are not tested.
    """

    def __init__(self, base: str, more_is_better: bool) -> None:
        self.chain, self.proposals, self.ignored = [base], dict[str, Proposal](), 0
        self._sign = 1.0 if more_is_better else -1.0
        self._of_chain: list[float] = []
        # Of the chain and of base since the last run of a proposal, so that no choice knew them.
        self._fresh: dict[str, list[float]] = {}
        self._earlier: list[list[float]] = []  # scores of earlier chains

    def add(self, row: str, score: float) -> None:
        """Add a run: of the chain, of base, or of a proposal; not finite if it diverged."""
        if row in (self.chain[0], self.chain[-1]):
            self._fresh.setdefault(row, []).append(score)
            if row == self.chain[-1]:
                self._of_chain.append(score)
        else:
            self._fresh = {}
            new = Proposal(row, level(len(self.chain) - 1))
            if len(self.proposals) >= PROPOSALS:  # which have spent the level
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
        n, sd = len(proposal.scores), self.sd
        if not math.isfinite(sum(proposal.scores)):
            proposal.state = "dropped"
        elif self.runs_missing(proposal) == 0 and sd:
            chain = statistics.fmean(self._of_chain)
            difference = statistics.fmean(proposal.scores) - chain
            evidence = log_evidence(self._sign * difference / sd, n, len(self._of_chain))
            if evidence >= -math.log(proposal.level):
                self._keep(proposal)
            elif evidence <= math.log(DROP) or n >= MOST_RUNS:
                proposal.state = "dropped"
            proposal.difference = difference

    def _keep(self, kept: Proposal) -> None:
        for proposal in self.proposals.values():
            if proposal.state == "open":
                proposal.state = "of an earlier chain"
        kept.state = "kept"
        self.chain.append(kept.name)
        self._earlier.append(self._of_chain)
        self._of_chain = []

    @property
    def sd(self) -> float:
        """Standard deviation of a score over seeds, which all rows share; 0 if unknown."""
        of_proposals = [proposal.scores for proposal in self.proposals.values()]
        df, squares = 0, 0.0
        for scores in (self._of_chain, *self._earlier, *of_proposals):
            if len(scores) > 1 and math.isfinite(sum(scores)):
                df += len(scores) - 1
                squares += (len(scores) - 1) * statistics.variance(scores)
        return math.sqrt(squares / max(1, df))

    def runs_missing(self, proposal: Proposal) -> int:
        """Runs of the chain that are needed before a proposal with these runs can be decided."""
        return max(0, max(RUNS_OF_CHAIN, len(proposal.scores)) - len(self._of_chain))

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """What the chain has gained over base, with its 95 % interval: by runs since the last one
        of a proposal, which no choice has favored. None without RUNS_OF_CHAIN of both.
        """
        if len(self.chain) == 1 or self.runs_last:
            return None
        base, chain = self._fresh[self.chain[0]], self._fresh[self.chain[-1]]
        gain, df = statistics.fmean(chain) - statistics.fmean(base), len(chain) + len(base) - 2
        half = critical_t(LEVEL, df) * self.sd * math.sqrt(1 / len(chain) + 1 / len(base))
        return gain, gain - half, gain + half

    @property
    def runs_next(self) -> dict[str, int]:
        """Runs that open proposals need before they can be decided, or tried again, by row."""
        runs: dict[str, int] = {}
        for proposal in self.proposals.values():
            if proposal.state == "open":
                missing = self.runs_missing(proposal)
                row = self.chain[-1] if missing else proposal.name
                runs[row] = max(runs.get(row, 0), missing, 1)
        return runs

    @property
    def runs_last(self) -> dict[str, int]:
        """Runs that say what the chain has gained, after those of all proposals, by row."""
        missing = {}
        for row in (self.chain[0], self.chain[-1]):
            count = len(self._fresh.get(row, ()))
            if count < RUNS_OF_CHAIN and len(self.chain) > 1:
                missing[row] = RUNS_OF_CHAIN - count
        return missing
