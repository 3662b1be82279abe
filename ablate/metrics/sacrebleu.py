"""Scores of translations by sacreBLEU, with signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ablate.config.languages import WORDS, extra_of, has_asian_words, is_installed
from ablate.errors import StoreError
from ablate.metrics import resampling
from ablate.stats.metrics import BREVITY_PENALTY, CHANCE_SCORE, EXACT, METRICS, TRANSLATION_METRICS
from ablate.store.records import Measurement


class Target(NamedTuple):
    """The target language of translations, and sacreBLEU's tokenizer for BLEU."""

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
        test sets. Its parts are the share of exact translations, the score by chance (of each
        hypothesis against the reference of another sentence) and BLEU's brevity penalty.

    Raises:
        StoreError: the tokenizer is not installed.
    """
    metric = _metric(name, target)
    # sacrebleu.significance uses these two functions too. Its public functions only return p values
    # of two systems, and no means over seeds.
    statistics = _statistics(metric, hypotheses, references)
    compute_score = metric._compute_score_from_stats
    definition = METRICS[name]
    metric.num_refs = 1  # for the signature; the functions above do not set it
    signature = str(metric.get_signature())
    measurement = resampling.measure(
        statistics, lambda sums: definition.without_excess(compute_score(sums).score), signature
    )
    exact = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        exact += hypothesis.strip() == reference.strip()
    parts = {
        EXACT.name: exact / len(references),
        CHANCE_SCORE.name: 100.0 if name == "ter" else 0.0,
    }
    if mismatched := _mismatched_pairs(hypotheses, references):
        sums = _statistics(metric, *mismatched).sum(0)
        parts[CHANCE_SCORE.name] = float(compute_score(sums).score)
    if name == "bleu":
        parts[BREVITY_PENALTY.name] = float(compute_score(statistics.sum(0)).bp)
    return measurement.model_copy(update={"parts": parts})


def sentence_scores(
    name: str, hypotheses: Sequence[str], references: Sequence[str], target: Target = ENGLISH
) -> list[float]:
    """Score each sentence; BLEU uses only n-gram orders for which the sentence is long enough."""
    metric = _metric(name, target, effective_order=True)
    scores = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scores.append(float(metric.sentence_score(hypothesis, [reference]).score))
    return scores


def _mismatched_pairs(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[str]] | None:
    """Pair hypotheses with the reference of the next sentence, without sentences whose next
    reference is the same; None if no pair is left.
    """
    next_references = [*references[1:], *references[:1]]
    mismatched_hypotheses = []
    mismatched_references = []
    rows = zip(hypotheses, references, next_references, strict=True)
    for hypothesis, reference, next_reference in rows:
        if reference != next_reference:
            mismatched_hypotheses.append(hypothesis)
            mismatched_references.append(next_reference)
    if not mismatched_hypotheses:
        return None
    return mismatched_hypotheses, mismatched_references


def tokenized(texts: Sequence[str], target: Target) -> list[list[str]]:
    """Tokenize texts as BLEU does."""
    tokenizer = _metric("bleu", target).tokenizer
    return [str(tokenizer(text.rstrip())).split() for text in texts]


def _statistics(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Any:
    """The statistics of each sentence, (n_sentences, n_statistics)."""
    statistics = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.array(statistics, np.float64)


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
    is_asian = has_asian_words(target.language)
    makers: dict[str, Any] = {
        # force turns off a warning about text that seems to be tokenized.
        "bleu": lambda: BLEU(force=True, effective_order=effective_order, tokenize=tokenizer),
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": lambda: TER(normalized=is_asian, asian_support=is_asian),
    }
    assert makers.keys() == {metric.name for metric in TRANSLATION_METRICS}
    return makers[name]()
