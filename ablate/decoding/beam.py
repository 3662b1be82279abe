"""Beam search with a length penalty (section 6.1; Wu et al., 2016, eq. 14).

Each sentence has K hypotheses. A step extends each by every token and ranks these candidates. If a
candidate among the best K has the end mark, it becomes a finished hypothesis. The best K candidates
without the end mark are the next hypotheses. A sentence is done, and leaves the batch,

- when no hypothesis can still exceed the score of the best finished one,
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
MAX_GROUP_SIZE = 128  # number of tokens


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: token ids without marks.
    score: log-probability divided by the length penalty.
    """

    tokens: list[int]
    score: float


def length_penalty(length: Tensor | int, alpha: float, form: LengthPenalty = "gnmt") -> Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^alpha of GNMT, or |Y|^alpha of fairseq. |Y| includes the end mark."""
    tokens = torch.as_tensor(length, dtype=torch.float32)
    return ((5.0 + tokens) / 6.0 if form == "gnmt" else tokens) ** alpha


def best_continuations(log_probs: Tensor, scores: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the n best continuations of the hypotheses of each sentence.

    The vocabulary is divided into groups. The n best tokens are in the n groups with the highest
    maxima, so only these groups are searched, in half the time of torch's topk over all tokens
    (benchmarks/LOG.md, 2026-11-21, decoding).

    Args:
        log_probs: log-probability of each token after each hypothesis (B, K, V).
        scores: log-probabilities of the hypotheses (B, K).
        n: number of continuations, at most K * V.

    Returns:
        (scores, hypotheses, tokens), each (B, n), the best first: the score of each continuation,
        the index of the hypothesis that it extends, and its last token.
    """
    B, K, V = log_probs.shape
    # The largest group size that divides the vocabulary and leaves at least n groups.
    sizes = range(1, MAX_GROUP_SIZE + 1)
    size = max(size for size in sizes if V % size == 0 and K * (V // size) >= n)
    groups = log_probs.view(B, K * (V // size), size)
    # The score of each group's hypothesis (B, groups), which is added to the maximum of the group:
    # adding it to all tokens would take a pass over (B, K, V).
    offsets = scores.repeat_interleave(V // size, 1)
    best_groups = (groups.amax(2) + offsets).topk(n).indices  # (B, n)
    members = groups.gather(1, best_groups[:, :, None].expand(-1, -1, size))  # (B, n, size)
    values, indices = (members + offsets.gather(1, best_groups)[:, :, None]).flatten(1).topk(n)
    # Indices into the flattened (K, V).
    flat = best_groups.gather(1, indices // size) * size + indices % size
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
        model: the model in eval mode.
        source: token ids (B, S), each sentence with EOS at its end, padded with 0.
        limits: largest number of tokens of each translation, without the end mark (B).
        beam: number of hypotheses of each sentence, K.
        alpha: exponent of the length penalty.
        early_stopping: whether the search for a sentence ends when K hypotheses have finished. With
            K = 1, it always does.
        constraint: restricts the next tokens of these sentences; None for no restriction.
        penalty: form of the length penalty.

    Returns:
        The best hypothesis of each sentence, in order.
    """
    lengths = partial(length_penalty, alpha=alpha, form=penalty)
    search = _Search(model, source, limits, beam, lengths, early_stopping, constraint)
    position = 0
    while len(search.sentences):
        search.step(position)
        position += 1
    return search.results()


class _Search:
    """The state of a beam search.

    Each row is a sentence that is not done, with its hypotheses. The best finished hypothesis is
    stored for every sentence. In each step, the host reads only one tensor (which sentences are
    done), because every read stalls a GPU.
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
        self.limits = limits.tolist()  # by row, on the host
        self.sentences = torch.arange(B, device=device)  # by row: index of the sentence
        self.largest_penalties = penalty(limits + 1).to(device)  # by row: penalty at the limit
        # The best finished hypothesis, by sentence
        longest = max(self.limits, default=0)
        self.best_tokens = torch.zeros((B, longest), dtype=torch.int64, device=device)
        self.best_lengths = torch.zeros(B, dtype=torch.int64, device=device)
        self.best_scores = torch.full((B,), IMPOSSIBLE, device=device)
        self.cache: DecodingCache = model.start(source, beam)
        # The hypotheses of each row: at first one with the begin mark, (B, 1, 1); after t steps K
        # with t tokens more, (B, K, 1 + t).
        self.tokens = torch.full((B, 1, 1), BOS, device=device)
        self.scores = torch.zeros((B, 1), device=device)  # log-probabilities
        self.n_finished = torch.zeros(B, dtype=torch.int64, device=device)  # by row

    def step(self, position: int) -> None:
        """Extend every hypothesis, of `position` tokens so far, by a token."""
        # At most K of the 2K best candidates have the end mark: one for each hypothesis.
        K = self.K
        scores, origins, tokens = self._candidates(position)
        ends = tokens == EOS
        self._finish(position, scores[:, :K], ends[:, :K], origins[:, :K])
        self._continue(scores.masked_fill(ends, IMPOSSIBLE), origins, tokens)
        if self.constraint is not None:
            self.constraint.advance(self.origins, self.tokens[:, :, -1])
        self._drop_done(position)

    def _candidates(self, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """The 2K best continuations of each row, or all if there are fewer.

        Returns the three tensors of `best_continuations`.
        """
        states = self.model.step(self.tokens[:, :, -1], self.cache)
        allowed = None
        if self.constraint is not None:
            allowed = self.constraint.allowed().to(states.device)
        # In chunks of rows, because logits are the largest tensor.
        chunk_size = max(1, LOGIT_CHUNK_TOKENS[states.device.type] // states.shape[1])
        chunks: list[tuple[Tensor, Tensor, Tensor]] = []
        for start in range(0, len(states), chunk_size):
            rows = slice(start, start + chunk_size)
            chunks.append(self._row_candidates(states[rows], rows, position, allowed))
        scores, origins, tokens = map(torch.cat, zip(*chunks, strict=True))
        return scores, origins, tokens

    def _row_candidates(
        self, states: Tensor, rows: slice, position: int, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of some rows.

        Args:
            states: decoder states of these rows (rows, K, d_model).
            rows: the rows.
            position: number of tokens so far.
            allowed: mask of the constraint for all rows (B, K, V); None without a constraint.
        """
        logits = self.model.logits(states).float()
        # In place, which makes a search 3 to 7 % faster (benchmarks/LOG.md, 2026-11-22, later).
        log_probs = torch.log_softmax(logits, -1, out=logits)
        # No translation has these marks, but the softmax gives them some probability.
        log_probs[:, :, PAD] = IMPOSSIBLE
        log_probs[:, :, BOS] = IMPOSSIBLE
        if allowed is not None and self.constraint is not None:
            log_probs = self.constraint.restrict(log_probs, allowed[rows])
        limited_rows = [row for row, limit in enumerate(self.limits[rows]) if limit == position]
        if limited_rows:
            limited = torch.tensor(limited_rows).to(logits.device)
            end = log_probs[limited, :, EOS]
            log_probs[limited] = IMPOSSIBLE
            log_probs[limited, :, EOS] = end
        count = min(2 * self.K, log_probs[0].numel())
        return best_continuations(log_probs, self.scores[rows], count)

    def _finish(self, position: int, scores: Tensor, ends: Tensor, origins: Tensor) -> None:
        """Count the finished hypotheses, and update the best of each sentence.

        Args:
            position: number of tokens of the hypotheses, without marks.
            scores: log-probabilities of the best K candidates (B, K).
            ends: whether each has the end mark (B, K).
            origins: index of the hypothesis that each extends (B, K).
        """
        # If fewer than 2K continuations are possible, the other candidates have the score -inf.
        ends = ends & (scores > IMPOSSIBLE)
        self.n_finished += ends.sum(1)
        normalized = (scores / self.penalty(position + 1)).masked_fill(~ends, IMPOSSIBLE)
        values, indices = normalized.max(1)
        old_values = self.best_scores.index_select(0, self.sentences)
        better = values > old_values
        self.best_scores.index_copy_(0, self.sentences, torch.where(better, values, old_values))
        lengths = self.best_lengths.index_select(0, self.sentences)
        self.best_lengths.index_copy_(0, self.sentences, lengths.masked_fill(better, position))
        hypotheses = origins.gather(1, indices[:, None])[:, :, None]  # (B, 1, 1)
        # (B, position), without BOS
        tokens = self.tokens.gather(1, hypotheses.expand(-1, -1, position + 1))[:, 0, 1:]
        best_tokens = self.best_tokens[:, :position]
        old_tokens = best_tokens.index_select(0, self.sentences)
        new_tokens = torch.where(better[:, None], tokens, old_tokens)
        best_tokens.index_copy_(0, self.sentences, new_tokens)

    def results(self) -> list[Hypothesis]:
        """The best hypothesis of every sentence."""
        tokens = self.best_tokens.tolist()
        scores = self.best_scores.tolist()
        hypotheses = []
        for i, length in enumerate(self.best_lengths.tolist()):
            hypotheses.append(Hypothesis(tokens[i][:length], scores[i]))
        return hypotheses

    def _continue(self, scores: Tensor, origins: Tensor, tokens: Tensor) -> None:
        """Make the best K candidates the hypotheses of the next step.

        Args:
            scores: log-probabilities of the candidates, -inf if they have the end mark (B, 2K).
            origins: index of the hypothesis that each extends (B, 2K).
            tokens: the token that each appends (B, 2K).
        """
        self.scores, best = scores.topk(min(self.K, scores.shape[1]))
        self.origins = origins.gather(1, best)  # (B, K)
        indices = self.origins[:, :, None].expand(-1, -1, self.tokens.shape[2])
        history = self.tokens.gather(1, indices)
        self.tokens = torch.cat([history, tokens.gather(1, best)[:, :, None]], dim=2)

    def _drop_done(self, position: int) -> None:
        """Drop the sentences that are done, and select the remaining hypotheses in the cache."""
        # An upper bound: log-probabilities only fall, and no penalty is larger than at the limit.
        attainable = self.scores[:, 0] / self.largest_penalties
        done = attainable <= self.best_scores.index_select(0, self.sentences)
        if self.ends_with_K_finished:
            done |= self.n_finished >= self.K
        rows = []
        for row, is_done in enumerate(done.tolist()):
            if not is_done and self.limits[row] > position:
                rows.append(row)
        dropping = len(rows) < len(self.limits)
        if not dropping and self.K == 1:  # the cache need not change
            return
        # By indices, because the host would have to read the size of a mask from the GPU.
        stay = torch.tensor(rows, dtype=torch.int64).to(self.sentences.device, non_blocking=True)
        self.cache.select(stay, self.origins)
        if dropping:
            if self.constraint is not None:
                self.constraint.select(rows)
            self.limits = [self.limits[row] for row in rows]
            self.sentences = self.sentences[stay]
            self.tokens = self.tokens[stay]
            self.scores = self.scores[stay]
            self.n_finished = self.n_finished[stay]
            self.largest_penalties = self.largest_penalties[stay]
