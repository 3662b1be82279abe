"""GrowableTensor equals the concatenation of its parts, whatever its capacity."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.model.kv_cache import MIN_CAPACITY, GrowableTensor

B, G, D = 3, 2, 5


def normal(n, seed):
    return torch.randn(B, G, n, D, generator=torch.Generator().manual_seed(seed))


@given(parts=st.lists(st.integers(1, MIN_CAPACITY + 3), min_size=1, max_size=6))
def test_a_growable_tensor_equals_the_concatenation_of_its_parts(parts):
    drawn = [normal(n, seed) for seed, n in enumerate(parts)]
    series = GrowableTensor.start(drawn[0])
    for i, later in enumerate(drawn[1:], 2):
        series = series.append(later)
        assert torch.equal(series.tensor, torch.cat(drawn[:i], dim=2))


def test_appending_leaves_the_earlier_tensor_unchanged():
    first, second = normal(2, 1), normal(3, 2)
    series = GrowableTensor.start(first)
    grown = series.append(second)
    assert torch.equal(series.tensor, first)
    assert grown.buffer.data_ptr() == series.buffer.data_ptr()  # no allocation


def test_selected_rows_keep_the_requested_order_and_grow_independently():
    first, second = normal(4, 1), normal(1, 2)
    rows = torch.tensor([2, 0, 2])
    series = GrowableTensor.start(first)
    chosen = series.select(rows)
    assert torch.equal(chosen.append(second).tensor, torch.cat([first[rows], second], dim=2))
    assert torch.equal(series.append(-second).tensor, torch.cat([first, -second], dim=2))
