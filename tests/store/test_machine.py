"""The machine as results describe it."""

import os
import socket
from pathlib import Path

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
