"""CTranslate2 gives the same probabilities and translations as the run, for every supported
configuration.
"""

import pytest
import torch

from ablate.data.tokenizer import BOS, EOS
from ablate.export.ctranslate import GENERATOR, TRANSLATOR
from tests.export.small import LLAMA, different, greedy_differences, ours, random_model

ctranslate2 = pytest.importorskip("ctranslate2")

EVERYWHERE = (
    {},
    {"attention_bias": True},
    {"attention_scale": 1},
    {"activation": "gelu"},
    {"activation": "swiglu"},
    {"norm": "rmsnorm"},
    {"norm_position": "pre"},
    {"norm": "rmsnorm", "norm_position": "pre"},
    {"n_kv_heads": 2},
    {"n_kv_heads": 1},
    {"d_k": 10, "d_v": 10},
    {"d_k": 4, "d_v": 4, "n_kv_heads": 2},
    {"tied_embeddings": "none"},
    *({"positional_encoding": name} for name in ("learned", "none", "rope", "relative")),
    {"positional_encoding": "relative", "n_kv_heads": 2, "d_k": 4, "d_v": 4, "attention_scale": 1},
)
OF_TRANSLATORS = (
    {"encoder_layers": 1, "decoder_layers": 3},
    {"tied_embeddings": "decoder"},
    {"positional_encoding": "t5"},
    {"positional_encoding": "learned", "tied_embeddings": "none", "norm_position": "pre"},
)
OF_GENERATORS = (
    {"positional_encoding": "alibi"},
    {"positional_encoding": "alibi", "n_heads": 6},
    LLAMA,
)
SOURCES = ([7, 9, 30, 12, 55, 54, 8], [11, 5], [40])
TARGETS = ([8, 21], [35, 6, 9, 14, 70, 33, 101], [])


def opened(source, folder):
    """The written model, opened by CTranslate2."""
    target = TRANSLATOR if source.config.has_encoder else GENERATOR
    target.write(target, source, folder)
    kind = ctranslate2.Translator if source.config.has_encoder else ctranslate2.Generator
    return kind(str(folder), intra_threads=1)


def log_probabilities(model, source, target):
    """Log-probabilities of the target tokens and the end mark, by our model."""
    logits = model.logits(model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]])))[0]
    return logits.log_softmax(-1)[torch.arange(len(target) + 1), torch.tensor([*target, EOS])]


