"""The machine as results describe it."""

import os
import socket
from pathlib import Path

import pytest

from ablate.store import machine as module
from ablate.store.machine import cores, machine


def test_it_names_processor_cores_and_system():
    described = machine()
    assert set(described) == {"processor", "cores", "system"}
    assert described["cores"] == cores() >= 1
    assert described["processor"]


def test_it_names_no_host_and_no_home():
    words = " ".join(map(str, machine().values())).split()
    assert not {socket.gethostname(), str(Path.home())} & set(words)


def test_cores_are_those_that_this_process_may_use():
    if hasattr(os, "sched_getaffinity"):
        assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("files", "visible", "count"),
    [
        ((), None, 0),
        (("nvidiactl", "nvidia-uvm"), None, 0),
        (("nvidia0", "nvidia1", "nvidiactl"), None, 2),
        (("nvidia0", "nvidia1"), "1", 1),
        (("nvidia0", "nvidia1"), "", 0),
        (("nvidia0",), "0,1", 1),
    ],
)
def test_gpus_are_counted_without_torch(tmp_path, monkeypatch, files, visible, count):
    for name in files:
        (tmp_path / name).touch()
    monkeypatch.setattr(module, "DEVICE_FILES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert module.visible_gpus() == count
