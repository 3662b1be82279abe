"""Restrict beam search to well-formed trees: all brackets close, and each word occurs once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.config.parsing_data import is_word_symbol
from ablate.data.tokenizer import EOS, SPACE, UNK, Tokenizer
from ablate.data.trees import MAX_DEPTH

_NONE = -1  # no token


@dataclass(frozen=True)
class _State:
    """The state of a hypothesis.

    closing: the closing token of each open bracket, the innermost last.
    n_words: tokens of words so far.
    is_empty_bracket: whether the last token opened a bracket.
    """

    closing: tuple[int, ...] = ()
    n_words: int = 0
    is_empty_bracket: bool = False


@dataclass(frozen=True)
class _Words:
    """The tokens of words in the tree of a sentence.

    tokens: the tokens in order; None for a symbol that stands for any word.
    begins: whether each token begins a word; a last value, True, follows the tokens.
    """

    tokens: tuple[int | None, ...]
    begins: tuple[bool, ...]


class TreeVocabulary:
    """The brackets and words in a vocabulary; makes the constraint of each batch."""

    def __init__(self, tokenizer: Tokenizer, copies_words: bool = False) -> None:
        """Find the symbols.

        Args:
            tokenizer: the tokenizer of sentences and trees.
            copies_words: whether trees contain the words of the sentence; otherwise they contain a
                symbol for each word.
        """
        self.copies_words = copies_words
        self.pieces = tokenizer.pieces(list(range(tokenizer.vocab_size)))
        symbols = {}
        for id, piece in enumerate(self.pieces):
            if piece.startswith(SPACE):
                symbols[piece.removeprefix(SPACE)] = id
        self.word_symbols: set[int] = set()
        self.closing_of: dict[int, int] = {}
        for symbol, id in symbols.items():
            closing = f"){symbol[1:]}"
            if symbol.startswith("(") and closing in symbols:
                self.closing_of[id] = symbols[closing]
            elif is_word_symbol(symbol) and not copies_words:
                self.word_symbols.add(id)
        self.brackets = {*self.closing_of, *self.closing_of.values()}
        # True at the tokens of words, if trees contain them.
        self.is_word = torch.zeros(len(self.pieces), dtype=torch.bool)
        if copies_words:
            self.is_word[EOS + 1 :] = True
            self.is_word[list(self.brackets)] = False

    def constraint(
        self, sentences: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> TreeConstraint:
        """The constraint for sentences of token ids, with a limit on the tokens of each tree."""
        return TreeConstraint(self, [self._words(sentence) for sentence in sentences], limits)

    def _words(self, sentence: Sequence[int]) -> _Words:
        begins = [self.pieces[id].startswith(SPACE) for id in sentence]
        if self.copies_words:
            return _Words(tuple(sentence), (*begins, True))
        return _Words((None,) * sum(begins), (True,) * (sum(begins) + 1))


class TreeConstraint:
    """Says which tokens may follow a hypothesis, so that finished hypotheses are well-formed trees.

    At least one token may follow every hypothesis with a positive probability.
    """

    def __init__(
        self, vocabulary: TreeVocabulary, words: Sequence[_Words], limits: Sequence[int]
    ) -> None:
        """Start with an empty hypothesis for each sentence.

        Args:
            vocabulary: brackets and words.
            words: the tokens of words of each sentence.
            limits: the largest number of tokens of each tree. A sentence whose limit is too small
                for its words has no tree.
        """
        self.vocabulary = vocabulary
        self.words = list(words)
        self.states = [[_State()] for _ in words]
        self.tokens_left = list(limits)
        self._masks: dict[tuple[int | None, bool, int], Tensor] = {}

    def allowed(self) -> Tensor:
        """A mask (B, K, V), true at the tokens that may follow each hypothesis."""
        masks = []
        rows = zip(self.states, self.words, self.tokens_left, strict=True)
        for states, words, tokens_left in rows:
            row_masks = [self._allowed(state, words, tokens_left) for state in states]
            masks.append(torch.stack(row_masks))
        return torch.stack(masks)

    def restrict(self, log_probs: Tensor, allowed: Tensor) -> Tensor:
        """Log-probabilities (B, K, V), with -inf for tokens that may not follow.

        If trees contain the words, the next word is known, and gets the probability that any word
        follows. With its probability, which is low for a rare word, brackets before it would seem
        likely (Stern et al., 2017).
        """
        is_word = self.vocabulary.is_word.to(log_probs.device)
        word_log_probs = log_probs.masked_fill(~is_word, float("-inf"))
        any_word = word_log_probs.logsumexp(-1, keepdim=True)  # (B, K, 1)
        # The unknown token may be a word, but is not in the sum, because it is never trained.
        may_be_word = is_word.clone()
        may_be_word[UNK] = self.vocabulary.copies_words
        return torch.where(may_be_word, any_word, log_probs).masked_fill(~allowed, float("-inf"))

    def _allowed(self, state: _State, words: _Words, tokens_left: int) -> Tensor:
        """A mask (V,) of the tokens that may follow a hypothesis."""
        missing = len(words.tokens) - state.n_words
        word = words.tokens[state.n_words] if missing > 0 else _NONE
        if not words.begins[min(state.n_words, len(words.tokens))]:
            return self._mask(word, False, _NONE)  # within a word
        # Each missing word and each open bracket needs one token, and a new bracket two.
        depth = len(state.closing)
        can_open = missing > 0 and tokens_left >= missing + depth + 2 and depth < MAX_DEPTH
        end = _NONE
        if state.closing and not state.is_empty_bracket:
            end = state.closing[-1]
        elif not state.closing and missing == 0:
            end = EOS
        return self._mask(word, can_open, end)

    def _mask(self, word: int | None, can_open: bool, end: int) -> Tensor:
        """A mask (V,) that allows some tokens.

        Args:
            word: the next token of a word; None for the symbol of any word, _NONE for no word.
            can_open: whether opening brackets are allowed.
            end: a closing bracket or the end mark; _NONE for neither.
        """
        key = word, can_open, end
        if key not in self._masks:
            tokens = {end}
            if word is None:
                tokens |= self.vocabulary.word_symbols
            else:
                tokens.add(word)
            if can_open:
                tokens.update(self.vocabulary.closing_of)
            mask = torch.zeros(len(self.vocabulary.pieces), dtype=torch.bool)
            mask[list(tokens - {_NONE})] = True
            self._masks[key] = mask
        return self._masks[key]

    def advance(self, origins: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by continuations; see `Constraint.advance`."""
        pairs = torch.stack([origins, tokens], dim=-1).tolist()
        for sentence, states in enumerate(self.states):
            self.states[sentence] = [self._next(states[i], token) for i, token in pairs[sentence]]
            self.tokens_left[sentence] -= 1

    def _next(self, state: _State, token: int) -> _State:
        """The state after a token."""
        if token in self.vocabulary.closing_of:
            closing = (*state.closing, self.vocabulary.closing_of[token])
            return _State(closing, state.n_words, is_empty_bracket=True)
        if token in self.vocabulary.brackets or token == EOS:
            return _State(state.closing[:-1], state.n_words)
        return _State(state.closing, state.n_words + 1)

    def select(self, rows: Sequence[int]) -> None:
        """Keep only the sentences of these rows."""
        self.states = [self.states[row] for row in rows]
        self.words = [self.words[row] for row in rows]
        self.tokens_left = [self.tokens_left[row] for row in rows]
