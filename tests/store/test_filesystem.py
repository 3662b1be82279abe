"""The check of a file system: a good one passes, and each fault is found."""

import json
import os
import queue
import threading
import time
from unittest.mock import Mock

import pytest

from ablate.store import filesystem as module
from ablate.store.filesystem import ROUNDS, Check, _contend, _create, _listen, _other_hosts, check_filesystem


def test_a_local_folder_passes_and_is_left_empty(tmp_path):
    threads = threading.active_count()
    checks = {check.name: check for check in check_filesystem(tmp_path / "results", meet_seconds=0.5)}
    assert [check.detail for check in checks.values() if not check.passed] == []
    assert {"exclusive create", "hard link", "rename", "lease of another host that died", "other hosts"} <= set(checks)
    assert list((tmp_path / "results").iterdir()) == []
    assert threading.active_count() == threads  # every lease is released


def test_contenders_win_each_round_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CONTENDERS", 1)
    (tmp_path / "a").mkdir()
    assert _contend(_create, tmp_path / "a", 0) == list(range(ROUNDS))
    assert _contend(_create, tmp_path / "a", 0) == []


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        ([[0, 1], [1]], f"files made by no process or by several: {ROUNDS - 1} of {ROUNDS}"),
        (["Operation not permitted (EPERM)", []], "Operation not permitted (EPERM)"),
    ],
)
def test_a_file_system_without_exclusive_files_fails(tmp_path, monkeypatch, found, detail):
    """A bucket that is mounted as a folder lets several processes create the same file."""
    monkeypatch.setattr(module, "_in_processes", lambda *_: found)
    assert module._one_winner("exclusive create", tmp_path / "a", _create) == Check("exclusive create", False, detail)


def test_a_lease_that_its_holder_cannot_take_fails(tmp_path, monkeypatch):
    spawn = Mock()
    spawn.Queue().get.side_effect = queue.Empty
    monkeypatch.setattr(module, "_SPAWN", spawn)
    assert list(module._leases(tmp_path)) == [Check("lease of a living holder", False, "cannot be taken")]


def replace_partly(path, done):
    """A writer whose file system replaces a file step by step, and that dies."""
    path.write_bytes(b"\x01\x02")


def test_a_file_system_without_atomic_renames_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_replace_often", replace_partly)
    check = module._replacing(tmp_path / "replaced")
    assert (check.name, check.passed) == ("rename", False)


@pytest.mark.parametrize(("offset", "passed"), [(0.0, True), (-3600.0, False), (3600.0, False)])
def test_a_clock_that_is_not_the_file_systems_fails(tmp_path, monkeypatch, offset, passed):
    now = time.time
    monkeypatch.setattr(module.time, "time", lambda: now() + offset)
    (tmp_path / "hosts").mkdir()  # by another host
    check, *_ = _other_hosts(tmp_path / "hosts", 0.0)
    assert (check.name, check.passed) == ("clock of the file system", passed)


def test_another_host_is_seen_with_the_delay_of_its_files(tmp_path, monkeypatch):
    """The other host's clock is 100 s behind. Its first file may be old, and its last one is looked at once."""
    other, clock, numbers = tmp_path / "there-1", [5000.0], iter(range(3))

    def beat(*_):
        number = next(numbers, None)
        if number is None:
            clock[0] += 1000.0
        else:
            other.write_text(json.dumps({"host": "there", "number": number, "time": clock[0] - (100, 900)[not number]}))

    monkeypatch.setattr(module.time, "time", lambda: clock[0])
    monkeypatch.setattr(module.time, "sleep", beat)
    beat()
    assert _listen(tmp_path, tmp_path / f"here-{os.getpid()}", 0.2) == {"there": 100.0}
    assert clock[0] > 6000.0
