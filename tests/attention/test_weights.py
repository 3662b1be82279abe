"""Recorded weights follow the formula, and recording changes nothing."""

import math
from dataclasses import replace

import pytest
import torch

from ablate.attention.weights import (
    attention_layers,
    attention_weights,
    record_weights,
)
from ablate.custom.source import source_hash
from ablate.data.tokenizer import BOS, EOS
from ablate.errors import DataError, UsageError
from ablate.study import Row
from ablate.tasks import SequenceToSequence
from tests.attention.runs import SENTENCE, TRANSLATION, corpus_in, opened
from tests.model.small import small_model

SOURCE, TARGET = [5, 7, 11, 13, EOS], [BOS, 17, 19]
VARIANTS = [
    {},
    {"architecture": "decoder-only"},
    {"n_kv_heads": 1},
    {"n_cross_heads": 5},
    {"attention": "local", "attention_window": 1},
    {"attention": "linear"},
    {"attention": "linear", "architecture": "decoder-only"},
    {"attention_scale": 1},
    {"attention_bias": True},
    *({"positional_encoding": name} for name in ("none", "rope", "relative", "t5", "alibi")),
]


def shown(model):
    """(layer, its weights (h, T, S)) for the pair."""
    found = attention_layers(model)
    return [
        (a, weights[0])
        for a, weights in zip(found, record_weights(model, SOURCE, TARGET, found), strict=True)
    ]


@pytest.fixture
def inputs(monkeypatch):
    """The inputs of each layer: states of queries, states of keys."""

    def listen(model):
        given = {}
        for attention in attention_layers(model):
            module = attention.module
            of_self = ("forward", ("queries", "keys"))
            for method, roles in (
                of_self,
                ("cross_attend", ("queries",)),
                ("key_values", ("keys",)),
            ):
                keys = [(module, role) for role in roles]
                monkeypatch.setattr(module, method, record(getattr(module, method), given, keys))
        return given

    def record(method, given, keys):
        def recorded(x, *rest):
            given.update(dict.fromkeys(keys, x[0].detach()))
            return method(x, *rest)

        return recorded

    return listen


@pytest.mark.parametrize("groups", [None, 1])
def test_weights_equal_the_softmax_of_scaled_products_by_a_plain_loop(inputs, groups):
    model = small_model(n_kv_heads=groups)
    given = inputs(model)
    for attention, weights in shown(model):
        module, d_k = attention.module, model.config.d_k
        x, y = given[module, "queries"].double(), given[module, "keys"].double()
        W_Q, W_K = module.W_Q.weight.detach().double(), module.W_K.weight.detach().double()
        assert weights.shape == (3, len(x), len(y))
        for i in range(3):
            group = 0 if groups == 1 else i  # head of keys
            for t in range(len(x)):
                q = W_Q[i * d_k : (i + 1) * d_k] @ x[t]
                last = t if attention.kind == "decoder" else len(y) - 1
                keys = [W_K[group * d_k : (group + 1) * d_k] @ y[s] for s in range(last + 1)]
                raw = [math.exp(float(q @ k) / math.sqrt(d_k)) for k in keys]
                expected = [w / sum(raw) for w in raw] + [0.0] * (len(y) - last - 1)
                torch.testing.assert_close(
                    weights[i, t], torch.tensor(expected), atol=1e-6, rtol=1e-5
                )


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_recording_does_not_change_the_output_and_is_switched_off_afterwards(fields):
    model = small_model(**fields)
    pair = torch.tensor([SOURCE]), torch.tensor([TARGET])
    with torch.no_grad():
        before = model(*pair)
        states = []
        model.register_forward_hook(lambda module, given, out: states.append(out))
        shown(model)
        assert torch.equal(model(*pair), before)
    torch.testing.assert_close(states[0], before, atol=1e-5, rtol=1e-5)
    assert all(attention.module.on_weights is None for attention in attention_layers(model))


def test_recording_is_switched_off_after_a_failure():
    model = small_model()
    with pytest.raises(IndexError):
        record_weights(model, [99], TARGET, attention_layers(model))
    assert all(attention.module.on_weights is None for attention in attention_layers(model))


def look(run, sentence=SENTENCE, translation=TRANSLATION, **chosen):
    return attention_weights(run, sentence, translation, attention_layers(run.model, **chosen))


def pieces(run, text):
    tokenizer = run.corpus.tokenizer
    return tuple(tokenizer.pieces(tokenizer.encode([text])[0]))


