"""Masks: a pure function of key and place, at the given rates, in whole words, and never of
padding.
"""

import re

import numpy as np
import pytest
import torch

from ablate.data.contexts import cut
from ablate.data.corpus import TokenSequences
from ablate.data.draws import uniform
from ablate.data.masking import (
    MaskedContexts,
    Masking,
)
from ablate.data.tokenizer import EOS, FIRST_TOKEN, MASK, ByteTokenizer
from ablate.data.vocabulary import train_tokenizer

TEXT = "the small dog sees an old cat.\nno bird sings here, and it is quiet.\n" * 40
PLAIN = Masking(0.15, 1.0, 0.0, whole_word=False)


def stream(text=TEXT, tokenizer=None):
    (ids,) = (tokenizer or ByteTokenizer()).encode([text])
    return TokenSequences(np.array(ids, np.uint32), np.array([0, len(ids)]))


def masked(masking=PLAIN, context=32, key=(1, 1), sequences=None, stride=None):
    contexts = cut(sequences or stream(), context, stride or context, joined=True, score_once=False)
    return MaskedContexts.mask(contexts, masking, key, ByteTokenizer())


def everything(contexts):
    """(inputs, the stream's ids, places of the predicted tokens), as one row each."""
    batch = contexts.collate(range(len(contexts)))
    places = batch.indices
    return batch.inputs.flatten().numpy(), np.asarray(contexts.ids), places


def test_draws_are_uniform_and_independent_between_places_keys_and_draws():
    places = np.arange(100_000)
    draws = [uniform(*of, places) for of in (((1, 1), 1), ((1, 2), 1), ((2, 1), 1), ((1, 1), 2))]
    for drawn in draws:
        assert 0 <= drawn.min() < 1e-3 < 1 - 1e-3 < drawn.max() < 1
        counts = np.histogram(drawn, 50, (0, 1))[0]
        assert ((counts - 2000) ** 2 / 2000).sum() < 90  # chi-square with 49 degrees: p = 0.0003
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.013  # four standard errors
    for other in draws[1:]:
        assert abs(np.corrcoef(draws[0], other)[0, 1]) < 0.013
    assert uniform((1, 1), 1, places[70:90]).tolist() == draws[0][70:90].tolist()


def test_a_batch_reads_the_mask_exactly_where_a_token_is_predicted():
    contexts = masked()
    batch = contexts.collate([0, 3])
    original = np.stack([contexts[0], contexts[3]])
    is_mask = batch.inputs.numpy() == MASK
    assert is_mask.any(1).all()
    assert batch.positions.tolist() == np.flatnonzero(is_mask).tolist()
    assert batch.targets.tolist() == original[is_mask].tolist()
    assert (batch.inputs.numpy()[~is_mask] == original[~is_mask]).all()
    states = torch.arange(2.0 * 32).view(2, 32, 1)
    assert batch.select_targets(states).flatten().tolist() == batch.positions.tolist()
    assert batch.tokens == contexts.count_targets([0, 3]) == is_mask.sum()


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.6])
@pytest.mark.parametrize("split", ["80/10/10", "100/0/0", "0/100/0", "0/0/100"])
def test_rates_are_the_given_ones(rate, split):
    contexts = masked(Masking.parse(rate, split, whole_word=False), context=128)
    read, ids, places = everything(contexts)
    read = read[: len(ids)]
    share, n = len(places) / len(ids), len(ids)
    assert (
        abs(share - rate) < 4 * (rate * (1 - rate) / n) ** 0.5 + 1 / 128
    )  # and one in each context at least
    mask, random, kept = (int(part) / 100 for part in split.split("/"))
    chosen, originals = read[places], ids[places]
    found = ((chosen == MASK).mean(), (chosen == originals).mean())
    expected = (mask, kept + random / 256)  # a random token may be the same
    for one, other in zip(found, expected, strict=True):
        assert abs(one - other) < 4 * (max(other * (1 - other), 1e-4) / len(places)) ** 0.5
    drawn = chosen[(chosen != MASK) & (chosen != originals)]
    assert not len(drawn) or drawn.min() >= FIRST_TOKEN
    assert len(set(drawn.tolist())) > 40 or random < 1 or rate < 0.1
    outside = np.setdiff1d(np.arange(n), places)
    assert (read[outside] == ids[outside]).all()


def test_a_random_token_is_any_token_of_the_text_and_no_mark():
    contexts = masked(Masking(1.0, 0.0, 1.0, whole_word=False), sequences=stream(TEXT * 3))
    drawn = contexts.collate(range(len(contexts))).inputs
    assert (int(drawn[drawn > 0].min()), int(drawn.max())) == (
        FIRST_TOKEN,
        ByteTokenizer().vocab_size - 1,
    )


def test_masks_follow_from_key_and_place_and_not_from_the_batch_or_the_cut():
    often = Masking(0.3, 1.0, 0.0, whole_word=False)  # no context is without a mask by chance
    contexts = masked(often)
    together = set(everything(contexts)[2].tolist())
    alone = [contexts.collate([i]).indices.tolist() for i in reversed(range(len(contexts)))]
    assert {place for one in alone for place in one} == together
    assert set(everything(masked(often, context=97))[2].tolist()) == together
    first = {place for place in together if place < 96}
    overlapping = masked(often, context=64, stride=32).collate([0, 1]).indices.tolist()
    assert set(overlapping) == first
    assert len(overlapping) > len(first)  # both contexts have the tokens from 32 to 63