@pytest.mark.parametrize("fields", EVERYWHERE + OF_TRANSLATORS, ids=str)
def test_a_translator_gives_every_token_our_probability(tokenizer, tmp_path, fields):
    model, source = random_model(tokenizer, **fields)
    there = opened(source, tmp_path)
    found = there.score_batch(
        [tokenizer.pieces(s) for s in SOURCES], [tokenizer.pieces(t) for t in TARGETS]
    )
    for s, t, scored in zip(SOURCES, TARGETS, found, strict=True):
        torch.testing.assert_close(
            torch.tensor(scored.log_probs), log_probabilities(model, s, t), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("fields", EVERYWHERE + OF_GENERATORS, ids=str)
def test_a_generator_gives_every_token_our_probability(tokenizer, tmp_path, fields):
    model, source = random_model(tokenizer, **{"architecture": "decoder-only", **fields})
    rows = [
        tokenizer.pieces([*s, EOS, BOS, *t, EOS]) for s, t in zip(SOURCES, TARGETS, strict=True)
    ]
    for s, t, scored in zip(
        SOURCES, TARGETS, opened(source, tmp_path).score_batch(rows), strict=True
    ):
        found = torch.tensor(scored.log_probs[-len(t) - 1 :])
        torch.testing.assert_close(found, log_probabilities(model, s, t), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("fields", EVERYWHERE + OF_TRANSLATORS, ids=str)
def test_a_translator_decodes_step_by_step_as_ours_does(tokenizer, tmp_path, fields):
    model, source = random_model(tokenizer, **fields)
    there = opened(source, tmp_path)
    found = there.translate_batch(
        [tokenizer.pieces(s) for s in SOURCES], beam_size=1, suppress_sequences=[["<pad>"], ["<s>"]],
        min_decoding_length=0, max_decoding_length=20,
    )  # fmt: skip
    assert [result.hypotheses[0] for result in found] == [
        tokenizer.pieces(t) for t in greedy(model, 20)
    ]


@pytest.mark.parametrize("fields", EVERYWHERE + OF_GENERATORS, ids=str)
def test_a_generator_decodes_step_by_step_as_ours_does(tokenizer, tmp_path, fields):
    model, source = random_model(tokenizer, **{"architecture": "decoder-only", **fields})
    found = opened(source, tmp_path).generate_batch(
        [tokenizer.pieces([*s, EOS, BOS]) for s in SOURCES], suppress_sequences=[["<pad>"], ["<s>"]],
        include_prompt_in_result=False, max_length=20,
    )  # fmt: skip
    assert [[p for p in result.sequences[0] if p != "</s>"] for result in found] == [
        tokenizer.pieces(t) for t in greedy(model, 20)
    ]


def greedy(model, length):
    """Our translations of the sources, truncated to a length."""
    from ablate.data.batches import pad
    from ablate.decoding import beam_search

    limits = torch.tensor([length] * len(SOURCES))
    return [
        h.tokens
        for h in beam_search(model, pad([[*s, EOS] for s in SOURCES]), limits, beam=1, alpha=0.0)
    ]


def translate(trained, exported, **settings):
    there = ctranslate2.Translator(str(exported(trained, "ctranslate2")), intra_threads=1)
    found = there.translate_batch(
        [trained.tokenizer.pieces(s) for s in trained.ids], min_decoding_length=0, **settings
    )
    return [result.hypotheses[0] for result in found]


@pytest.mark.parametrize(
    "settings", [{"beam_size": 1}, {"beam_size": 4, "length_penalty": 0}], ids=str
)
def test_200_sentences_are_translated_the_same_as_pieces_and_as_text(
    translator, exported, settings
):
    import sentencepiece

    found = translate(translator, exported, **settings)
    expected = ours(translator.opened, translator.ids, settings["beam_size"])
    ids = {piece: id for id, piece in enumerate(translator.tokenizer.pieces(list(range(200))))}
    tokens = [[ids[piece] for piece in pieces] for pieces in found]
    if settings["beam_size"] == 1:
        assert greedy_differences(translator, tokens, expected) == []
    else:
        assert different(tokens, expected) == []
    there = sentencepiece.SentencePieceProcessor(
        model_file=str(exported(translator, "ctranslate2") / "tokenizer.model")
    )
    assert there.decode(found) == translator.tokenizer.decode(tokens)


def test_with_a_length_penalty_it_stops_early_and_a_different_translation_is_a_less_probable_one(
    translator, exported
):
    found = translate(translator, exported, beam_size=4, length_penalty=1e-6)
    expected = ours(translator.opened, translator.ids, beam=4)
    ids = {piece: id for id, piece in enumerate(translator.tokenizer.pieces(list(range(200))))}
    differing = different(found, [translator.tokenizer.pieces(tokens) for tokens in expected])
    assert len(differing) < len(found) / 10
    for i in differing:
        theirs = log_probabilities(
            translator.opened.model, translator.ids[i], [ids[piece] for piece in found[i]]
        )
        of_ours = log_probabilities(translator.opened.model, translator.ids[i], expected[i])
        assert theirs.sum() < of_ours.sum()


@pytest.mark.parametrize("beam", [1, 4])
def test_200_sentences_are_continued_the_same(continuer, exported, beam):
    """One at a time: CTranslate2 finds no empty translation in a batch of prompts of unequal
    lengths.
    """
    there = ctranslate2.Generator(str(exported(continuer, "ctranslate2")), intra_threads=1)
    given = [continuer.tokenizer.pieces([*ids, EOS, BOS]) for ids in continuer.ids]
    found = there.generate_batch(
        given, beam_size=beam, length_penalty=0, include_prompt_in_result=False, max_batch_size=1
    )
    tokens = [[id for id in result.sequences_ids[0] if id != EOS] for result in found]
    assert different(tokens, ours(continuer.opened, continuer.ids, beam)) == []
