"""The constraint of well-formed trees: every walk through it ends in a tree, and every tree is a
walk through it.
"""

import random

import pytest
import torch

from ablate.config.parsing_data import ParsingData
from ablate.data.tokenizer import EOS, UNK
from ablate.data.trees import leaves_of, linearized, restored
from ablate.data.vocabulary import train_tokenizer
from ablate.decoding import beam_search
from ablate.decoding.tree_constraint import TreeVocabulary
from tests.data.random_trees import LABELS, random_tree
from tests.model.small import diverse_model

BRACKETS = [f"{side}{label}" for label in LABELS for side in "()"]
SYMBOLS = {"XX": ["XX"], "tags": ["XX/NN", "XX/DT"], "words": []}


@pytest.fixture(scope="module", params=list(SYMBOLS))
def leaves(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(leaves):
    """Words of several pieces, and the symbols of trees."""
    draw = random.Random(3)
    texts = [" ".join(leaf.word for leaf in random_tree(draw, 25).leaves()) for _ in range(300)]
    return train_tokenizer(texts, 45, symbols=[*BRACKETS, *SYMBOLS[leaves]])


def sample(draw, words=12):
    tree = random_tree(draw, words)
    sentence = " ".join(leaf.word for leaf in tree.leaves())
    return tree, sentence


def follow(constraint, choose):
    """The tokens of one hypothesis for one sentence, each chosen among those that are allowed."""
    tokens = []
    while True:
        (allowed,) = constraint.allowed()[0, :1]
        token = choose(allowed.nonzero()[:, 0].tolist())
        if token == EOS:
            return tokens
        tokens.append(token)
        constraint.advance(torch.tensor([[0]]), torch.tensor([[token]]))


@pytest.mark.parametrize("extra", [0, 1, 2, 7, 60])
def test_every_walk_ends_in_a_well_formed_tree_within_the_limit(tokenizer, leaves, extra):
    vocabulary, draw = TreeVocabulary(tokenizer, leaves == "words"), random.Random(extra)
    for _ in range(60):
        tree, sentence = sample(draw)
        (source,) = tokenizer.encode([sentence])
        constraint = vocabulary.constraint([source], [len(source) + extra])
        tokens = follow(constraint, draw.choice)
        assert len(tokens) <= len(source) + extra
        (text,) = tokenizer.decode([tokens])
        assert restored(text, list(tree.leaves())) is not None


def test_every_tree_is_allowed(tokenizer, leaves):
    vocabulary, draw = TreeVocabulary(tokenizer, leaves == "words"), random.Random(5)
    data = ParsingData.model_construct(leaves=leaves)
    for _ in range(200):
        tree, sentence = sample(draw)
        if leaves == "tags":  # the vocabulary has two of them
            linear = " ".join(
                part if part[0] in "()" else "NN" for part in linearized(tree).split()
            )
        else:
            linear = linearized(tree)
        source, target = tokenizer.encode(list(data.encoded((sentence, linear))))
        constraint = vocabulary.constraint([source], [len(target)])
        rest = iter([*target, EOS])

        def given(allowed):
            token = next(rest)  # noqa: B023
            assert token in allowed
            return token

        assert follow(constraint, given) == target


def test_a_search_with_random_weights_finds_trees_only(tokenizer, leaves):
    vocabulary, draw = TreeVocabulary(tokenizer, leaves == "words"), random.Random(7)
    model = diverse_model(tokenizer.vocab_size, max_positions=97)
    samples = [sample(draw, 6) for _ in range(8)]
    sources = tokenizer.encode([sentence for _, sentence in samples])
    for beam in (1, 3):
        limits = [len(source) + 12 for source in sources]
        constraint = vocabulary.constraint(sources, limits)
        padded = torch.zeros((8, max(map(len, sources)) + 1), dtype=torch.int64)
        for row, source in zip(padded, sources, strict=True):
            row[: len(source) + 1] = torch.tensor([*source, EOS])
        found = beam_search(model, padded, torch.tensor(limits), beam, 0.6, False, constraint)
        texts = tokenizer.decode([hypothesis.tokens for hypothesis in found])
        for text, (tree, sentence) in zip(texts, samples, strict=True):
            assert restored(text, leaves_of(linearized(tree), sentence)) is not None


def test_a_known_word_has_the_probability_of_any_word(tokenizer, leaves):
    """Before the first word: the words of XX and tags keep their own, copied words have that of all
    together.
    """
    vocabulary, draw = TreeVocabulary(tokenizer, leaves == "words"), random.Random(9)
    _, sentence = sample(draw)
    (source,) = tokenizer.encode([sentence])
    constraint = vocabulary.constraint([source], [60])
    log_probs = torch.randn(
        (1, 1, tokenizer.vocab_size), generator=torch.Generator().manual_seed(1)
    ).log_softmax(-1)
    allowed = constraint.allowed()
    found = constraint.restrict(log_probs.clone(), allowed)[0, 0]
    assert found.isinf().tolist() == (~allowed[0, 0]).tolist()
    brackets = [
        id for id in range(tokenizer.vocab_size) if tokenizer.pieces([id])[0][1:2] in ("(", ")")
    ]
    assert all(found[id] in (log_probs[0, 0, id], float("-inf")) for id in brackets)
    if leaves == "words":
        others = [id for id in range(4, tokenizer.vocab_size) if id not in brackets]
        assert float(found[source[0]].exp()) == pytest.approx(
            float(log_probs[0, 0, others].exp().sum()), rel=1e-5
        )
    else:
        words = [id for id in vocabulary.word_symbols if allowed[0, 0, id]]
        assert words
        assert all(found[id] == log_probs[0, 0, id] for id in words)


def test_an_unknown_character_of_a_copied_word_has_the_probability_of_any_word(tokenizer):
    vocabulary = TreeVocabulary(tokenizer, copies_words=True)
    known, unknown = (
        vocabulary.constraint([[token]], [9]) for token in (tokenizer.vocab_size - 1, UNK)
    )
    log_probs = torch.zeros((1, 1, tokenizer.vocab_size))
    log_probs[..., UNK] = -50.0  # never seen in training
    first = known.restrict(log_probs, known.allowed())[0, 0, tokenizer.vocab_size - 1]
    everything = torch.ones_like(log_probs, dtype=torch.bool)
    assert (
        unknown.restrict(log_probs, everything)[0, 0, UNK]
        == unknown.restrict(log_probs, everything)[0, 0].max()
    )
    assert first == unknown.restrict(log_probs, everything)[0, 0, UNK]
