"""Beam search with a length penalty (section 6.1; Wu et al., 2016, eq. 14).

Each sentence has K hypotheses. A step extends each by every token and ranks these candidates. If a
candidate among the best K has the end mark, it becomes a finished hypothesis. The best K candidates
without the end mark are the next hypotheses. A sentence is done, and leaves the batch, when one of
these conditions holds:

- No hypothesis can still exceed the score of the best finished hypothesis.
- All hypotheses have the largest length, at which only the end mark is allowed.
- K hypotheses have finished, and early stopping is set.

K = 1 is greedy search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from ablate.config.decoding import LengthPenalty
from ablate.config.training import LOGIT_CHUNK_TOKENS
from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.decoding.constraint import Constraint
from ablate.decoding.continuations import best_continuations
from ablate.model import DecodingCache, Transformer

IMPOSSIBLE = float("-inf")


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
    base = (5.0 + tokens) / 6.0 if form == "gnmt" else tokens
    return base**alpha


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
        source: token ids (B, S), each sentence with EOS at its end, padded with PAD.
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
    penalty_at = partial(length_penalty, alpha=alpha, form=penalty)
    search = _Search(model, source, limits, beam, penalty_at, early_stopping, constraint)
    while len(search.rows.sentences):
        search.step()
    return search.results()


@dataclass
class _Rows:
    """Sentences with their hypotheses. Each row of a tensor is a sentence.

    sentences: index of the sentence in the batch (B).
    largest_penalties: length penalty at the length limit (B).
    tokens: hypotheses, each with the begin mark; K = 1 before the first step (B, K, 1 + tokens).
    scores: log-probabilities of the hypotheses (B, K).
    n_finished: number of finished hypotheses (B).
    best_tokens: tokens of the best finished hypothesis, without marks (B, largest limit).
    best_lengths: number of its tokens (B).
    best_scores: its score, -inf if no hypothesis has finished (B).
    """

    sentences: Tensor
    largest_penalties: Tensor
    tokens: Tensor
    scores: Tensor
    n_finished: Tensor
    best_tokens: Tensor
    best_lengths: Tensor
    best_scores: Tensor

    def select(self, rows: Tensor) -> _Rows:
        """The rows with these indices."""
        return _Rows(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


class _Search:
    """The state of a beam search.

    In each step, the host reads only one tensor (which sentences are done), because every read
    stalls a GPU.

    Attributes:
        rows: the sentences that are not done. Axis 0 of all tensors of a step, B, is these rows.
        limits: largest number of tokens of each row, on the host.
        done: the rows that left in each step.
    """

    def __init__(
        self,
        model: Transformer,
        source: Tensor,
        limits: Tensor,
        beam: int,
        penalty_at: Callable[[Tensor | int], Tensor],
        early_stopping: bool,
        constraint: Constraint | None,
    ) -> None:
        B = len(source)
        device = source.device
        self.constraint = constraint
        self.ends_with_K_finished = early_stopping or beam == 1
        self.model = model
        self.K = beam
        self.penalty_at = penalty_at
        self.cache: DecodingCache = model.start(source, beam)
        self.limits: list[int] = limits.tolist()
        longest = max(self.limits, default=0)
        self.rows = _Rows(
            sentences=torch.arange(B, device=device),
            largest_penalties=penalty_at(limits + 1).to(device),
            tokens=torch.full((B, 1, 1), BOS, device=device),
            scores=torch.zeros((B, 1), device=device),
            n_finished=torch.zeros(B, dtype=torch.int64, device=device),
            best_tokens=torch.zeros((B, longest), dtype=torch.int64, device=device),
            best_lengths=torch.zeros(B, dtype=torch.int64, device=device),
            best_scores=torch.full((B,), IMPOSSIBLE, device=device),
        )
        self.done: list[_Rows] = []

    @property
    def n_tokens(self) -> int:
        """Number of tokens of each hypothesis, without the begin mark."""
        return self.rows.tokens.shape[2] - 1

    def step(self) -> None:
        """Extend every hypothesis by a token."""
        # At most K of the 2K best candidates have the end mark: one for each hypothesis.
        K = self.K
        scores, origins, tokens = self._candidates()
        ends = tokens == EOS
        self._finish(scores[:, :K], ends[:, :K], origins[:, :K])
        origins = self._continue(scores.masked_fill(ends, IMPOSSIBLE), origins, tokens)
        if self.constraint is not None:
            self.constraint.advance(origins, self.rows.tokens[:, :, -1])
        self._drop_done(origins)

    def _candidates(self) -> tuple[Tensor, Tensor, Tensor]:
        """The 2K best continuations of each row, or all if there are fewer.

        Returns the three tensors of `best_continuations`.
        """
        states = self.model.step(self.rows.tokens[:, :, -1], self.cache)
        allowed = None
        if self.constraint is not None:
            allowed = self.constraint.allowed().to(states.device)
        # In chunks of rows, because logits are the largest tensor.
        chunk_size = max(1, LOGIT_CHUNK_TOKENS[states.device.type] // states.shape[1])
        chunks: list[tuple[Tensor, Tensor, Tensor]] = []
        for start in range(0, len(states), chunk_size):
            rows = slice(start, start + chunk_size)
            chunks.append(self._row_candidates(states[rows], rows, allowed))
        scores, origins, tokens = map(torch.cat, zip(*chunks, strict=True))
        return scores, origins, tokens

    def _row_candidates(
        self, states: Tensor, rows: slice, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations of some rows.

        Args:
            states: decoder states of these rows (rows, K, d_model).
            rows: the rows.
            allowed: mask of the constraint for all rows (B, K, V); None without a constraint.
        """
        logits = self.model.logits(states).float()
        # In place, which makes a search 3 to 7 % faster (benchmarks/LOG.md, 2026-11-22, later).
        log_probs = torch.log_softmax(logits, -1, out=logits)
        # No translation has these marks, but the softmax gives them some probability.
        log_probs[:, :, PAD] = IMPOSSIBLE
        log_probs[:, :, BOS] = IMPOSSIBLE
        if self.constraint is not None:
            assert allowed is not None
            log_probs = self.constraint.restrict(log_probs, allowed[rows])
        limits = self.limits[rows]
        limited_rows = [row for row, limit in enumerate(limits) if limit == self.n_tokens]
        if limited_rows:
            limited = torch.tensor(limited_rows).to(logits.device)
            end = log_probs[limited, :, EOS]
            log_probs[limited] = IMPOSSIBLE
            log_probs[limited, :, EOS] = end
        count = min(2 * self.K, log_probs[0].numel())
        return best_continuations(log_probs, self.rows.scores[rows], count)

    def _finish(self, scores: Tensor, ends: Tensor, origins: Tensor) -> None:
        """Count the finished hypotheses, and update the best hypothesis of each row.

        Args:
            scores: log-probabilities of the best K candidates (B, K).
            ends: whether each has the end mark (B, K).
            origins: index of the hypothesis that each extends (B, K).
        """
        rows = self.rows
        # If fewer than 2K continuations are possible, the other candidates have the score -inf.
        ends = ends & (scores > IMPOSSIBLE)
        rows.n_finished += ends.sum(1)
        normalized = scores / self.penalty_at(self.n_tokens + 1)
        values, indices = normalized.masked_fill(~ends, IMPOSSIBLE).max(1)
        better = values > rows.best_scores
        rows.best_scores = torch.where(better, values, rows.best_scores)
        rows.best_lengths = rows.best_lengths.masked_fill(better, self.n_tokens)
        hypotheses = origins.gather(1, indices[:, None])[:, :, None]  # (B, 1, 1)
        # (B, n_tokens), without BOS
        tokens = rows.tokens.gather(1, hypotheses.expand(-1, -1, rows.tokens.shape[2]))[:, 0, 1:]
        best_tokens = rows.best_tokens[:, : self.n_tokens]
        best_tokens.copy_(torch.where(better[:, None], tokens, best_tokens))

    def _continue(self, scores: Tensor, origins: Tensor, tokens: Tensor) -> Tensor:
        """Make the best K candidates the hypotheses of the next step.

        Args:
            scores: log-probabilities of the candidates, -inf if they have the end mark (B, 2K).
            origins: index of the hypothesis that each extends (B, 2K).
            tokens: the token that each appends (B, 2K).

        Returns:
            Index of the old hypothesis that each new hypothesis extends (B, K).
        """
        rows = self.rows
        rows.scores, best = scores.topk(min(self.K, scores.shape[1]))
        origins = origins.gather(1, best)
        indices = origins[:, :, None].expand(-1, -1, rows.tokens.shape[2])
        history = rows.tokens.gather(1, indices)
        rows.tokens = torch.cat([history, tokens.gather(1, best)[:, :, None]], dim=2)
        return origins

    def _drop_done(self, origins: Tensor) -> None:
        """Drop the sentences that are done, and select the remaining hypotheses in the cache.

        Args:
            origins: index of the old hypothesis that each hypothesis extends (B, K).
        """
        # An upper bound: log-probabilities only fall, and no penalty is larger than at the limit,
        # because alpha is not negative.
        attainable = self.rows.scores[:, 0] / self.rows.largest_penalties
        done = attainable <= self.rows.best_scores
        if self.ends_with_K_finished:
            done |= self.rows.n_finished >= self.K
        stay, leave = [], []
        for row, is_done in enumerate(done.tolist()):
            if is_done or self.n_tokens > self.limits[row]:
                leave.append(row)
            else:
                stay.append(row)
        if not leave and self.K == 1:  # the cache need not change
            return
        # By indices, because the host would have to read the size of a mask from the GPU.
        staying = self._on_device(stay)
        self.cache.select(staying, origins)
        if leave:
            if self.constraint is not None:
                self.constraint.select(stay)
            self.limits = [self.limits[row] for row in stay]
            self.done.append(self.rows.select(self._on_device(leave)))
            self.rows = self.rows.select(staying)

    def _on_device(self, rows: list[int]) -> Tensor:
        indices = torch.tensor(rows, dtype=torch.int64)
        return indices.to(self.rows.sentences.device, non_blocking=True)

    def results(self) -> list[Hypothesis]:
        """The best hypothesis of every sentence of the batch, after the last step."""
        hypotheses: dict[int, Hypothesis] = {}
        for rows in self.done:
            tokens = rows.best_tokens.tolist()
            lengths = rows.best_lengths.tolist()
            scores = rows.best_scores.tolist()
            for i, sentence in enumerate(rows.sentences.tolist()):
                hypotheses[sentence] = Hypothesis(tokens[i][: lengths[i]], scores[i])
        return [hypotheses[sentence] for sentence in range(len(hypotheses))]
