"""Perplexity is per target token, end marks counted, whatever the batches."""

import math

import pytest
import torch
import torch.nn.functional as F

from ablate.data.tokenizer import BOS, EOS
from ablate.metrics import evaluation
from ablate.metrics import perplexity as module
from ablate.metrics.perplexity import per_character
from ablate.tasks import TASKS
from tests.model.small import ENCODINGS, small_model, unigram_model
from tests.training.in_memory import split_of_pairs

CPU = torch.device("cpu")
perplexity = TASKS["translation"].perplexity
V = 31
PAIRS = [
    ([5, 7, 11], [13, 17]),
    ([5], [19, 23, 29, 7, 4]),
    ([11, 13, 17, 19, 23, 29, 4, 8], [6]),
    ([5, 5], [30, 1, 30, 1, 30, 1, 30]),
    ([9, 10, 12], [14, 15, 16]),
]


def test_the_perplexity_of_a_unigram_model_is_its_closed_form():
    """Targets `4 4 end` and `5 end`: probabilities 1/2, 1/2, 1/4 and 1/16, 1/4, so 2^(10/5) a
    token... of base 2.
    """
    model = unigram_model([1 / 16, 1 / 16, 1 / 16, 1 / 4, 1 / 2, 1 / 16])
    split = split_of_pairs([([5], [4, 4]), ([4, 4, 4], [5])])
    bits = (1 + 1 + 2) + (4 + 2)
    assert perplexity(model, split, CPU) == pytest.approx(2 ** (bits / 5), rel=1e-6)


def naive(model, pairs):
    """exp of the mean, one sentence at a time, without padding."""
    nats, tokens = 0.0, 0
    with torch.no_grad():
        for source, target in pairs:
            logits = model.logits(
                model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *target]]))
            )[0]
            nats += float(F.cross_entropy(logits, torch.tensor([*target, EOS]), reduction="sum"))
            tokens += len(target) + 1
    return math.exp(nats / tokens)


@pytest.mark.parametrize("eval_tokens", [1, 7, 11, 4096])
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
@pytest.mark.parametrize(
    "fields",
    [
        *({"positional_encoding": encoding} for encoding in ENCODINGS),
        {"mixer": "lstm"},
        {"tied_embeddings": "none"},
    ],
    ids=str,
)
def test_it_is_that_of_sentences_one_at_a_time_whatever_the_batches(
    monkeypatch, fields, architecture, eval_tokens
):
    monkeypatch.setattr(evaluation, "EVAL_TOKENS", eval_tokens)
    model = small_model(V, architecture=architecture, **fields)
    assert perplexity(model, split_of_pairs(PAIRS), CPU) == pytest.approx(
        naive(model, PAIRS), rel=1e-5
    )


def test_it_evaluates_without_dropout_and_draws_nothing():
    model = small_model(V, dropout=0.5)
    expected, random = perplexity(model, split_of_pairs(PAIRS), CPU), model.embedding_dropout.random
    before = random.get_state()
    assert perplexity(model.train(), split_of_pairs(PAIRS), CPU) == expected
    assert torch.equal(random.get_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_perplexity_beyond_floats_is_infinite_and_that_of_nan_weights_is_not_finite():
    model = unigram_model([1e-30, 1.0, 1e-30, 1e-30, 1e-30])
    with torch.no_grad():
        model.decoder[-1].around_feed_forward.norm.bias *= 1000  # the targets have e^-69000
    assert perplexity(model, split_of_pairs([([4], [4])]), CPU) == math.inf
    broken = small_model(V)
    with torch.no_grad():
        broken.embedding.weight[5] = math.nan
    assert not math.isfinite(perplexity(broken, split_of_pairs(PAIRS), CPU))


def test_per_character_is_the_same_likelihood_over_characters():
    """By hand: 5 target tokens and 11 characters, end marks included, at 2 nats per token."""
    assert per_character(math.exp(2.0), 5, 11) == pytest.approx(math.exp(5 * 2.0 / 11))


def test_an_evaluation_that_needs_too_much_memory_starts_over_in_smaller_batches(monkeypatch):
    model, sizes = small_model(V), []
    likelihood = module.negative_log_likelihood

    def scarce(states, weight, targets, cap):
        sizes.append(len(targets))
        if len(targets) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return likelihood(states, weight, targets, cap)

    expected = perplexity(model, split_of_pairs(PAIRS), CPU)
    monkeypatch.setattr(module, "negative_log_likelihood", scarce)
    monkeypatch.setattr(evaluation, "FEWEST_EVAL_TOKENS", 4)
    assert perplexity(model, split_of_pairs(PAIRS), CPU) == pytest.approx(expected, rel=1e-6)
    assert sizes[0] > 9
    monkeypatch.setattr(evaluation, "FEWEST_EVAL_TOKENS", 4096)
    with pytest.raises(torch.OutOfMemoryError):
        perplexity(model, split_of_pairs(PAIRS), CPU)
