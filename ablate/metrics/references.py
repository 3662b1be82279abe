"""Warn if the references of a test set do not suit a metric that counts words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.config.languages import (
    SPACELESS,
    extra_of,
    has_asian_words,
    preferred_tokenizer,
    usable_tokenizer,
)
from ablate.formatting import number, percent
from ablate.metrics.sacrebleu import Target, tokenized
from ablate.stats.metrics import CannotJudge

ORDER = 4  # length of BLEU's longest n-grams
LARGE_SHARE = 0.3
LONG_WORDS = 15  # characters per token; German has 6, Finnish 8
_REMEDY = "metrics: [chrf] counts characters"


def notes(references: Sequence[str], target: Target, metrics: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each reason why references do not suit a metric."""
    if "bleu" in metrics:
        yield from _bleu_notes(references, target)
    if _share_without_spaces(references) < LARGE_SHARE:
        return
    word_metrics = [name for name in ("chrf++", "ter") if name in metrics]
    if "ter" in word_metrics and has_asian_words(target.language):
        word_metrics.remove("ter")
    for name in word_metrics:
        note = (
            f"{name} counts words between spaces, which the references of test "
            f"({target.language}) hardly have; {_REMEDY}"
        )
        # chrF++ counts characters too.
        yield CannotJudge(note) if name == "ter" else note


def _bleu_notes(references: Sequence[str], target: Target) -> Iterator[str]:
    language, tokenizer = target
    preferred = preferred_tokenizer(language)
    if tokenizer == usable_tokenizer(language) != preferred:
        yield (
            f"BLEU of {language} is by tok:{tokenizer}: {preferred}, which divides {language} into "
            f"words, is not installed; pip install '{extra_of(preferred)}', and use another "
            f"--results"
        )
    # Tokenizers divide words further, and never join them, so most text needs no sacreBLEU here.
    lengths = [len(text.split()) for text in references]
    if not _are_clearly_words(references, lengths):
        lengths = [len(tokens) for tokens in tokenized(references, target)]
    characters = sum(len("".join(text.split())) for text in references)
    characters_per_token = characters / max(1, sum(lengths))
    share = _share_without_spaces(references)
    has_few_spaces = tokenizer in ("13a", "intl") and share >= LARGE_SHARE
    if has_few_spaces or characters_per_token > LONG_WORDS:
        reason = f"{number(characters_per_token, 1)} characters to a token"
        if has_few_spaces:
            reason += f", and {percent(share)} of them of scripts without spaces"
        yield CannotJudge(
            f"BLEU cannot judge the references of test ({language}), which tok:{tokenizer} divides "
            f"into {reason}: set data.bleu_tokenizer to zh, ja-mecab, ko-mecab or char; or "
            f"{_REMEDY}"
        )
    short = sum(length < ORDER for length in lengths) / len(lengths)
    if short >= LARGE_SHARE:
        yield (
            f"{percent(short)} of the references of test ({language}) have fewer than {ORDER} "
            f"tokens, and so no {ORDER}-gram for BLEU to count: a translation that is exact adds "
            f"nothing; {_REMEDY}"
        )


def _are_clearly_words(references: Sequence[str], lengths: Sequence[int]) -> bool:
    """Whether no note can follow from the words between spaces, whose numbers are `lengths`."""
    characters = sum(len("".join(text.split())) for text in references)
    return (
        _share_without_spaces(references) < LARGE_SHARE
        and characters <= LONG_WORDS * sum(lengths)
        and sum(length < ORDER for length in lengths) < LARGE_SHARE * len(lengths)
    )


def _share_without_spaces(references: Sequence[str]) -> float:
    """The share of letters that belong to scripts without spaces."""
    letters = 0
    letters_without_spaces = 0
    for text in references:
        letters += sum(map(str.isalpha, text))
        matches = "".join(SPACELESS.findall(text))
        letters_without_spaces += sum(map(str.isalpha, matches))
    return letters_without_spaces / max(1, letters)
