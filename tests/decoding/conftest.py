"""Fixtures for all tests of decoding."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small tensors are slower with several threads."""
    torch.set_num_threads(1)
