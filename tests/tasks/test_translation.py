"""Translation: target tokens of batches whose sentences have several lengths."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
import torch

from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData
from ablate.tasks import Translation
from tests.data.small import split_of

TASK = Translation()
# Target lengths with the end mark: 3, 8, 1 and 5.
SPLIT = split_of([[5, 6], [7] * 9, [8], [9] * 4], [[10, 11], [12] * 7, [], [13] * 4])


def test_target_tokens_are_counted_without_padding():
    assert TASK.n_targets(SPLIT, np.array([0, 1, 2, 3])) == 3 + 8 + 1 + 5
    assert TASK.n_targets(SPLIT, [0, 1]) == 3 + 8
    assert TASK.n_targets(SPLIT, [2]) == 1


def test_perplexity_per_character_counts_the_end_of_a_sentence_as_a_character():
    class Scored(Translation):
        def perplexity(self, model, split, device):
            return math.exp(2.0)

    texts = {("dev", "target"): ["ab", "cde", "", "fgh"]}
    corpus = SimpleNamespace(split=lambda name: SPLIT, text=lambda *of: texts[of])
    scores = Scored().evaluate(None, corpus, resolve_row({}), torch.device("cpu"))
    assert scores["ppl"].value == math.exp(2.0)
    assert scores["ppl_char"].value == pytest.approx(math.exp(2.0 * 17 / (2 + 3 + 0 + 3 + 4)))


def test_translations_are_scored_against_the_targets_of_the_test_split():
    """With the scores of sacreBLEU itself, of the whole and of each sentence."""
    texts = {
        ("test", "target"): ["the cat sees a bird .", "a dog sleeps ."],
        ("test", "source"): ["x", "y"],
    }
    corpus = SimpleNamespace(
        text=lambda split, field: texts[split, field],
        manifest=SimpleNamespace(data={"direction": "de-en"}),
    )
    predictions, references = (
        ["the cat sees the bird .", "a dog sleeps ."],
        [texts["test", "target"]],
    )
    for name, metric in (("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())):
        found = TASK.measure(name, predictions, corpus)
        assert found.value == pytest.approx(metric.corpus_score(predictions, references).score)
        assert found.signature == str(metric.get_signature())
    alone = TASK.measure_items("chrf", predictions, corpus)
    chrf = sacrebleu.CHRF()
    assert alone == pytest.approx(
        [
            chrf.sentence_score(text, [ref]).score
            for text, ref in zip(predictions, references[0], strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("data", "tokenizer"),
    [
        ({"direction": "en-zh"}, "zh"),
        ({"direction": "en-zh", "bleu_tokenizer": "char"}, "char"),
        ({"direction": "pt-BR-zh"}, "zh"),
        ({"direction": "zh-Hant-en"}, "13a"),
        ({}, "13a"),
    ],
)
def test_translations_are_scored_by_the_tokenizer_of_their_corpus(data, tokenizer):
    texts = ["我喜欢吃红苹果。", "a red apple is good"]
    corpus = SimpleNamespace(text=lambda *of: texts, manifest=SimpleNamespace(data=data))
    assert f"tok:{tokenizer}|" in TASK.measure("bleu", texts, corpus).signature


def test_ter_divides_a_chinese_target_whatever_tags_the_source_has():
    texts = ["我喜欢吃红苹果。"]
    data = {"direction": "pt-BR-zh-Hans"}
    corpus = SimpleNamespace(text=lambda *of: texts, manifest=SimpleNamespace(data=data))
    assert "asian:yes" in TASK.measure("ter", texts, corpus).signature


def test_ter_of_a_language_without_words_is_refused_with_the_way_out():
    data = TASK.resolve_data(
        {"corpus": "files", "direction": "en-th", "train": "a", "dev": "b", "test": "c"}
    )
    (fault,) = TASK.check_metrics(["bleu", "ter"], data, resolve_row({}))
    assert fault.remedy == "use chrf"
    assert str(fault).endswith("which th does not write; use chrf")
    assert list(TASK.check_metrics(["bleu", "chrf"], data, resolve_row({}))) == []


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "tied_embeddings"),
        ({"tied_embeddings": "decoder"}, None),
        ({"architecture": "decoder-only"}, "architecture"),
        ({"architecture": "decoder-only", "tied_embeddings": "none"}, "architecture"),
    ],
)
def test_separate_vocabularies_need_an_encoder_and_matrices_of_their_own(settings, field):
    config = resolve_row(settings)
    assert not list(TASK.check(TranslationData.resolve({"corpus": "toy"}), config))
    faults = list(
        TASK.check(TranslationData.resolve({"corpus": "toy", "vocabulary": "separate"}), config)
    )
    assert len(faults) == (field is not None)
    assert all(fault.fields == ("data.vocabulary", field) for fault in faults)
