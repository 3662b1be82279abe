"""Beam search is greedy for K = 1, exhaustive for a large K, and its scores are log-probabilities
over the penalty.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.data.tokenizer import BOS, EOS, PAD, UNK
from ablate.decoding import beam_search
from ablate.decoding.continuations import best_continuations
from tests.model.small import ENCODINGS, diverse_model, sentences, unigram_model

V = 7
WORDS = (UNK, 4, 5, 6)  # tokens of a translation
SOURCE_LENGTHS = (7, 2, 5)


def sources(*lengths, seed=1, vocab_size=V):
    tokens = sentences(*lengths, seed=seed, vocab_size=vocab_size)
    tokens[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    return tokens


@torch.no_grad()
def log_probabilities(model, source, translations):
    """Log-probabilities of equally long translations of one source (1, S), with end marks; without
    a cache.
    """
    targets = torch.tensor(translations, dtype=torch.int64).view(len(translations), -1)
    begin, end = (torch.full((len(targets), 1), mark) for mark in (BOS, EOS))
    states = model(source.expand(len(targets), -1), torch.cat([begin, targets], dim=1))
    chosen = torch.cat([targets, end], dim=1)[:, :, None]
    return model.logits(states).log_softmax(-1).gather(2, chosen)[:, :, 0].sum(1)


def penalty_of(length, alpha, form):
    """The length penalty of a translation of so many tokens without the end mark."""
    return {"gnmt": (5 + length + 1) / 6, "length": length + 1}[form] ** alpha


def normalized(model, source, tokens, alpha, form="gnmt"):
    """The score of one translation by its definition."""
    log_probability = float(log_probabilities(model, source, [tokens])[0])
    return log_probability / penalty_of(len(tokens), alpha, form)


def best_of_all(model, source, limit, alpha, form="gnmt"):
    """(score, tokens) of the best among all translations of at most `limit` tokens."""
    found = []
    for length in range(limit + 1):
        translations = list(itertools.product(WORDS, repeat=length))
        scores = log_probabilities(model, source, translations) / penalty_of(length, alpha, form)
        best = int(scores.argmax())
        found.append((float(scores[best]), list(translations[best])))
    return max(found)


@torch.no_grad()
def greedy(model, source, limit):
    """The most probable next token, one full pass a token, until the end mark or the limit."""
    tokens = []
    while len(tokens) < limit:
        logits = model.logits(model(source, torch.tensor([[BOS, *tokens]]))[0, -1])
        logits[[PAD, BOS]] = -math.inf
        token = int(logits.argmax())
        if token == EOS:
            break
        tokens.append(token)
    return tokens


def unpadded(batch, i, lengths=SOURCE_LENGTHS):
    return batch[i : i + 1, : lengths[i]]


# Every kind of decoding cache.
VARIANTS = [
    *({"positional_encoding": encoding} for encoding in ENCODINGS),
    {"n_kv_heads": 1, "norm_position": "pre"},
    {"attention": "local", "attention_window": 2},
    {"attention": "linear"},
    {"mixer": "lstm"},
]
both_architectures = pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])


@both_architectures
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_beam_of_one_is_greedy_search(seed, fields, architecture):
    model = diverse_model(31, seed, ends=2.0, architecture=architecture, max_positions=29, **fields)
    batch, limits = sources(*SOURCE_LENGTHS, vocab_size=31), [11, 3, 17]
    found = beam_search(model, batch, torch.tensor(limits), beam=1, alpha=0.6)
    for i, limit in enumerate(limits):
        assert found[i].tokens == greedy(model, unpadded(batch, i), limit)


@pytest.mark.parametrize(
    "fields", [{}, {"architecture": "decoder-only"}, {"mixer": "lstm"}], ids=str
)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("form", ["gnmt", "length"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_an_exhaustive_beam_finds_the_best_of_all_translations(seed, form, alpha, fields):
    model, batch, limits = (
        diverse_model(V, seed, ends=-2.0, **fields),
        sources(*SOURCE_LENGTHS, seed=seed),
        [2, 4, 3],
    )
    space = sum(len(WORDS) ** length for length in range(5))
    found = beam_search(model, batch, torch.tensor(limits), beam=space, alpha=alpha, penalty=form)
    for i, limit in enumerate(limits):
        score, tokens = best_of_all(model, unpadded(batch, i), limit, alpha, form)
        assert found[i].tokens == tokens
        assert found[i].score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("form", ["gnmt", "length"])
@pytest.mark.parametrize("beam", [1, 2, 5, 13])
def test_a_score_is_the_log_probability_over_the_penalty_and_none_beats_the_best_of_all(
    beam, form, alpha
):
    for seed in (1, 2, 3):
        model, batch = diverse_model(V, seed, ends=-2.0), sources(*SOURCE_LENGTHS, seed=seed)
        found = beam_search(model, batch, torch.tensor([4, 3, 4]), beam, alpha, penalty=form)
        for i, limit in enumerate([4, 3, 4]):
            source = unpadded(batch, i)
            assert found[i].score == pytest.approx(
                normalized(model, source, found[i].tokens, alpha, form), abs=1e-5
            )
            assert found[i].score <= best_of_all(model, source, limit, alpha, form)[0] + 1e-5


@both_architectures
@pytest.mark.parametrize("fields", VARIANTS, ids=str)
@pytest.mark.parametrize("beam", [1, 4])
def test_translations_do_not_depend_on_the_rest_of_the_batch(beam, fields, architecture):
    lengths, limits = (7, 2, 11, 5, 3), [9, 4, 13, 1, 6]
    model = diverse_model(
        31, seed=3, ends=2.0, architecture=architecture, max_positions=29, **fields
    )
    batch = sources(*lengths, vocab_size=31)
    together = beam_search(model, batch, torch.tensor(limits), beam, alpha=0.6)
    order = [3, 0, 4, 2, 1]
    moved = beam_search(model, batch[order], torch.tensor(limits)[order], beam, alpha=0.6)
    for i in range(5):
        (alone,) = beam_search(
            model, unpadded(batch, i, lengths), torch.tensor(limits[i : i + 1]), beam, alpha=0.6
        )
        for other in (alone, moved[order.index(i)]):
            assert other.tokens == together[i].tokens
            assert other.score == pytest.approx(together[i].score, rel=1e-5)  # a sum in fp32


@pytest.mark.parametrize("beam", [1, 3, 8])
def test_a_model_that_never_predicts_the_end_mark_is_stopped_at_the_limit(beam):
    model, limits = unigram_model([0.001, 0.001, 0.001, 1e-9, 0.9, 0.097]), [0, 3, 11]
    found = beam_search(
        model, sources(5, 2, 7, vocab_size=6), torch.tensor(limits), beam, alpha=0.6
    )
    assert [hypothesis.tokens for hypothesis in found] == [[4] * limit for limit in limits]
    for hypothesis, n in zip(found, limits, strict=True):
        expected = (n * math.log(0.9) + math.log(1e-9)) / ((6 + n) / 6) ** 0.6
        assert hypothesis.score == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("beam", [1, 2, 50])
def test_padding_and_begin_marks_are_never_produced_however_probable(beam):
    model = unigram_model([0.45, 0.03, 0.45, 0.03, 0.04])
    found = beam_search(model, sources(5, 3, vocab_size=5), torch.tensor([7, 4]), beam, alpha=3.0)
    assert {token for hypothesis in found for token in hypothesis.tokens} == {4}
    assert all(math.isfinite(hypothesis.score) for hypothesis in found)


class Watched:
    """A model that notes the tokens (sentences, K) of each step."""

    def __init__(self, model):
        self.model, self.sizes = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def step(self, tokens, *rest):
        self.sizes.append(tuple(tokens.shape))
        return self.model.step(tokens, *rest)


def test_finished_sentences_leave_the_batch():
    model = Watched(unigram_model([0.001, 0.001, 0.001, 1e-9, 0.9, 0.097]))
    beam_search(model, sources(5, 2, 7, vocab_size=6), torch.tensor([1, 5, 2]), beam=3, alpha=0.6)
    assert model.sizes == [(3, 1), (3, 3), (2, 3)] + [(1, 3)] * 3


def test_the_search_ends_when_no_unfinished_hypothesis_can_still_win():
    """The empty translation scores ln 0.9; the best living one, ln 0.08 at least, over (56 / 6)^0.6
    at most.
    """
    assert math.log(0.9) > math.log(0.08) / (56 / 6) ** 0.6
    model = Watched(unigram_model([0.01, 0.005, 0.005, 0.9, 0.08]))
    (found,) = beam_search(model, sources(3, vocab_size=5), torch.tensor([50]), beam=4, alpha=0.6)
    assert (found.tokens, len(model.sizes)) == ([], 1)


@pytest.mark.parametrize(
    ("beam", "early_stopping", "tokens", "steps"),
    [(2, True, [4], 2), (2, False, [4] * 50, 51), (1, False, [], 1)],
)
def test_early_stopping_ends_a_search_when_K_hypotheses_have_finished(
    beam, early_stopping, tokens, steps
):
    """The best two of each step are `end` and `4`, then `4 end` and `4 4`. Longer translations could
    still win, since the penalty grows faster than the probability falls. A beam of one is greedy.
    """
    model = Watched(unigram_model([0.05, 0.05, 0.05, 0.45, 0.4]))
    source, limits = sources(3, vocab_size=5), torch.tensor([50])
    (found,) = beam_search(model, source, limits, beam, 9.0, early_stopping)
    assert (found.tokens, len(model.sizes)) == (tokens, steps)
    n = len(tokens)
    score = (n * math.log(0.4) + math.log(0.45)) / ((6 + n) / 6) ** 9
    assert found.score == pytest.approx(score, rel=1e-5)


def test_unlikely_ends_among_the_best_do_not_hide_a_likely_translation():
    """A step offers `4` with probability 0.9 and then the end mark; its second end would stop the
    search at once.
    """
    model = unigram_model([0.01, 0.01, 0.01, 0.07, 0.9])
    limits = torch.tensor([6])
    early, late = (
        beam_search(
            model, sources(3, vocab_size=5), limits, beam=2, alpha=4.0, early_stopping=stops
        )[0]
        for stops in (True, False)
    )
    assert len(early.tokens) < 3
    assert late.tokens == [4] * 6
    assert late.score > early.score


def test_decoding_needs_no_gradients_and_changes_no_weights():
    model = diverse_model(V)
    before = [parameter.clone() for parameter in model.parameters()]
    beam_search(model, sources(*SOURCE_LENGTHS), torch.tensor([4, 4, 4]), beam=3, alpha=0.6)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))


@given(
    B=st.integers(1, 3),
    K=st.integers(1, 5),
    V=st.integers(2, 400),
    impossible=st.floats(0, 1),
    seed=st.integers(0, 999),
)
def test_best_continuations_equal_a_full_sort(B, K, V, impossible, seed):
    drawn = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(B, K, V, generator=drawn)
    log_probs[torch.rand(B, K, V, generator=drawn) < impossible] = float("-inf")
    scores = torch.randn(B, K, generator=drawn)
    n = min(2 * K, K * V)
    values, origins, tokens = best_continuations(log_probs, scores, n)
    everything = log_probs + scores[:, :, None]
    assert torch.equal(values, everything.flatten(1).sort(dim=1, descending=True).values[:, :n])
    rows = torch.arange(B)[:, None]
    assert torch.equal(everything[rows, origins, tokens], values)
    assert all(
        len(set(zip(o, t, strict=True))) == n
        for o, t in zip(origins.tolist(), tokens.tolist(), strict=True)
    )
