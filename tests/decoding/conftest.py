"""How the tests of this floor are run."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors of a few hundred numbers gain nothing from a second core."""
    torch.set_num_threads(1)
