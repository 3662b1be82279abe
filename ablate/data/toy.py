"""The toy corpus: a generated language pair that a correct small Transformer learns in seconds.

The source is simple English, such as `the tall dog near these rivers quickly feeds a crane`. The
target language is invented. Its grammar needs each part of a Transformer:

- word order: the verb comes last, adjectives and determiners follow their noun, prepositions follow
  their phrase, and only the order of the source separates subject and object;
- agreement over distance: the verb has the gender and number of a subject that may be several
  phrases away, and adjectives and determiners have the gender of their noun;
- context: some nouns have two translations, and the kind of verb decides between them.

Every source sentence has exactly one translation, so a perfect model scores 100 BLEU.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

SPLITS = {"train": 8000, "dev": 300, "test": 300}
SEED = 20170612  # the day the paper appeared
VERSION = 1  # raised when the sentences change; part of the id of prepared corpora
PIECES = 350  # pieces that a BPE vocabulary can have with any settings of this text


@dataclass(frozen=True)
class Noun:
    """A noun. `stem` is its translation, or a translation for each kind of verb."""

    word: str
    stem: str | tuple[str, str]
    gender: int  # 0 or 1; adjectives, determiners and verbs agree with it

    def translate(self, plural: bool, kind: int) -> str:
        """The noun in the target language, beside a verb of this kind."""
        stem = self.stem if isinstance(self.stem, str) else self.stem[kind]
        return stem + ("a", "o")[self.gender] + ("s" if plural else "")


_NOUNS = (
    Noun("dog", "kan", 0),
    Noun("cat", "fel", 1),
    Noun("king", "reg", 0),
    Noun("child", "nin", 1),
    Noun("river", "flum", 0),
    Noun("house", "dom", 1),
    Noun("tree", "arb", 0),
    Noun("boat", "nav", 1),
    Noun("road", "vij", 0),
    Noun("stone", "petr", 1),
    Noun("bird", "av", 0),
    Noun("horse", "kab", 1),
    Noun("teacher", "magist", 0),
    Noun("tower", "tur", 1),
    Noun("garden", "jard", 0),
    Noun("letter", "karter", 1),
    Noun("crane", ("gru", "elevil"), 0),
    Noun("bat", ("vespert", "klub"), 1),
    Noun("seal", ("fok", "sigil"), 0),
    Noun("mouse", ("mus", "klikil"), 1),
)
_ADJECTIVES = {
    "tall": "vet",
    "young": "jun",
    "red": "rub",
    "small": "parv",
    "big": "gran",
    "quiet": "kvet",
    "wet": "humid",
    "tired": "lac",
}
# Verbs with living objects (kind 0), and with things (kind 1): the kind decides the sense of some
# nouns.
_VERBS = (
    {"feed": "nutr", "chase": "kur", "hear": "aud", "love": "am"},
    {"buy": "kup", "repair": "fiks", "lift": "lev", "sell": "vend"},
)
_PREPOSITIONS = {"near": "prok", "behind": "post", "under": "sub"}
_ADVERBS = {"today": "hodie", "often": "saep", "quickly": "rapid", "never": "nunkv"}
_DETERMINERS = {"the": "l", "a": "un", "these": "est"}


class _Phrase(NamedTuple):
    """A noun phrase: its words in both languages, the tree of its source, and facts of its noun."""

    source: list[str]
    target: list[str]
    tree: str
    gender: int
    plural: bool


def _plural(word: str) -> str:
    return {"child": "children", "mouse": "mice"}.get(word, word + "s")


def generate() -> dict[str, list[tuple[str, str]]]:
    """Sentence pairs by split; each source sentence occurs once."""
    pairs = {}
    for split, sentences in _generate().items():
        pairs[split] = [(source, target) for source, target, _ in sentences]
    return pairs


def trees() -> dict[str, list[tuple[str, str]]]:
    """The source sentences and their linearized constituency trees with tags, by split."""
    pairs = {}
    for split, sentences in _generate().items():
        pairs[split] = [(source, tree) for source, _, tree in sentences]
    return pairs


def _generate() -> dict[str, list[tuple[str, str, str]]]:
    """(source, target, tree of the source) of each sentence, by split."""
    draw = random.Random(SEED)
    seen: set[str] = set()
    corpus = {}
    for split, size in SPLITS.items():
        sentences: list[tuple[str, str, str]] = []
        while len(sentences) < size:
            sentence = _sentence(draw)
            # A sentence occurs in one split only, so no test sentence was trained on.
            if sentence[0] not in seen:
                seen.add(sentence[0])
                sentences.append(sentence)
        corpus[split] = sentences
    return corpus


def _sentence(draw: random.Random) -> tuple[str, str, str]:
    """(source, target, tree of the source)."""
    kind = int(draw.random() < 0.5)
    verb = _pick(draw, list(_VERBS[kind]))
    subject = _noun_phrase(draw, kind)
    object = _noun_phrase(draw, kind)
    adverb = _pick(draw, list(_ADVERBS)) if draw.random() < 0.5 else None
    ending = ("a", "o")[subject.gender] + ("nt" if subject.plural else "t")
    source = [
        *subject.source,
        *([adverb] if adverb else []),
        verb if subject.plural else verb + "s",
        *object.source,
    ]
    target = [
        *subject.target,
        *object.target,
        *([_ADVERBS[adverb]] if adverb else []),
        _VERBS[kind][verb] + ending,
    ]
    adverb_tree = "(ADVP RB )ADVP " if adverb else ""
    tree = f"(S {subject.tree} {adverb_tree}(VP VB {object.tree} )VP )S"
    return " ".join(source), " ".join(target), tree


def _noun_phrase(draw: random.Random, kind: int) -> _Phrase:
    """A noun phrase, in 2 of 5 cases with a location: `the dog near a river`."""
    phrase = _plain_phrase(draw, kind)
    if draw.random() >= 0.4:
        return phrase
    preposition = _pick(draw, list(_PREPOSITIONS))
    location = _plain_phrase(draw, kind)
    return phrase._replace(
        source=[*phrase.source, preposition, *location.source],
        target=[*location.target, _PREPOSITIONS[preposition], *phrase.target],
        tree=f"(NP {phrase.tree} (PP IN {location.tree} )PP )NP",
    )


def _plain_phrase(draw: random.Random, kind: int) -> _Phrase:
    """A noun with its determiner and perhaps an adjective, beside a verb of this kind."""
    plural = draw.random() < 0.4
    determiner = _pick(draw, ["the", "these"] if plural else ["the", "a"])
    adjective = _pick(draw, list(_ADJECTIVES)) if draw.random() < 0.6 else None
    noun = _NOUNS[int(draw.random() * len(_NOUNS))]
    ending = ("a", "o")[noun.gender]
    return _Phrase(
        source=[
            determiner,
            *([adjective] if adjective else []),
            _plural(noun.word) if plural else noun.word,
        ],
        target=[
            noun.translate(plural, kind),
            *([_ADJECTIVES[adjective] + ending] if adjective else []),
            _DETERMINERS[determiner] + ending,
        ],
        tree="(NP DT JJ NN )NP" if adjective else "(NP DT NN )NP",
        gender=noun.gender,
        plural=plural,
    )


def _pick(draw: random.Random, words: list[str]) -> str:
    """One of the words, by `random()`, whose values are the same in all versions of Python."""
    return words[int(draw.random() * len(words))]
