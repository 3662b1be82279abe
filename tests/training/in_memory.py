"""Corpora from lists of token ids, without text, tokenizer or files."""

from types import SimpleNamespace

from tests.data.small import split_of


def corpus_of(pairs, vocab_size):
    """The part of a corpus that a Trainer uses; every split holds these (source ids, target
    ids).
    """
    return SimpleNamespace(
        split=lambda name: split_of_pairs(pairs), tokenizer=SimpleNamespace(vocab_size=vocab_size)
    )


def split_of_pairs(pairs):
    """A split of these (source ids, target ids)."""
    return split_of(*zip(*pairs, strict=True))
