"""Packing leaves out padding, spreading brings it back as zeros, and each is the other's gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.model.packing import Packing
from tests.model.small import normal

lengths = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


def real(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


@given(lengths)
def test_what_is_packed_is_each_sentence_behind_the_one_before_it(lengths):
    x = normal(len(lengths), max(lengths), 3)
    packed = Packing(real(lengths)).pack(x)
    assert torch.equal(packed, torch.cat([sentence[:n] for sentence, n in zip(x, lengths, strict=True)])[None])


@given(lengths)
def test_what_is_spread_is_what_was_packed_with_zeros_behind_it(lengths):
    x, packing = normal(len(lengths), max(lengths), 3), Packing(real(lengths))
    assert torch.equal(packing.spread(packing.pack(x)), x * real(lengths)[:, :, None])


@given(lengths)
def test_gradients_are_those_of_torchs_own_indexing(lengths):
    mask = real(lengths)
    packing, n = Packing(mask), int(mask.sum())
    x, packed = normal(*mask.shape, 3).requires_grad_(), normal(1, n, 3).requires_grad_()
    upstream, up_spread = normal(1, n, 3, seed=2), normal(*mask.shape, 3, seed=3)
    assert torch.equal(*(torch.autograd.grad(y, x, upstream)[0] for y in (packing.pack(x), x[mask][None])))
    spread = torch.zeros(*mask.shape, 3).masked_scatter(mask[:, :, None].expand(-1, -1, 3), packed)
    assert torch.equal(*(torch.autograd.grad(y, packed, up_spread)[0] for y in (packing.spread(packed), spread)))


def test_too_few_or_too_many_tokens_are_refused():
    packing = Packing(real([3, 2]))
    for n in (4, 6):
        with pytest.raises(RuntimeError, match=rf"tokens of shape \(1, {n}, 7\); expected \(1, 5, 7\)"):
            packing.spread(torch.zeros(1, n, 7))
