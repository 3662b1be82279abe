"""Beam search among well-formed trees: brackets that close, and as many words as the sentence."""

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
    """A hypothesis: what closes its open brackets, its tokens of words, its last kind of token."""

    closing: tuple[int, ...] = ()
    done: int = 0
    after_opening: bool = False


@dataclass(frozen=True)
class _Words:
    """The words of a sentence, token by token.

    needed: the next token after so many others; None: the symbol of any word.
    begins: whether it begins a word; true after the last one, where none is needed.
    """

    needed: tuple[int | None, ...]
    begins: tuple[bool, ...]


class TreeVocabulary:
    """The symbols of trees in a vocabulary. Makes the constraint of each batch."""

    def __init__(self, tokenizer: Tokenizer, copies_words: bool = False) -> None:
        """Find the symbols.

        Args:
            tokenizer: of sentences and trees.
            copies_words: whether trees have the words in the places of their symbols.
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
        # The tokens of words, if trees have them.
        self.copied = torch.zeros(len(self.pieces), dtype=torch.bool)
        if copies_words:
            self.copied[EOS + 1 :] = True
            self.copied[list(self.brackets)] = False

    def constraint(
        self, sentences: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> TreeConstraint:
        """The constraint for sentences of token ids, with a limit of tokens for each tree."""
        return TreeConstraint(self, [self._words(sentence) for sentence in sentences], limits)

    def _words(self, sentence: Sequence[int]) -> _Words:
        begins = [self.pieces[id].startswith(SPACE) for id in sentence]
        if self.copies_words:
            return _Words(tuple(sentence), (*begins, True))
        return _Words((None,) * sum(begins), (True,) * (sum(begins) + 1))


class TreeConstraint:
    """Tokens that may follow each hypothesis, so that every finished one is a well-formed tree.

    At least one may follow every hypothesis of positive probability.
    """

    def __init__(
        self, vocabulary: TreeVocabulary, words: Sequence[_Words], limits: Sequence[int]
    ) -> None:
        """Start with an empty hypothesis for each sentence.

        Args:
            vocabulary: of the symbols.
            words: of each sentence.
            limits: the largest number of tokens for each tree; a limit below that of the words
                leaves no tree.
        """
        self.vocabulary = vocabulary
        self.words = list(words)
        self.states = [[_State()] for _ in words]
        self.left = list(limits)
        self._masks: dict[tuple[int | None, bool, int], Tensor] = {}

    def allowed(self) -> Tensor:
        """A mask of the tokens that may follow (B, K, V), true where they may."""
        masks = []
        for states, words, left in zip(self.states, self.words, self.left, strict=True):
            masks.append(torch.stack([self._allowed(state, words, left) for state in states]))
        return torch.stack(masks)

    def restrict(self, log_probs: Tensor, allowed: Tensor) -> Tensor:
        """Log-probabilities of tokens (B, K, V) that may follow; -inf for the others.

        Where trees have the words, which are known, the next word has the probability that any word
        comes next. Its own probability would make brackets seem likely before a rare word (Stern et
        al., 2017).
        """
        copied = self.vocabulary.copied.to(log_probs.device)
        of_words = log_probs.masked_fill(~copied, float("-inf"))
        any_word = of_words.logsumexp(-1, keepdim=True)  # (B, K, 1)
        # The unknown token is no part of the sum: it has no probability of its own in training.
        known = copied.clone()
        known[UNK] = self.vocabulary.copies_words
        return torch.where(known, any_word, log_probs).masked_fill(~allowed, float("-inf"))

    def _allowed(self, state: _State, words: _Words, left: int) -> Tensor:
        missing = len(words.needed) - state.done
        word = words.needed[state.done] if missing > 0 else _NONE
        if not words.begins[min(state.done, len(words.needed))]:
            return self._mask(word, False, _NONE)  # within a word
        # A token of a word and an open bracket still take a token each; a new bracket takes two.
        depth = len(state.closing)
        opens = missing > 0 and left >= missing + depth + 2 and depth < MAX_DEPTH
        end = _NONE
        if state.closing and not state.after_opening:
            end = state.closing[-1]
        elif not state.closing and missing == 0:
            end = EOS
        return self._mask(word, opens, end)

    def _mask(self, word: int | None, opens: bool, end: int) -> Tensor:
        """The mask of a word's token (None: any word's symbol), opening brackets, and an end."""
        key = word, opens, end
        if key not in self._masks:
            tokens = {end}
            if word is None:
                tokens |= self.vocabulary.word_symbols
            else:
                tokens.add(word)
            if opens:
                tokens.update(self.vocabulary.closing_of)
            mask = torch.zeros(len(self.vocabulary.pieces), dtype=torch.bool)
            mask[list(tokens - {_NONE})] = True
            self._masks[key] = mask
        return self._masks[key]

    def advance(self, origins: Tensor, tokens: Tensor) -> None:
        """Replace the hypotheses by continuations.

        Args:
            origins: index of the hypothesis that each one continues (B, K).
            tokens: the token that it adds (B, K).
        """
        pairs = torch.stack([origins, tokens], dim=-1).tolist()
        for sentence, states in enumerate(self.states):
            self.states[sentence] = [self._after(states[i], token) for i, token in pairs[sentence]]
            self.left[sentence] -= 1

    def _after(self, state: _State, token: int) -> _State:
        if token in self.vocabulary.closing_of:
            closing = (*state.closing, self.vocabulary.closing_of[token])
            return _State(closing, state.done, after_opening=True)
        if token in self.vocabulary.brackets or token == EOS:
            return _State(state.closing[:-1], state.done)
        return _State(state.closing, state.done + 1)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep the sentences of these rows."""
        self.states = [self.states[row] for row in rows]
        self.words = [self.words[row] for row in rows]
        self.left = [self.left[row] for row in rows]
