"""Beam search with a length penalty (section 6.1; Wu et al., 2016, eq. 14).

Each sentence has K hypotheses. A step orders all their continuations: those among the best K that
end the sentence are finished, and the best K of the others are kept. A sentence is done, and leaves
the batch,

- when no hypothesis can still beat the best finished one,
- at its length limit, where only the end mark is allowed,
- with early stopping, when K hypotheses have finished.

K = 1 is greedy search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ablate.config.decoding import LengthPenalty
from ablate.config.training import LOGIT_CHUNK_TOKENS
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.decoding.constraint import Constraint
from ablate.model import DecodingCache, Transformer

IMPOSSIBLE = float("-inf")
MAX_GROUP_SIZE = 128  # tokens


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: its tokens without marks, and its log-probability divided by the
    length penalty.
    """

    tokens: list[int]
    score: float


def length_penalty(length: Tensor | int, alpha: float, form: LengthPenalty = "gnmt") -> Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^alpha of GNMT, or |Y|^alpha of fairseq; the end mark counted in
    |Y|.
    """
    tokens = torch.as_tensor(length, dtype=torch.float32)
    return ((5.0 + tokens) / 6.0 if form == "gnmt" else tokens) ** alpha


def best_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the n best continuations of each sentence.

    Tokens are compared in groups first: the n best are within the n groups whose best tokens are
    the best. This takes half the time of torch's topk over all tokens (benchmarks/LOG.md,
    2026-11-21, decoding).

    Args:
        log_probs: log-probability of each token after each hypothesis (B, K, V).
        scores: log-probabilities of the hypotheses (B, K).
        n: number of continuations, at most K * V.

    Returns:
        (scores, hypotheses, tokens), each (B, n), the best first: the score of each continuation,
        the index of the hypothesis that it extends, and the token that it adds.
    """
    B, K, V = log_probs.shape
    # Groups must divide the vocabulary, and at least n of them are needed.
    sizes = range(1, MAX_GROUP_SIZE + 1)
    size = max(size for size in sizes if V % size == 0 and K * (V // size) >= n)
    groups = log_probs.view(B, K * (V // size), size)
    # The score of each group's hypothesis (B, groups). Added to the best of each group and not to
    # all tokens, which saves a pass over (B, K, V).
    offsets = scores.repeat_interleave(V // size, 1)
    chosen = (groups.amax(2) + offsets).topk(n).indices  # (B, n)
    inside = groups.gather(1, chosen[:, :, None].expand(-1, -1, size))
    values, indices = (inside + offsets.gather(1, chosen)[:, :, None]).flatten(1).topk(n)
    flat = chosen.gather(1, indices // size) * size + indices % size  # index into (K, V), flattened
    return values, flat // V, flat % V


@torch.no_grad()
def beam_search(
    model: Transformer,
    source: Tensor,
    limits: Tensor,
    beam: int,
    alpha: float,
    early_stopping: bool = False,
    constraint: Constraint | None = None,
    penalty: LengthPenalty = "gnmt",
) -> list[Hypothesis]:
    """Find the best translation of each sentence.

    Args:
        model: evaluating, not training.
        source: token ids (B, S), each sentence ended by EOS, padded with 0.
        limits: maximum number of tokens of each translation, without the end mark (B).
        beam: K.
        alpha: exponent of the length penalty.
        early_stopping: whether K finished hypotheses end a search; with K = 1 one does in any case.
        constraint: of these sentences; None: any token may follow.
        penalty: form of the length penalty.
    """
    lengths = partial(length_penalty, alpha=alpha, form=penalty)
    search = _Search(model, source, limits, beam, lengths, early_stopping, constraint)
    position = 0
    while len(search.sentences):
        search.step(position)
        position += 1
    return search.results()


class _Search:
    """The hypotheses of the sentences that are not done, and the best finished hypothesis of every
    sentence.

    The host reads one tensor a step, which sentences are done, because a GPU stops for each read.
    """

    def __init__(
        self,
        model: Transformer,
        source: Tensor,
        limits: Tensor,
        beam: int,
        penalty: Callable[[Tensor | int], Tensor],
        early_stopping: bool,
        constraint: Constraint | None,
    ) -> None:
        B = len(source)
        device = source.device
        self.constraint = constraint
        self.ends_with_K_finished = early_stopping or beam == 1
        self.model = model
        self.K = beam
        self.penalty = penalty
        self.limits = limits.tolist()  # of the sentence in each row, on the host
        self.sentences = torch.arange(B, device=device)  # index of the sentence in each row
        self.at_limit = penalty(limits + 1).to(device)  # the largest penalty that each can reach
        # The best finished hypothesis of every sentence, whether it is still in the batch or not.
        longest = max(self.limits, default=0)
        self.best_tokens = torch.zeros((B, longest), dtype=torch.int64, device=device)
        self.best_lengths = torch.zeros(B, dtype=torch.int64, device=device)
        self.best_scores = torch.full((B,), IMPOSSIBLE, device=device)
        self.cache: DecodingCache = model.start(source, beam)
        # (B, 1, then K, 1 + t): begin mark and tokens
        self.tokens = torch.full((B, 1, 1), BOS, device=device)
        self.scores = torch.zeros((B, 1), device=device)  # log-probabilities
        self.finished = torch.zeros(B, dtype=torch.int64, device=device)

    def step(self, position: int) -> None:
        """Extend every hypothesis, of `position` tokens so far, by a token."""
        # At most one continuation of each hypothesis ends it, so K of the 2K best do not end.
        K = self.K
        scores, origins, tokens = self._candidates(position)
        ends = tokens == EOS
        self._finish(position, scores[:, :K], ends[:, :K], origins[:, :K])
        self._keep_best(scores.masked_fill(ends, IMPOSSIBLE), origins, tokens)
        if self.constraint is not None:
            self.constraint.advance(self.origins, self.tokens[:, :, -1])
        self._drop_done(position)

    def _candidates(self, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """The 2K best continuations of each sentence, or all of fewer; as `best_continuations`."""
        states = self.model.step(self.tokens[:, :, -1], self.cache)
        at_once = max(1, LOGIT_CHUNK_TOKENS[states.device.type] // states.shape[1])  # sentences
        allowed = None
        if self.constraint is not None:
            allowed = self.constraint.allowed().to(states.device)
        best: list[tuple[Tensor, Tensor, Tensor]] = []
        for start in range(0, len(states), at_once):
            rows = slice(start, start + at_once)
            best.append(self._best(states[rows], rows, position, allowed))
        scores, origins, tokens = map(torch.cat, zip(*best, strict=True))
        return scores, origins, tokens

    def _best(
        self, states: Tensor, rows: slice, position: int, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of the sentences in `rows`, with last `states` (B, K, d_model).

        `allowed` is the mask of the constraint for all rows, (rows, K, V).
        """
        logits = self.model.logits(states).float()
        # In place, which makes a search 3 to 7 % faster (benchmarks/LOG.md, 2026-11-22, later).
        log_probs = torch.log_softmax(logits, -1, out=logits)
        # The softmax gives marks some probability, but no translation contains them.
        log_probs[:, :, PAD] = IMPOSSIBLE
        log_probs[:, :, BOS] = IMPOSSIBLE
        if allowed is not None and self.constraint is not None:
            log_probs = self.constraint.restrict(log_probs, allowed[rows])
        at_limit = [limit == position for limit in self.limits[rows]]
        if any(at_limit):
            last = torch.tensor(at_limit).nonzero()[:, 0].to(logits.device)  # found on the host
            end = log_probs[last, :, EOS]
            log_probs[last] = IMPOSSIBLE
            log_probs[last, :, EOS] = end
        count = min(2 * self.K, log_probs[0].numel())
        return best_continuations(log_probs, self.scores[rows], count)

    def _finish(self, position: int, scores: Tensor, ends: Tensor, origins: Tensor) -> None:
        """Finish the hypotheses among the best K candidates that end."""
        # With few possible continuations, impossible ones fill the 2K candidates.
        ends = ends & (scores > IMPOSSIBLE)
        self.finished += ends.sum(1)
        normalized = (scores / self.penalty(position + 1)).masked_fill(~ends, IMPOSSIBLE)
        values, which = normalized.max(1)
        before = self.best_scores.index_select(0, self.sentences)
        better = values > before
        self.best_scores.index_copy_(0, self.sentences, torch.where(better, values, before))
        lengths = self.best_lengths.index_select(0, self.sentences)
        self.best_lengths.index_copy_(0, self.sentences, lengths.masked_fill(better, position))
        chosen = origins.gather(1, which[:, None])[:, :, None]  # (B, 1, 1): the one that ends
        ended = self.tokens.gather(1, chosen.expand(-1, -1, position + 1))[:, 0, 1:]  # without BOS
        best = self.best_tokens[:, :position]
        kept = best.index_select(0, self.sentences)
        best.index_copy_(0, self.sentences, torch.where(better[:, None], ended, kept))

    def results(self) -> list[Hypothesis]:
        """The best hypothesis of every sentence."""
        tokens = self.best_tokens.tolist()
        scores = self.best_scores.tolist()
        hypotheses = []
        for i, length in enumerate(self.best_lengths.tolist()):
            hypotheses.append(Hypothesis(tokens[i][:length], scores[i]))
        return hypotheses

    def _keep_best(self, scores: Tensor, origins: Tensor, tokens: Tensor) -> None:
        """Keep the best K candidates that do not end."""
        self.scores, picked = scores.topk(min(self.K, scores.shape[1]))
        self.origins = origins.gather(1, picked)  # (B, K)
        origin = self.origins[:, :, None].expand(-1, -1, self.tokens.shape[2])
        history = self.tokens.gather(1, origin)
        self.tokens = torch.cat([history, tokens.gather(1, picked)[:, :, None]], dim=2)

    def _drop_done(self, position: int) -> None:
        """Drop the sentences that are done, and select the kept hypotheses in the cache."""
        # An upper bound: scores are negative and only fall, and the penalty is the largest.
        attainable = self.scores[:, 0] / self.at_limit
        done = attainable <= self.best_scores.index_select(0, self.sentences)
        if self.ends_with_K_finished:
            done |= self.finished >= self.K
        rows = []
        for row, is_done in enumerate(done.tolist()):
            if not is_done and self.limits[row] > position:
                rows.append(row)
        dropping = len(rows) < len(self.limits)
        if not dropping and self.K == 1:  # the order is unchanged
            return
        # By index and not by a mask, whose count would have to be read from the GPU once more.
        stay = torch.tensor(rows, dtype=torch.int64).to(self.sentences.device, non_blocking=True)
        self.cache.select(stay, self.origins)
        if dropping:
            if self.constraint is not None:
                self.constraint.keep(rows)
            self.limits = [self.limits[row] for row in rows]
            self.sentences = self.sentences[stay]
            self.tokens = self.tokens[stay]
            self.scores = self.scores[stay]
            self.finished = self.finished[stay]
            self.at_limit = self.at_limit[stay]
