"""Whether metrics of words can judge the references of a test set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.config.languages import (
    WITHOUT_SPACES,
    extra_of,
    has_asian_words,
    preferred_tokenizer,
    usable_tokenizer,
)
from ablate.formatting import number, percent
from ablate.metrics.sacrebleu import Target, tokenized

ORDER = 4  # of the longest n-grams of BLEU
LARGE_SHARE = 0.3
LONG_WORDS = 15  # characters to a token; German has 6, Finnish 8
_REMEDY = "metrics: [chrf] counts characters"


def notes(references: Sequence[str], target: Target, metrics: Sequence[str]) -> Iterator[str]:
    """Yield a note on each reason why one of the metrics cannot judge translations of these texts.

    Args:
        references: of the test set.
        target: their language, and the tokenizer of BLEU.
        metrics: names of the study's metrics.
    """
    if "bleu" in metrics:
        yield from _on_bleu(references, target)
    if _share_without_spaces(references) < LARGE_SHARE:
        return
    of_words = [name for name in ("chrf++", "ter") if name in metrics]
    if "ter" in of_words and has_asian_words(target.language):
        of_words.remove("ter")
    for name in of_words:
        yield (
            f"{name} counts words between spaces, which the references of test "
            f"({target.language}) hardly have; {_REMEDY}"
        )


def _on_bleu(references: Sequence[str], target: Target) -> Iterator[str]:
    language, tokenizer = target
    preferred = preferred_tokenizer(language)
    if tokenizer == usable_tokenizer(language) != preferred:
        yield (
            f"BLEU of {language} is by tok:{tokenizer}: {preferred}, which divides {language} into "
            f"words, is not installed; pip install '{extra_of(preferred)}', and use another "
            f"--results"
        )
    lengths = [len(tokens) for tokens in tokenized(references, target)]
    characters = sum(len("".join(text.split())) for text in references)
    per_token = characters / max(1, sum(lengths))
    without_spaces = _share_without_spaces(references)
    has_few_spaces = tokenizer in ("13a", "intl") and without_spaces >= LARGE_SHARE
    if has_few_spaces or per_token > LONG_WORDS:
        why = f"{number(per_token, 1)} characters to a token"
        if has_few_spaces:
            why += f", and {percent(without_spaces)} of them of scripts without spaces"
        yield (
            f"BLEU cannot judge the references of test ({language}), which tok:{tokenizer} divides "
            f"into {why}: set data.bleu_tokenizer to zh, ja-mecab, ko-mecab or char; or "
            f"{_REMEDY}"
        )
    short = sum(length < ORDER for length in lengths) / len(lengths)
    if short >= LARGE_SHARE:
        yield (
            f"{percent(short)} of the references of test ({language}) have fewer than {ORDER} "
            f"tokens, and so no {ORDER}-gram for BLEU to count: a translation that is exact adds "
            f"nothing; {_REMEDY}"
        )


def _share_without_spaces(references: Sequence[str]) -> float:
    """The share of letters that belong to scripts without spaces."""
    letters = sum(character.isalpha() for text in references for character in text)
    found = sum(
        character.isalpha()
        for text in references
        for character in "".join(WITHOUT_SPACES.findall(text))
    )
    return found / max(1, letters)
