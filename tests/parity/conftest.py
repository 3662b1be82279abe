"""Parity is tested without a network."""

import socket

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail if a test uses the network: models are built from configurations."""

    def refuse(*_):
        raise AssertionError("a parity test reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
