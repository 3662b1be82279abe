"""Beam search with the GNMT length penalty (section 6.1; Wu et al., 2016, eq. 14).

Each sentence has K living hypotheses. A step ranks all their continuations; those among the best K
that end the sentence are finished, and the best K of the others live on. A sentence is done when K
hypotheses have finished, when none alive can still beat the best finished one, or at its length
limit, where only the end mark is allowed. Done sentences leave the batch. K = 1 is greedy search.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.config.training import LOGIT_ROWS
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.model import DecodingCache, Transformer

NEVER = float("-inf")
LARGEST_GROUP = 128  # tokens of which only the best is looked at first


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its tokens without marks, and its log-probability over the length penalty."""

    tokens: list[int]
    score: float


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^alpha, the end mark counted in |Y|."""
    return ((5.0 + torch.as_tensor(length, dtype=torch.float32)) / 6.0) ** alpha


def best_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """The n best continuations of each sentence: their scores, which hypothesis each extends, and by which token.

    They are within the n groups of tokens whose own best are the best, so all others are only compared
    once and the scores are added to few; torch's topk over all of them takes several times as long.

    Args:
        log_probs: of each token after each hypothesis (B, K, V).
        scores: of the hypotheses (B, K).
        n: at most K * V.

    Returns:
        (B, n), three times; the best first.
    """
    B, K, V = log_probs.shape
    size = max(size for size in range(1, LARGEST_GROUP + 1) if V % size == 0 and K * (V // size) >= n)
    groups = log_probs.view(B, K * (V // size), size)
    offsets = scores.repeat_interleave(V // size, 1)  # the score before each group
    chosen = (groups.amax(2) + offsets).topk(n).indices  # (B, n)
    inside = groups.gather(1, chosen[:, :, None].expand(-1, -1, size)) + offsets.gather(1, chosen)[:, :, None]
    values, which = inside.flatten(1).topk(n)
    places = chosen.gather(1, which // size) * size + which % size
    return values, places // V, places % V


@torch.no_grad()
def beam_search(model: Transformer, source: Tensor, limits: Tensor, beam: int, alpha: float) -> list[Hypothesis]:
    """The best translation found for each sentence.

    Args:
        model: evaluating, not training.
        source: token ids (B, S), each sentence ended by EOS, padded with 0.
        limits: tokens that each translation may have at most, without its end mark (B).
        beam: K.
        alpha: exponent of the length penalty.
    """
    search = _Search(model, source, limits, beam, alpha)
    position = 0
    while len(search.sentences):
        search.step(position)
        position += 1
    return search.best


class _Search:
    """The living hypotheses of the sentences that are not done, and the best finished one of all."""

    def __init__(self, model: Transformer, source: Tensor, limits: Tensor, beam: int, alpha: float) -> None:
        B, device = len(source), source.device
        self.model, self.K, self.alpha = model, beam, alpha
        self.best = [Hypothesis([], NEVER)] * B
        self.sentences = torch.arange(B, device=device)  # which sentence each row of the batch is
        self.limits = limits.to(device)
        self.cache: DecodingCache = model.start(source, beam)
        self.tokens = torch.full((B, 1, 1), BOS, device=device)  # (B, at most K, 1 + t): first, an empty one
        self.scores = torch.zeros((B, 1), device=device)  # log-probabilities
        self.best_scores = torch.full((B,), NEVER, device=device)
        self.finished = torch.zeros(B, dtype=torch.int64, device=device)

    def step(self, position: int) -> None:
        """Extend every living hypothesis by a token; `position` tokens stand before it."""
        # Of 2K candidates at most K end here, one a hypothesis, so K that live on are among them.
        K = self.K
        scores, origins, tokens = self._candidates(position)
        ends = tokens == EOS
        self._finish(position, scores[:, :K], ends[:, :K], origins[:, :K])
        self._live_on(scores.masked_fill(ends, NEVER), origins, tokens)
        self._leave(position)

    def _candidates(self, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """The 2K best continuations of each sentence, or all, as `best_continuations` has them."""
        states = self.model.step(self.tokens[:, :, -1], self.cache)
        at_once = max(1, LOGIT_ROWS[states.device.type] // states.shape[1])  # sentences
        parts = zip(states.split(at_once), self.scores.split(at_once), self.limits.split(at_once), strict=True)
        found = [self._best(part, scores, limits == position) for part, scores, limits in parts]
        scores, origins, tokens = (torch.cat(each) for each in zip(*found, strict=True))
        return scores, origins, tokens

    def _best(self, states: Tensor, scores: Tensor, at_limit: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same of some sentences, by states (B, K, d_model), scores (B, K), and who may only end (B)."""
        logits = self.model.logits(states).float()
        # In its place, which is 3 % of a search and more: each number is read a last time when it is written.
        log_probs = torch.log_softmax(logits, -1, out=logits)
        log_probs[:, :, PAD] = NEVER
        log_probs[:, :, BOS] = NEVER
        if bool(at_limit.any()):
            end = log_probs[at_limit, :, EOS]
            log_probs[at_limit] = NEVER
            log_probs[at_limit, :, EOS] = end
        return best_continuations(log_probs, scores, min(2 * self.K, log_probs[0].numel()))

    def _finish(self, position: int, scores: Tensor, ends: Tensor, origins: Tensor) -> None:
        """Take the hypotheses that end among the best K candidates."""
        ends = ends & (scores > NEVER)
        self.finished += ends.sum(1)
        normalised = (scores / length_penalty(position + 1, self.alpha)).masked_fill(~ends, NEVER)
        values, which = normalised.max(1)
        better = values > self.best_scores
        self.best_scores = torch.where(better, values, self.best_scores)
        for row in better.nonzero()[:, 0].tolist():
            tokens = self.tokens[row, origins[row, which[row]], 1:].tolist()
            self.best[int(self.sentences[row])] = Hypothesis(tokens, float(values[row]))

    def _live_on(self, scores: Tensor, origins: Tensor, tokens: Tensor) -> None:
        """Keep the best K candidates that have not ended."""
        self.scores, picked = scores.topk(min(self.K, scores.shape[1]))
        self.origins = origins.gather(1, picked)  # (B, K)
        history = self.tokens.gather(1, self.origins[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        self.tokens = torch.cat([history, tokens.gather(1, picked)[:, :, None]], dim=2)

    def _leave(self, position: int) -> None:
        """Drop the sentences that are done, and reorder the cache for the others."""
        hope = self.scores[:, 0] / length_penalty(self.limits + 1, self.alpha).to(self.scores.device)
        done = (self.finished >= self.K) | (hope <= self.best_scores) | (self.limits == position)
        stay = (~done).nonzero()[:, 0]
        if self.K > 1 or len(stay) < len(done):  # else everything stays where it is
            self.cache.select(stay, self.origins)
        if len(stay) < len(done):
            self.sentences, self.limits, self.tokens = self.sentences[stay], self.limits[stay], self.tokens[stay]
            self.scores, self.finished = self.scores[stay], self.finished[stay]
            self.best_scores = self.best_scores[stay]
