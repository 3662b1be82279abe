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

SPLITS = {"train": 8000, "dev": 300, "test": 300}
SEED = 20170612  # the day the paper appeared
VERSION = 1  # raised when the sentences change; part of the id of prepared corpora
PIECES = 350  # of a BPE vocabulary that every form of this text has


@dataclass(frozen=True)
class Noun:
    """A noun; `stem` is its translation, or one for each kind of verb if it is ambiguous."""

    word: str
    stem: str | tuple[str, str]
    gender: int  # 0 or 1; adjectives, determiners and verbs of the target agree with it

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
# Verbs with living objects, and with things: the kind decides the sense of some nouns.
_VERBS = (
    {"feed": "nutr", "chase": "kur", "hear": "aud", "love": "am"},
    {"buy": "kup", "repair": "fiks", "lift": "lev", "sell": "vend"},
)
_PREPOSITIONS = {"near": "prok", "behind": "post", "under": "sub"}
_ADVERBS = {"today": "hodie", "often": "saep", "quickly": "rapid", "never": "nunkv"}
_DETERMINERS = {"the": "l", "a": "un", "these": "est"}


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase, in both languages."""

    noun: Noun
    plural: bool
    determiner: str
    adjective: str | None

    def source(self) -> list[str]:
        noun = self.noun.word if not self.plural else _plural(self.noun.word)
        return [self.determiner, *([self.adjective] if self.adjective else []), noun]

    def target(self, kind: int) -> list[str]:
        ending = ("a", "o")[self.noun.gender]
        adjective = [_ADJECTIVES[self.adjective] + ending] if self.adjective else []
        return [
            self.noun.translate(self.plural, kind),
            *adjective,
            _DETERMINERS[self.determiner] + ending,
        ]


def _plural(word: str) -> str:
    return {"child": "children", "mouse": "mice"}.get(word, word + "s")


def generate() -> dict[str, list[tuple[str, str]]]:
    """Sentence pairs by split; each source sentence occurs once."""
    draw = random.Random(SEED)
    seen: set[str] = set()
    corpus: dict[str, list[tuple[str, str]]] = {}
    for split, size in SPLITS.items():
        pairs: list[tuple[str, str]] = []
        while len(pairs) < size:
            source, target = _sentence(draw)
            # A sentence occurs in one split only, so no test sentence was trained on.
            if source not in seen:
                seen.add(source)
                pairs.append((source, target))
        corpus[split] = pairs
    return corpus


def _sentence(draw: random.Random) -> tuple[str, str]:
    kind = int(draw.random() < 0.5)
    verb = _pick(draw, list(_VERBS[kind]))
    subject, source_subject, target_subject = _noun_phrase(draw, kind)
    _, source_object, target_object = _noun_phrase(draw, kind)
    adverb = _pick(draw, list(_ADVERBS)) if draw.random() < 0.5 else None
    agreeing = (
        _VERBS[kind][verb] + ("a", "o")[subject.noun.gender] + ("nt" if subject.plural else "t")
    )
    source = [
        *source_subject,
        *([adverb] if adverb else []),
        verb if subject.plural else verb + "s",
        *source_object,
    ]
    target = [*target_subject, *target_object, *([_ADVERBS[adverb]] if adverb else []), agreeing]
    return " ".join(source), " ".join(target)


def _noun_phrase(draw: random.Random, kind: int) -> tuple[_Phrase, list[str], list[str]]:
    """A noun phrase, in 2 of 5 cases with a location, `the dog near a river`; and its words."""
    phrase = _phrase(draw)
    if draw.random() >= 0.4:
        return phrase, phrase.source(), phrase.target(kind)
    preposition = _pick(draw, list(_PREPOSITIONS))
    location = _phrase(draw)
    source = [*phrase.source(), preposition, *location.source()]
    target = [*location.target(kind), _PREPOSITIONS[preposition], *phrase.target(kind)]
    return phrase, source, target


def _phrase(draw: random.Random) -> _Phrase:
    plural = draw.random() < 0.4
    determiner = _pick(draw, ["the", "these"] if plural else ["the", "a"])
    adjective = _pick(draw, list(_ADJECTIVES)) if draw.random() < 0.6 else None
    return _Phrase(_NOUNS[int(draw.random() * len(_NOUNS))], plural, determiner, adjective)


def _pick(draw: random.Random, words: list[str]) -> str:
    """One of the words, by `random()`, whose values do not depend on Python's version."""
    return words[int(draw.random() * len(words))]


def trees() -> dict[str, list[tuple[str, str]]]:
    """The source sentences and their linearized constituency trees with tags, by split."""
    corpus = {}
    for split, pairs in generate().items():
        corpus[split] = [(source, _tree(source.split())) for source, _ in pairs]
    return corpus


def _tree(words: list[str]) -> str:
    """`(S (NP DT NN )NP (VP VB (NP DT NN )NP )VP )S`, with the phrases that the sentence has."""
    end, subject = _noun_phrase_tree(words, 0)
    adverb = "(ADVP RB )ADVP " if words[end] in _ADVERBS else ""
    verb = end + bool(adverb)
    _, object = _noun_phrase_tree(words, verb + 1)
    return f"(S {subject} {adverb}(VP VB {object} )VP )S"


def _noun_phrase_tree(words: list[str], start: int) -> tuple[int, str]:
    """The tree of the noun phrase that begins at a word, and the index of the word after it."""
    end, phrase = _phrase_tree(words, start)
    if end == len(words) or words[end] not in _PREPOSITIONS:
        return end, phrase
    end, location = _phrase_tree(words, end + 1)
    return end, f"(NP {phrase} (PP IN {location} )PP )NP"


def _phrase_tree(words: list[str], start: int) -> tuple[int, str]:
    if words[start + 1] in _ADJECTIVES:
        return start + 3, "(NP DT JJ NN )NP"
    return start + 2, "(NP DT NN )NP"
