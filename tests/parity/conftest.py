"""Parity is tested on one thread and without a network."""

import socket

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tensors of a few hundred numbers gain nothing from a second core."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail if a test uses the network: models are built from configurations."""

    def refuse(*_):
        raise AssertionError("a parity test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
