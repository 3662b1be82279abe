"""Scores of translations by sacreBLEU, each with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ablate.config.languages import (
    WORDS,
    extra_of,
    has_asian_words,
    is_installed,
)
from ablate.errors import StoreError
from ablate.metrics import resampling
from ablate.stats.metrics import BREVITY_PENALTY, CHANCE_SCORE, EXACT, TRANSLATION_METRICS
from ablate.store.records import Measurement


class Target(NamedTuple):
    """The target language of translations, and sacreBLEU's tokenizer of their BLEU."""

    language: str
    tokenizer: str


ENGLISH = Target("en", WORDS)


def measure_translations(
    name: str, hypotheses: Sequence[str], references: Sequence[str], target: Target = ENGLISH
) -> Measurement:
    """Score detokenized text against one reference for each sentence, with sacreBLEU's defaults for
    the target language.

    Returns:
        The corpus score (0 to 100; TER may exceed that), its signature, and scores on resampled
        test sets; also the share of exact translations, the score by chance and, of BLEU, the
        brevity penalty.

    Raises:
        StoreError: the tokenizer is not installed.
    """
    metric = _metric(name, target)
    # sacrebleu.significance uses the same two functions. Its public functions return p-values only,
    # and compare single systems, not means over seeds.
    statistics = _statistics(metric, hypotheses, references)
    score_of = metric._compute_score_from_stats
    metric.num_refs = 1  # part of the signature; the functions above do not set it
    signature = str(metric.get_signature())
    measured = resampling.measure(statistics, lambda sums: score_of(sums).score, signature)
    pairs = zip(hypotheses, references, strict=True)
    exact = sum(ours.strip() == theirs.strip() for ours, theirs in pairs)
    worst = 100.0 if name == "ter" else 0.0
    parts = {EXACT.name: exact / len(references), CHANCE_SCORE.name: worst}
    if of_others := _of_others(hypotheses, references):
        sums = _statistics(metric, *of_others).sum(0)
        parts[CHANCE_SCORE.name] = float(score_of(sums).score)
    if name == "bleu":
        parts[BREVITY_PENALTY.name] = float(score_of(statistics.sum(0)).bp)
    return measured.model_copy(update={"parts": parts})


def sentence_scores(
    name: str, hypotheses: Sequence[str], references: Sequence[str], target: Target = ENGLISH
) -> list[float]:
    """Score each sentence alone; BLEU by the n-gram orders that the sentence is long enough for."""
    metric = _metric(name, target, effective_order=True)
    scores = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scores.append(float(metric.sentence_score(hypothesis, [reference]).score))
    return scores


def _of_others(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[str]] | None:
    """Each hypothesis with the next reference, where that is another text; None if none is."""
    following = [*references[1:], *references[:1]]
    pairs = []
    for ours, own, other in zip(hypotheses, references, following, strict=True):
        if own != other:
            pairs.append((ours, other))
    if not pairs:
        return None
    texts, others = zip(*pairs, strict=True)
    return list(texts), list(others)


def tokenized(texts: Sequence[str], target: Target) -> list[list[str]]:
    """The tokens of texts, as BLEU counts them."""
    tokenizer = _metric("bleu", target).tokenizer
    return [str(tokenizer(text.rstrip())).split() for text in texts]


def _statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Any:
    of_items = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(of_items, np.float64)


def _metric(name: str, target: Target, effective_order: bool = False) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu" and not is_installed(target.tokenizer):
        raise StoreError(
            f"BLEU by {target.tokenizer}: its tokenizer is not installed; "
            f"pip install '{extra_of(target.tokenizer)}'"
        )
    tokenizer = target.tokenizer
    # `asian_support` has an effect only where text is normalized.
    is_asian = has_asian_words(target.language)
    makers: dict[str, Any] = {
        # force: no warning about text that seems tokenized
        "bleu": lambda: BLEU(force=True, effective_order=effective_order, tokenize=tokenizer),
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": lambda: TER(normalized=is_asian, asian_support=is_asian),
    }
    assert makers.keys() == {metric.name for metric in TRANSLATION_METRICS}
    return makers[name]()
