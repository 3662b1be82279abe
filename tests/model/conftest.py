"""Small models whose sizes are distinct primes, so that any transposition breaks."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors of a few hundred numbers gain nothing from a second core."""
    torch.set_num_threads(1)
