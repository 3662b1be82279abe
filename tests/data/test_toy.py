"""The toy corpus: generated once for all, and each claim of its docstring, read from the text
itself.
"""

import hashlib
import random
from types import SimpleNamespace

import pytest

from ablate.data import toy

# word of English: its translation without endings, and for a noun its gender.
NOUNS = {
    "dog": ("kan", "a"), "cat": ("fel", "o"), "king": ("reg", "a"), "child": ("nin", "o"), "river": ("flum", "a"),
    "house": ("dom", "o"), "tree": ("arb", "a"), "boat": ("nav", "o"), "road": ("vij", "a"), "stone": ("petr", "o"),
    "bird": ("av", "a"), "horse": ("kab", "o"), "teacher": ("magist", "a"), "tower": ("tur", "o"),
    "garden": ("jard", "a"), "letter": ("karter", "o"), "crane": ("gru|elevil", "a"), "bat": ("vespert|klub", "o"),
    "seal": ("fok|sigil", "a"), "mouse": ("mus|klikil", "o"),
}  # fmt: skip
PLURALS = {"children": "child", "mice": "mouse", **{f"{noun}s": noun for noun in NOUNS}}
ADJECTIVES = {
    "tall": "vet", "young": "jun", "red": "rub", "small": "parv", "big": "gran", "quiet": "kvet", "wet": "humid",
    "tired": "lac",
}  # fmt: skip
VERBS = {
    "feed": "nutr", "chase": "kur", "hear": "aud", "love": "am", "buy": "kup", "repair": "fiks", "lift": "lev",
    "sell": "vend",
}  # fmt: skip
OF_TOOLS = {"buy", "repair", "lift", "sell"}
PREPOSITIONS = {"near": "prok", "behind": "post", "under": "sub"}
ADVERBS = {"today": "hodie", "often": "saep", "quickly": "rapid", "never": "nunkv"}
DETERMINERS = {"the": "l", "a": "un", "these": "est"}

NOUN_STEMS = {stem for stems, _ in NOUNS.values() for stem in stems.split("|")}


@pytest.fixture(scope="module")
def corpus():
    return toy.generate()


@pytest.fixture(scope="module")
def pairs(corpus):
    return [pair for split in corpus.values() for pair in split]


def singular(word):
    return PLURALS.get(word, word)


def verb_at(words):
    """Index of the verb in an English sentence."""
    (place,) = (
        i for i, word in enumerate(words) if word in VERBS or word.removesuffix("s") in VERBS
    )
    return place


def kind_of(words):
    verb = words[verb_at(words)]
    return int((verb if verb in VERBS else verb.removesuffix("s")) in OF_TOOLS)


def translate(source):
    """The one translation of a source sentence, by the grammar of the docstring."""
    words = source.split()
    place, kind = verb_at(words), kind_of(words)
    adverb = words[place - 1] if words[place - 1] in ADVERBS else None
    verb = words[place]
    subject = words[: place - 1 if adverb else place]
    stem = VERBS[verb] if verb in VERBS else VERBS[verb.removesuffix("s")]
    agreeing = (
        stem + NOUNS[singular(head(subject))][1] + ("nt" if head(subject) in PLURALS else "t")
    )
    parts = [
        *_phrases(subject, kind),
        *_phrases(words[place + 1 :], kind),
        *([ADVERBS[adverb]] if adverb else []),
    ]
    return " ".join([*parts, agreeing])


def head(words):
    """The noun that a phrase is about: its first."""
    return next(word for word in words if singular(word) in NOUNS)


def _phrases(words, kind):
    for i, word in enumerate(words):
        if word in PREPOSITIONS:
            return [
                *_noun_phrase(words[i + 1 :], kind),
                PREPOSITIONS[word],
                *_noun_phrase(words[:i], kind),
            ]
    return _noun_phrase(words, kind)


def _noun_phrase(words, kind):
    determiner, *adjectives, noun = words
    stems, gender = NOUNS[singular(noun)]
    stem = stems.split("|")[kind if "|" in stems else 0]
    described = [ADJECTIVES[adjective] + gender for adjective in adjectives]
    return [
        stem + gender + ("s" if noun in PLURALS else ""),
        *described,
        DETERMINERS[determiner] + gender,
    ]


def test_the_toy_corpus_has_its_recorded_hash(corpus):
    # If the sentences change, toy.VERSION must change too: otherwise prepared corpora of the old
    # text are used.
    digest = hashlib.sha256()
    for split, pairs in corpus.items():
        for source, target in pairs:
            digest.update(f"{split}\t{source}\t{target}\n".encode())
    assert (toy.VERSION, digest.hexdigest()) == (
        1,
        "3376b2c218e084b4d98436232613cdebe25c44c4cc232aac24ef0542b32e0485",
    )


def test_only_random_is_called_whose_values_are_equal_in_every_python(corpus, monkeypatch):
    class RandomAlone:
        def __init__(self, seed):
            self.random = random.Random(seed).random

    monkeypatch.setattr(toy, "random", SimpleNamespace(Random=RandomAlone))
    assert toy.generate() == corpus


def test_every_source_sentence_is_unique_over_all_splits(pairs):
    assert len({source for source, _ in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("the dog hears a cat", "kana la felo uno audat"),
        ("the cats hear a dog", "felos lo kana una audont"),
        ("these tall children often sell the house", "ninos veto esto domo lo saep vendont"),
        ("the tall dog near these rivers quickly feeds a crane", "flumas esta prok kana veta la grua una rapid nutrat"),
        ("a mouse buys a mouse", "klikilo uno klikilo uno kupot"),
        ("a mouse loves a mouse", "muso uno muso uno amot"),
    ],
)  # fmt: skip
def test_the_reference_translator_agrees_with_translations_by_hand(source, target):
    assert translate(source) == target


def test_every_pair_follows_the_grammar(pairs):
    assert [target for _, target in pairs] == [translate(source) for source, _ in pairs]


def test_target_words_are_unambiguous(pairs):
    roles = {
        "noun": {f"{stem}{vowel}{s}" for stem in NOUN_STEMS for vowel in "ao" for s in ("", "s")},
        "adjective": {stem + vowel for stem in ADJECTIVES.values() for vowel in "ao"},
        "determiner": {stem + vowel for stem in DETERMINERS.values() for vowel in "ao"},
        "verb": {
            stem + vowel + end for stem in VERBS.values() for vowel in "ao" for end in ("t", "nt")
        },
        "other": {*PREPOSITIONS.values(), *ADVERBS.values()},
    }
    assert sum(map(len, roles.values())) == len(set().union(*roles.values()))
    assert {word for _, target in pairs for word in target.split()} <= set().union(*roles.values())


def test_the_verb_agrees_with_a_distant_subject(pairs):
    parted = misled = 0
    for source, target in pairs:
        words = source.split()
        subject = head(words)
        vowel, plural = NOUNS[singular(subject)][1], subject in PLURALS
        assert target.endswith(vowel + ("nt" if plural else "t"))
        assert target.endswith("nt") == (words[verb_at(words)] in VERBS)
        before_the_verb = [word for word in target.split() if word.rstrip("s")[:-1] in NOUN_STEMS]
        parted += len(before_the_verb) > 1
        last = before_the_verb[-1]
        misled += (last.rstrip("s")[-1], last.endswith("s")) != (vowel, plural)
    assert parted == len(pairs)
    assert misled > len(pairs) / 2  # agreement with the nearest noun is wrong more often than right
