"""Translation: order of sentences, batches, limits on length."""

import sys

import pytest
import torch

from ablate.config import DecodingConfig
from ablate.data import toy
from ablate.data.tokenizer import EOS, PAD
from ablate.data.vocabulary import train_tokenizer
from ablate.decoding import Hypothesis, translate, translate_ids
from ablate.errors import Interrupted
from tests.model.small import diverse_model

module = sys.modules["ablate.decoding.translate"]  # the package exports a function of the same name
CPU = torch.device("cpu")
TEXTS = [source for source, _ in toy.generate()["train"][:40]]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 67)


@pytest.fixture(scope="module")
def model():
    return diverse_model(67, ends=2.0, max_positions=97)


@pytest.fixture
def calls(monkeypatch):
    """Batches of a search that answers each source with itself: (source, limits, beam, alpha,
    early_stopping).
    """
    calls = []

    def echo(model, source, limits, *rules, penalty="gnmt"):
        calls.append((source, limits, *rules))
        return [
            Hypothesis([token for token in row if token not in (PAD, EOS)], 0.0)
            for row in source.tolist()
        ]

    monkeypatch.setattr(module, "beam_search", echo)
    return calls


@pytest.mark.parametrize("batch_tokens", [1, 97, 8192])
def test_translations_are_in_the_order_of_their_sentences(
    model, tokenizer, calls, monkeypatch, batch_tokens
):
    monkeypatch.setattr(module, "BATCH_TOKENS", {"cpu": batch_tokens})
    assert translate(model, tokenizer, tokenizer.encode(TEXTS), DecodingConfig(), CPU) == TEXTS


def test_batches_have_similar_lengths_and_their_hypotheses_fit_the_budget(
    model, tokenizer, calls, monkeypatch
):
    monkeypatch.setattr(module, "BATCH_TOKENS", {"cpu": 600})
    translate(model, tokenizer, tokenizer.encode(TEXTS), DecodingConfig(beam=3), CPU)
    assert len(calls) > 3
    assert all(source.numel() * 3 <= 600 for source, *_ in calls)
    lengths = [int(n) for source, *_ in calls for n in (source != PAD).sum(1)]
    assert lengths == sorted(lengths)


def test_a_translation_is_limited_by_max_extra_length_and_by_the_positions_of_the_model(
    model, tokenizer, calls
):
    translate(
        model,
        tokenizer,
        [[5] * 7, [5] * 90, []],
        DecodingConfig(beam=2, alpha=1.5, max_extra_length=11),
        CPU,
    )
    ((source, limits, beam, alpha, *_),) = calls
    assert ((source != PAD).sum(1).tolist(), limits.tolist(), beam, alpha) == (
        [1, 8, 91],
        [11, 18, 96],
        2,
        1.5,
    )
    assert [row[row != PAD][-1] for row in source] == [EOS] * 3


def test_in_a_decoder_only_model_source_and_translation_share_the_positions(tokenizer, calls):
    """A decoder-only model has one sequence of positions for both sides and their two marks."""
    model = diverse_model(67, max_positions=97, architecture="decoder-only")
    sentences = [[5] * 7, [5] * 40, [5] * 60, [5] * 95]
    translate(model, tokenizer, sentences, DecodingConfig(max_extra_length=11), CPU)
    ((_, limits, *_),) = calls
    assert limits.tolist() == [18, 51, 97 - 60 - 2, 0]


def test_no_sentences_give_no_translations(model, tokenizer, calls):
    assert translate(model, tokenizer, [], DecodingConfig(), CPU) == []
    assert calls == []


def test_the_longest_possible_source_is_translated(model, tokenizer):
    assert len(translate(model, tokenizer, [[5] * 96], DecodingConfig(beam=2), CPU)) == 1


@pytest.mark.parametrize(
    "encoding", ["sinusoidal", "learned", "rope"]
)  # encodings with a table of positions
def test_the_last_position_can_be_used(tokenizer, encoding):
    model = diverse_model(
        67, ends=-50.0, max_positions=31, architecture="decoder-only", positional_encoding=encoding
    )  # fmt: skip
    decoding = DecodingConfig(beam=2, max_extra_length=50)
    found = translate_ids(model, [[5] * 29, [5] * 20, []], decoding, CPU)
    assert [len(tokens) for tokens in found] == [0, 9, 29]  # all reach their limit
    texts = translate(model, tokenizer, [[5] * 29, [5] * 20, []], decoding, CPU)
    assert texts.cut == {"max_positions": 3}
    shorter = DecodingConfig(beam=2, max_extra_length=4)
    assert translate(model, tokenizer, [[5] * 29, [5] * 20, []], shorter, CPU).cut == {
        "max_positions": 2,
        "max_extra_length": 1,
    }


def test_translations_that_end_by_themselves_are_not_cut(tokenizer):
    model = diverse_model(67, ends=50.0, max_positions=97)
    assert translate(model, tokenizer, [[5] * 9] * 3, DecodingConfig(), CPU).cut == {}


def test_a_model_in_training_mode_translates_without_dropout(tokenizer):
    model = diverse_model(67, ends=2.0, max_positions=97, dropout=0.5)
    sentences, decoding = tokenizer.encode(TEXTS[:3]), DecodingConfig(beam=2, max_extra_length=5)
    random = model.embedding_dropout.random.get_state()
    expected = translate(model, tokenizer, sentences, decoding, CPU)
    assert translate(model.train(), tokenizer, sentences, decoding, CPU) == expected
    assert torch.equal(model.embedding_dropout.random.get_state(), random)


def test_translation_can_be_stopped_after_each_batch(model, tokenizer, calls, monkeypatch):
    monkeypatch.setattr(module, "BATCH_TOKENS", {"cpu": 1})
    places = []

    def stop_at_the_third():
        places.append(len(calls))
        if len(places) == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        translate(
            model, tokenizer, tokenizer.encode(TEXTS), DecodingConfig(), CPU, stop_at_the_third
        )
    assert places == [1, 2, 3]


def test_a_batch_that_needs_too_much_memory_is_decoded_in_halves(
    model, tokenizer, calls, monkeypatch
):
    search, refused = module.beam_search, []

    def scarce(model, source, *rules, penalty="gnmt"):
        if len(source) > 3:
            refused.append(len(source))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return search(model, source, *rules)

    monkeypatch.setattr(module, "beam_search", scarce)
    assert translate(model, tokenizer, tokenizer.encode(TEXTS), DecodingConfig(), CPU) == TEXTS
    assert refused
    assert all(len(source) <= 3 for source, *_ in calls)


def test_a_sentence_that_needs_too_much_memory_by_itself_is_an_error(model, tokenizer, monkeypatch):
    def full(*args, penalty="gnmt"):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(module, "beam_search", full)
    with pytest.raises(torch.OutOfMemoryError):
        translate(model, tokenizer, tokenizer.encode(TEXTS), DecodingConfig(), CPU)