def test_rows_and_columns_are_labeled_with_the_pieces_that_the_model_reads(run):
    source, target = (*pieces(run, SENTENCE), "</s>"), ("<s>", *pieces(run, TRANSLATION))
    seen = look(run)
    assert (seen.source, seen.target, seen.hidden) == (source, target, ())
    assert len(seen.layers) == 6
    for weights in seen.layers:
        assert weights.queries == (source if weights.kind == "encoder" else target)
        assert weights.keys == (target if weights.kind == "decoder" else source)
        assert weights.heads.shape == (3, len(weights.queries), len(weights.keys))
    assert "".join(source[:-1]).replace("▁", " ").strip() == SENTENCE


def test_a_decoder_only_model_reads_both_sides_as_one_sequence(results, corpus):
    run = opened(results, corpus, architecture="decoder-only")
    source, target = (*pieces(run, SENTENCE), "</s>"), ("<s>", *pieces(run, TRANSLATION))
    seen = look(run)
    assert [(weights.kind, weights.layer) for weights in seen.layers] == [
        ("decoder", 1),
        ("decoder", 2),
    ]
    for weights in seen.layers:
        assert weights.queries == weights.keys == source + target


def test_the_default_translation_is_that_of_the_run(results, corpus):
    run = opened(results, corpus, max_positions=11)
    from ablate.config import DecodingConfig
    from ablate.decoding import translate

    sentence = "a dog"
    ids = corpus.tokenizer.encode([sentence])
    own = translate(run.model, corpus.tokenizer, ids, DecodingConfig(), torch.device("cpu"))[0]
    seen = look(run, sentence, None)
    assert "".join(seen.target[1:]).replace("▁", " ").strip() == own


def test_white_space_around_a_sentence_is_ignored(run):
    assert look(run, f"  {SENTENCE} \n").source == look(run).source


@pytest.mark.parametrize(
    ("sentence", "translation", "error", "expected"),
    [
        (" ", None, UsageError, "--text: is empty"),
        (SENTENCE, " ", UsageError, "--translation: is empty"),
        ("a " * 97, None, DataError, "--text: has 97 tokens, too many for max_positions=97"),
        (SENTENCE, "a " * 97, DataError, "--translation: has 97 tokens, too many for max_positions=97"),
    ],
)  # fmt: skip
def test_empty_and_too_long_texts_are_refused(run, sentence, translation, error, expected):
    with pytest.raises(error, match=expected):
        look(run, sentence, translation)


def test_a_translation_too_long_after_its_source_is_an_error(results, corpus):
    run = opened(results, corpus, architecture="decoder-only")
    assert look(run, "a " * 40, "a " * 55).layers[0].heads.shape == (3, 97, 97)
    with pytest.raises(
        DataError, match="--translation: has 56 tokens after 40 of its source, too many for"
    ):
        look(run, "a " * 40, "a " * 56)


BLIND = """
from ablate.components import AttentionMechanism
class Mean(AttentionMechanism):
    def forward(self, Q, K, V, context):
        allowed = context.mask()
        weights = Q.new_ones(*Q.shape[:3], K.shape[2])
        weights = weights if allowed is None else weights * allowed
        return weights / weights.sum(-1, keepdim=True) @ V
"""
SQUARE = BLIND.replace(
    "return", "context.on_weights and context.on_weights(weights[..., 0])\n        return"
)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (BLIND, "reports no weights"),
        (SQUARE, r"reports weights of shape \(1, 3, \d+\), not \(1, 3"),
    ],
)
def test_a_plugin_that_reports_no_weights_is_named(results, corpus, source, reason):
    fields = {"attention": f"mine:Mean@{source_hash(source.encode())}", "source": source}
    run = opened(results, corpus, **fields)
    seen = look(run)
    assert [weights.kind for weights in seen.layers] == ["cross", "cross"]
    assert len(seen.hidden) == 4
    assert seen.hidden[0].startswith("encoder layer 1: attention=mine:Mean reports ")
    with pytest.raises(
        UsageError, match=f"decoder layer 2: attention=mine:Mean {reason}"
    ) as refused:
        look(run, kinds=["encoder", "decoder"])
    assert refused.value.lines == seen.hidden


def test_the_default_translation_is_decoded_as_by_the_row_that_is_named(tmp_path):
    run = opened(*corpus_in(tmp_path))
    assert isinstance(run.task, SequenceToSequence)
    lengths = {}
    for extra in (0, 9):
        config = run.config.model_copy(update={"max_extra_length": extra, "beam": 1})
        layers = attention_layers(run.model, (), ())
        seen = attention_weights(
            replace(run, row=Row("A", "A", config, "")), SENTENCE, None, layers
        )
        lengths[extra] = len(seen.target) - 1, len(seen.source) - 1  # without the marks
    assert lengths[0][0] <= lengths[0][1]
    assert lengths[0][0] < lengths[9][0]