def test_every_step_and_every_seed_has_other_masks_and_the_same_step_the_same():
    keys = [(1, 1), (1, 2), (2, 1), (2, 2)]
    found = [tuple(everything(masked().replace_key(*key))[2].tolist()) for key in keys]
    assert len(set(found)) == 4
    assert found == [tuple(everything(masked().replace_key(*key))[2].tolist()) for key in keys]


def test_every_context_predicts_a_token_and_none_predicts_padding():
    contexts = masked(Masking(1e-6, 1.0, 0.0, whole_word=False), context=7)
    items = range(len(contexts))
    assert contexts.count_targets(items) == len(contexts)
    short = len(contexts) - 1
    assert contexts.lengths[short] < 7
    batch = contexts.collate([0, short])
    assert (batch.inputs[1, int(contexts.lengths[short]) :] == 0).all()
    assert int(batch.positions[1]) - 7 < contexts.lengths[short]
    assert 0 not in batch.targets


def test_padding_is_never_predicted_beside_longer_contexts():
    contexts = masked(Masking(0.9, 1.0, 0.0, whole_word=False), context=29)
    short = len(contexts) - 1
    assert contexts.lengths[short] < 29
    for items in ([0, short], [short, 3, 0]):
        assert contexts.count_targets(items) == sum(contexts.count_targets([i]) for i in items)
        batch = contexts.collate(items)
        assert int(batch.targets.min()) >= FIRST_TOKEN
        alone = contexts.collate([short])
        row = items.index(short)
        assert batch.inputs[row].tolist() == [
            *alone.inputs[0].tolist(),
            *[0] * (29 - int(contexts.lengths[short])),
        ]


def words_of(text):
    """The characters of each word, with the white space before it."""
    return [range(*match.span()) for match in re.finditer(r"\s*\S+|\s+", text)]


def test_whole_words_are_predicted_or_none_of_their_bytes():
    contexts = masked(Masking(0.3, 0.8, 0.1, whole_word=True), context=len(TEXT))
    places = set(everything(contexts)[2].tolist())
    words = words_of(TEXT)
    hit = [word for word in words if places & set(word)]
    assert sum(map(len, hit)) == len(places)
    assert all(set(word) <= places for word in hit)
    assert abs(len(hit) / len(words) - 0.3) < 4 * (0.21 / len(words)) ** 0.5


def test_white_space_is_no_word():
    """One word of about five bytes in ten is chosen: half of the choices must not be single spaces."""
    words = words_of(TEXT)
    starts = MaskedContexts._word_starts(
        masked(Masking(0.3, 1.0, 0.0, whole_word=True), context=len(TEXT)),
        np.arange(len(TEXT))[None],
    )
    assert np.unique(starts).tolist() == [word.start for word in words]
    assert len(words) == len(TEXT.split()) + 1  # the line end after the last


def test_words_of_a_sentencepiece_vocabulary_are_those_of_its_text():
    tokenizer = train_tokenizer(TEXT.split("\n"), 330, "bpe", lossless=True)
    sequences = stream(TEXT, tokenizer)
    contexts = cut(sequences, len(sequences.ids), 10_000, joined=True, score_once=False)
    contexts = MaskedContexts.mask(
        contexts, Masking(0.3, 1.0, 0.0, whole_word=True), (5,), tokenizer
    )
    starts = np.unique(contexts._word_starts(np.arange(len(sequences.ids))[None]))
    pieces = [piece.replace("▁", " ") for piece in tokenizer.pieces(sequences.ids.tolist())]
    ends = np.cumsum([0, *map(len, pieces)])
    assert ends[starts].tolist() == [word.start for word in words_of(TEXT)]
    assert any(len(piece) > 1 for piece in pieces)
    chosen = set(contexts.collate([0]).indices.tolist())
    assert 0 < len(chosen) < len(pieces)


def test_end_marks_are_words_of_their_own():
    ids = np.array(
        [*ByteTokenizer().encode(["ab"])[0], EOS, *ByteTokenizer().encode(["cd"])[0]], np.uint32
    )
    contexts = cut(TokenSequences(ids, np.array([0, 5])), 5, 5, joined=True, score_once=False)
    found = set()
    for key in range(60):
        over = MaskedContexts.mask(
            contexts, Masking(0.3, 1.0, 0.0, whole_word=True), (key,), ByteTokenizer()
        )
        found.add(tuple(over.collate([0]).indices.tolist()))
    assert {(0, 1), (2,), (3, 4)} < found
    assert all((0 in one) == (1 in one) and (3 in one) == (4 in one) for one in found)


def test_the_first_contexts_keep_their_masks():
    split = masked().as_split()
    assert (
        split.first(3)["text"].collate([2]).targets.tolist()
        == masked().collate([2]).targets.tolist()
    )
