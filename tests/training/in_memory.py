"""Corpora from lists of token ids, without text, tokenizer or files."""

from types import SimpleNamespace

import numpy as np

from ablate.data.corpus import Split, TokenSequences


def corpus_of(pairs, vocab_size):
    """The part of a corpus that a Trainer uses; every split holds these (source ids, target
    ids).
    """
    return SimpleNamespace(
        split=lambda name: split_of(pairs), tokenizer=SimpleNamespace(vocab_size=vocab_size)
    )


def split_of(pairs):
    """A split of these (source ids, target ids)."""
    return Split(
        {
            field: _sequences([pair[side] for pair in pairs])
            for side, field in enumerate(("source", "target"))
        }
    )


def _sequences(sentences):
    offsets = np.cumsum([0, *map(len, sentences)])
    return TokenSequences(
        np.array([token for sentence in sentences for token in sentence], dtype=np.uint32), offsets
    )
