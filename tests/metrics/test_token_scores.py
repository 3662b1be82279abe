"""Bits per byte against a plain loop, closed forms, blocks that do not depend on the vocabulary;
loss and accuracy of masked tokens.
"""

import math

import numpy as np
import pytest
import torch

from ablate.config.language_data import LanguageData
from ablate.data.corpus import TokenSequences
from ablate.data.prepare import prepare
from ablate.data.tokenizer import EOS, ByteTokenizer
from ablate.metrics.resampling import measure
from ablate.metrics.token_scores import (
    BLOCK_BYTES,
    Blocks,
    TokenScores,
    block_statistics,
    divide_into_blocks,
    masked_lines,
    text_lines,
)
from ablate.tasks import LanguageModel
from tests.tasks.language import plain_nats, small

CPU = torch.device("cpu")
TASK = LanguageModel()
TEXT = "The quick brown fox, 1€ — jumps over\nthe lazy dog. " * 5


@pytest.fixture(scope="module", params=["bytes", "bpe"])
def corpus(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text(TEXT * 4)
    (folder / "dev.txt").write_text(TEXT[:200])
    sizes = {} if request.param == "bytes" else {"vocab_size": 300}
    settings = {
        "corpus": "files",
        "train": "train.txt",
        "dev": "dev.txt",
        "tokenizer": request.param,
        **sizes,
    }
    return prepare(LanguageData.resolve(settings), folder, folder / "corpora")


def values(lines, name):
    return [float(line.split(f"{name}=")[1].split()[0]) for line in lines]


@pytest.mark.parametrize(
    "fields",
    [{}, {"eval_stride": 1}, {"eval_context": 48, "eval_stride": 1}, {"logit_cap": 0.5}],
    ids=str,
)
def test_the_score_is_that_of_a_plain_loop(corpus, fields):
    config, model = small(corpus.tokenizer.vocab_size, **fields)
    tokens = corpus.split("test")["text"].ids.tolist()
    lines = TASK.predict(model, corpus, config, CPU)
    context = config.eval_context or config.context
    if config.eval_stride == 1:
        nats = sum(plain_nats(model, tokens, context))
    else:  # contexts side by side: each begins anew after its first token
        nats = 0.0
        for start in range(0, len(tokens), context):
            before = tokens[start - 1 : start]
            inputs = torch.tensor([[*(before or [2]), *tokens[start : start + context - 1]]])
            logits = model.logits(model.read(inputs))[0].double().log_softmax(-1)
            nats -= sum(
                float(logits[i, token]) for i, token in enumerate(tokens[start : start + context])
            )
    assert sum(values(lines, "nats")) == pytest.approx(nats, rel=1e-5)
    size = len(TEXT[:200].encode())
    measured = TASK.measure("bpb", lines, corpus)
    assert measured.value == pytest.approx(nats / math.log(2) / size, rel=1e-5)
    assert (
        measured.signature
        == f"ctx:{context}|stride:{config.eval_stride or context}|bytes:{size}|split:dev"
    )
    perplexity = TASK.evaluate(model, corpus, config, CPU)["ppl"]
    assert perplexity.value == pytest.approx(math.exp(nats / len(tokens)), rel=1e-5)
    assert perplexity.signature.startswith(f"ctx:{context}|")


def test_blocks_hold_the_bytes_that_begin_in_them_and_marks_follow_the_last_byte():
    text = (
        "a" * (BLOCK_BYTES - 1) + "€" + "b" * BLOCK_BYTES
    )  # one character over the end of a block
    (ids,) = ByteTokenizer().encode([text])
    ids.insert(BLOCK_BYTES, EOS)  # within the second block's beginning
    blocks = divide_into_blocks(
        TokenSequences(np.array(ids), np.array([0, len(ids)])), ByteTokenizer()
    )
    assert blocks.bytes.tolist() == [BLOCK_BYTES, BLOCK_BYTES, 2]
    assert blocks.tokens.tolist() == [BLOCK_BYTES + 1, BLOCK_BYTES, 2]
    assert blocks.bytes.sum() == len(text.encode())


def test_a_block_weighs_as_much_as_its_bytes():
    (ids,) = ByteTokenizer().encode(["x" * (BLOCK_BYTES + 10)])
    blocks = divide_into_blocks(
        TokenSequences(np.array(ids), np.array([0, len(ids)])), ByteTokenizer()
    )
    nats = np.where(np.arange(len(ids)) < BLOCK_BYTES, math.log(2), 3 * math.log(2))
    lines = text_lines(TokenScores(np.arange(len(ids)), nats, nats < 0), blocks, "ctx:64|stride:32")
    assert item_scores(block_statistics("bpb", lines, "5%")) == pytest.approx([1.0, 3.0])
    measured = measure(*block_statistics("bpb", lines, "5%"))
    assert measured.value == pytest.approx((BLOCK_BYTES + 30) / (BLOCK_BYTES + 10), rel=1e-6)
    assert measured.signature == f"ctx:64|stride:32|bytes:{BLOCK_BYTES + 10}|split:5%"
    assert set(np.round(measured.resamples, 3)) == {1.0, round(measured.value, 3), 3.0}


def test_models_of_two_vocabularies_have_the_same_blocks(tmp_path):
    text = "".join(f"some line of text {i}\n" for i in range(300))
    (tmp_path / "a.txt").write_text(text)
    sizes = []
    for settings in ({}, {"tokenizer": "bpe", "vocab_size": 310}):
        data = LanguageData.resolve({"corpus": "files", "train": "a.txt", "dev": "50%", **settings})
        corpus = prepare(data, tmp_path, tmp_path / "corpora")
        sizes.append(TASK.n_predictions(corpus))
        (sample,) = TASK.samples(corpus, [1])
        assert sample.texts[0][1] in text
    assert sizes == [math.ceil(len(text) / 2 / BLOCK_BYTES)] * 2


def item_scores(statistics):
    return [statistics.score(of_item) for of_item in statistics.values]


# Masked tokens

EVALUATION = "ctx:4|rate:0.5|of:tokens|seed:1"
# Four blocks of three tokens: the second has no masked token, and the last ones none that is
# predicted.
BLOCKS = Blocks(np.repeat(np.arange(4), 3), np.full(4, 3), np.full(4, 3))
SCORES = TokenScores(
    np.array([10, 0, 2, 6]), np.array([4.0, 0.5, 1.5, 2.0]), np.array([False, True, True, False])
)  # in the order of batches


def test_each_block_has_a_line_also_without_masked_or_predicted_tokens():
    lines = masked_lines(SCORES, BLOCKS, EVALUATION)
    assert lines == [
        f"nats=2.000000 correct=2 masked=2 {EVALUATION}",
        f"nats=0.000000 correct=0 masked=0 {EVALUATION}",
        f"nats=2.000000 correct=0 masked=1 {EVALUATION}",
        f"nats=4.000000 correct=0 masked=1 {EVALUATION}",
    ]
    assert item_scores(block_statistics("masked_loss", lines, "dev")) == [1.0, 0.0, 2.0, 4.0]
    assert item_scores(block_statistics("masked_accuracy", lines, "dev")) == [100.0, 0.0, 0.0, 0.0]


def test_a_text_is_scored_by_its_masked_tokens_and_not_by_the_mean_of_its_blocks():
    lines = masked_lines(SCORES, BLOCKS, EVALUATION)
    loss, accuracy = (
        measure(*block_statistics(name, lines, "dev"))
        for name in ("masked_loss", "masked_accuracy")
    )
    assert loss.value == pytest.approx(math.fsum(SCORES.nats) / 4)
    assert accuracy.value == pytest.approx(100 * 2 / 4)
    assert loss.signature == accuracy.signature == f"{EVALUATION}|masked:4|split:dev"
