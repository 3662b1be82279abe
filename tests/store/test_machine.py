"""The description of the machine in results."""

import os
import platform
import socket
from pathlib import Path

import pytest

from ablate.store import machine as module
from ablate.store.machine import cores, machine

TWO_CORES = "processor\t: 0\nmodel name\t: Fast: CPU @ 2 GHz\nflags\t: fpu\n\nprocessor\t: 1\nmodel name\t: other\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(TWO_CORES, "Fast: CPU @ 2 GHz"), ("Hardware\t: a board\n", "by platform"), (None, "by platform")],
)
def test_the_processor_is_the_first_model_name_of_cpuinfo(tmp_path, monkeypatch, content, expected):
    if content is not None:
        (tmp_path / "cpuinfo").write_text(content)
    monkeypatch.setattr(module, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "processor", lambda: "by platform")
    assert machine().processor == expected


def test_the_system_is_its_name_and_architecture():
    assert machine().system == f"{os.uname().sysname} {os.uname().machine}"


def test_the_description_has_no_host_no_user_and_no_path():
    text = machine().model_dump_json()
    assert socket.gethostname() not in text.split('"')
    assert str(Path.home()) not in text


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_cores_are_those_that_this_process_may_use():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert (cores(), machine().cores) == (1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)


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
