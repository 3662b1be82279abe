"""The check of a file system: a good one passes, and each fault is found."""

import json
import os
import queue
import re
import shutil
import socket
import threading
from unittest.mock import MagicMock, Mock

import pytest

from ablate.store import filesystem as module
from ablate.store.filesystem import (
    ROUNDS,
    Check,
    _compete,
    _create,
    _measure_delays,
    _other_hosts,
    check_filesystem,
)
from ablate.store.lease import Lease


def test_a_local_folder_passes_and_is_left_empty(tmp_path):
    before = set(threading.enumerate())
    checks = {
        check.name: check for check in check_filesystem(tmp_path / "results", meet_seconds=0.5)
    }
    assert [check.detail for check in checks.values() if not check.passed] == []
    assert {
        "exclusive create",
        "hard link",
        "rename",
        "lease of another host that died",
        "other hosts",
    } <= set(checks)
    assert list((tmp_path / "results").iterdir()) == []
    assert checks["hard link"].detail == "one of 4 writers in each of 50 rounds"
    assert re.fullmatch(
        r"[1-9]\d* reads of a file that was replaced 50 times", checks["rename"].detail
    )
    assert checks["lease of a living holder"].detail == "kept for 6 s against another process"
    assert set(threading.enumerate()) <= before  # every lease is released


def test_what_a_killed_check_has_left_is_no_obstacle(tmp_path, monkeypatch):
    """In a container, each process may have the same id."""
    left = tmp_path / ".ablate-filesystem" / f"{socket.gethostname()}-{os.getpid()}"
    left.mkdir(parents=True)
    monkeypatch.setattr(
        module, "_one_winner", lambda name, folder, attempt: Check(name, folder.parent.is_dir(), "")
    )
    checks = check_filesystem(tmp_path)
    assert next(checks).passed
    checks.close()


def test_files_that_someone_has_removed_in_the_meantime_are_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_one_winner", lambda name, folder, attempt: Check(name, True, ""))
    checks = check_filesystem(tmp_path)
    next(checks)
    shutil.rmtree(tmp_path / ".ablate-filesystem")
    checks.close()
    assert list(tmp_path.iterdir()) == []


class Clock:
    """A clock that only sleeping moves; `after` is called after each sleep."""

    def __init__(self, monkeypatch, now=0.0, after=lambda: None):
        self.now, self.after = now, after
        for name in ("time", "monotonic"):
            monkeypatch.setattr(module.time, name, lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.sleep)

    def sleep(self, seconds):
        self.now += seconds
        self.after()


def test_contenders_begin_together_or_after_a_minute(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WRITERS", 2)
    clock = Clock(monkeypatch)

    def second_comes_after_100_seconds():
        clock.now += 1.0
        if clock.now > 100.0:
            (tmp_path / "ready-1").touch()

    clock.after = second_comes_after_100_seconds
    assert _compete(_create, tmp_path, 0) == list(range(ROUNDS))
    assert clock.now == pytest.approx(60.0, abs=0.5)
    assert _compete(_create, tmp_path, 0) == []
    assert clock.now == pytest.approx(100.5, abs=0.6)


def test_an_error_of_the_file_system_is_the_outcome_of_a_contender(tmp_path, monkeypatch):
    def refuse(path, number):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(module, "WRITERS", 1)
    assert _compete(refuse, tmp_path, 0) == "Operation not permitted (EPERM)"


@pytest.mark.parametrize(
    ("found", "detail"),
    [
        ([[0, 1], [1]], f"files made by no writer or by several: {ROUNDS - 1} of {ROUNDS}"),
        (["Operation not permitted (EPERM)", []], "Operation not permitted (EPERM)"),
    ],
)
def test_a_file_system_without_exclusive_files_fails(tmp_path, monkeypatch, found, detail):
    """A bucket that is mounted as a folder lets several processes create the same file."""
    spawn = MagicMock()
    spawn.Pool().__enter__().starmap.return_value = found
    monkeypatch.setattr(module, "_SPAWN", spawn)
    assert module._one_winner("exclusive create", tmp_path / "a", _create) == Check(
        "exclusive create", False, detail
    )


def test_a_lease_that_its_holder_cannot_take_fails(tmp_path, monkeypatch):
    spawn = Mock()
    spawn.Queue().get.side_effect = queue.Empty
    monkeypatch.setattr(module, "_SPAWN", spawn)
    assert list(module._leases(tmp_path)) == [
        Check("lease of a living holder", False, "cannot be taken")
    ]


@pytest.mark.parametrize(
    ("free_from", "expected"),
    [
        (5.0, [(False, "was taken from it"), (False, "taken over after 0.0 s of silence; its term is 3 s")]),
        (6.75, [(True, "kept for 6 s against another process"), (False, "taken over after 0.8 s of silence; its term is 3 s")]),
        (7.25, [(True, "kept for 6 s against another process"), (True, "taken over after 1.2 s of silence; its term is 3 s")]),
        (35.75, [(True, "kept for 6 s against another process"),
                 (True, "taken over after 29.8 s of silence; its term is 3 s")]),
        (36.5, [(True, "kept for 6 s against another process"), (False, "is not taken over")]),
    ],
)  # fmt: skip
def test_a_lease_is_judged_by_when_it_can_be_taken(tmp_path, monkeypatch, free_from, expected):
    """The holder lives for 6 s by the clock, two terms, and is then silent."""
    clock, lease, spawn = Clock(monkeypatch, now=1000.0), Mock(), Mock()
    lease.return_value.try_to_take.side_effect = lambda: clock.now - 1000.0 > free_from
    monkeypatch.setattr(module, "Lease", lease)
    monkeypatch.setattr(module, "_SPAWN", spawn)
    checks = list(module._leases(tmp_path))
    assert [check.name for check in checks] == [
        "lease of a living holder",
        "lease of another host that died",
    ]
    assert [check.passed for check in checks] == [passed for passed, _ in expected]
    for check, (_, detail) in zip(checks, expected, strict=True):
        found = re.split(r"(\d+\.\d)", check.detail)
        wanted = re.split(r"(\d+\.\d)", detail)
        assert found[::2] == wanted[::2]
        assert [float(number) for number in found[1::2]] == pytest.approx(
            [float(n) for n in wanted[1::2]], abs=0.2
        )
    lease.assert_called_once_with(tmp_path / "lease", 3.0)
    lease.return_value.release.assert_called_once_with()
    assert spawn.Process().kill.call_count == spawn.Process().join.call_count == 2


def replace_partly(path, done):
    """A writer whose file system replaces a file step by step, and that dies."""
    path.write_bytes(b"\x01\x02")


def test_a_file_system_without_atomic_renames_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_replace_often", replace_partly)
    check = module._replacing(tmp_path / "replaced")
    assert (check.name, check.passed) == ("rename", False)


BLOCK = b"\1" * 65_536


@pytest.mark.parametrize(
    ("contents", "ends", "expected"),
    [
        ((BLOCK, b"\0" * 65_536), True, Check("rename", True, "2 reads of a file that was replaced 50 times")),
        ((BLOCK,), False, Check("rename", False, "0 of 1 reads found neither the old nor the new content")),
        ((BLOCK, BLOCK[:-1] + b"\2", BLOCK[:-1], None), True,
         Check("rename", False, "3 of 4 reads found neither the old nor the new content")),
    ],
)  # fmt: skip
def test_a_mixture_a_part_and_nothing_are_counted_in_reads_of_a_replaced_file(
    tmp_path, monkeypatch, contents, ends, expected
):
    class Writer:
        def __init__(self, target, args):
            (self.path, self.done), self.left = args, iter(contents)

        def start(self):
            assert self.path.read_bytes() == b"\0" * 65_536

        def is_alive(self):
            content = next(self.left, "end")
            if content is None:
                self.path.unlink()
            elif content != "end":
                self.path.write_bytes(content)
            return content != "end"

        def join(self):
            if ends:
                self.done.touch()

    monkeypatch.setattr(module, "_SPAWN", Mock(Process=Writer))
    assert module._replacing(tmp_path / "replaced") == expected


def test_the_holder_of_a_lease_has_the_name_of_another_host_and_reports_once(tmp_path, monkeypatch):
    monkeypatch.setattr(
        socket, "gethostname", socket.gethostname
    )  # restores it: the holder has a process of its own
    reports, seen = Mock(), []

    def sleep(seconds):
        seen.append(
            (
                seconds,
                (tmp_path / "lease").read_text(),
                Lease(tmp_path / "lease", 3.0).try_to_take(),
            )
        )

    monkeypatch.setattr(module.time, "sleep", sleep)
    module._hold(tmp_path / "lease", reports)
    ((seconds, content, taken),) = seen
    assert (seconds, "another-host" in content, taken) == (600, True, False)
    reports.put.assert_called_once_with("held")


@pytest.mark.parametrize(
    ("now", "skew", "passed"),
    [
        (1000.0, "0.0", True), (1014.5, "14.5", True), (1015.0, "15.0", False),
        (985.5, "14.5", True), (985.0, "15.0", False),
    ],
)  # fmt: skip
def test_a_clock_that_is_not_the_file_systems_fails(tmp_path, monkeypatch, now, skew, passed):
    def write(path, content, durable=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1000.0, 1000.0))

    Clock(monkeypatch, now)
    monkeypatch.setattr(module, "write_bytes", write)
    detail = f"{skew} s apart from this host's clock"
    assert list(_other_hosts(tmp_path / "hosts" / "here-1", 0.0)) == [
        Check("clock of the file system", passed, detail),
        Check("other hosts", True, "none: run the same command on another host at the same time"),
    ]
    assert list((tmp_path / "hosts").iterdir()) == []


def test_two_checks_with_one_host_name_and_process_id_have_files_of_their_own(
    tmp_path, monkeypatch
):
    """As in containers. With one file, neither would see the other."""
    files = []
    for name in ("_one_winner", "_replacing"):
        monkeypatch.setattr(module, name, lambda *given: None)
    monkeypatch.setattr(module, "_leases", lambda folder: iter([]))
    monkeypatch.setattr(module, "_other_hosts", lambda ours, seconds: iter([files.append(ours)]))
    for _ in range(2):
        list(check_filesystem(tmp_path))
    assert len(set(files)) == 2
    assert {file.parent for file in files} == {tmp_path / ".ablate-filesystem" / "hosts"}


def test_a_folder_that_refuses_files_is_told_by_the_error_of_the_file_system(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    (tmp_path / "hosts").mkdir()
    monkeypatch.setattr(module, "write_bytes", refuse)
    with pytest.raises(OSError, match="Read-only file system"):
        list(_other_hosts(tmp_path / "hosts" / "here-1", 0.0))


def test_a_host_whose_files_are_seen_too_late_or_before_their_time_fails(tmp_path, monkeypatch):
    delays = {"d": -15.0, "c": -14.5, "b": 15.0, "a": 14.5}
    monkeypatch.setattr(module, "_measure_delays", lambda ours, seconds: delays)
    _, *hosts = _other_hosts(tmp_path / "hosts" / "here-1", 0.0)
    detail = "its files are seen here {:.1f} s after the time of its clock"
    assert hosts == [
        Check(f"host {name}", name in "ac", detail.format(delays[name])) for name in "abcd"
    ]


def test_a_host_renews_its_file_with_growing_numbers(tmp_path, monkeypatch):
    clock, written = Clock(monkeypatch, now=50.0), []
    monkeypatch.setattr(
        module, "write_bytes", lambda path, content, durable: written.append((path, content))
    )
    assert _measure_delays(tmp_path / "here-1", 1.0) == {}
    assert clock.now == pytest.approx(51.0, abs=0.3)
    beats = [json.loads(content) for _, content in written]
    numbers = [beat["number"] for beat in beats]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 5
    assert [beat["time"] for beat in beats] == pytest.approx(
        [50.0 + 0.2 * i for i in range(len(beats))]
    )
    assert {(path.name, beat["host"]) for (path, _), beat in zip(written, beats, strict=True)} == {
        ("here-1", socket.gethostname())
    }


def test_another_host_is_seen_with_the_delay_of_its_files(tmp_path, monkeypatch):
    """The other host's clock is 100 s behind. Its first file may be old, and its last one is looked
    at once.
    """
    other, clock, numbers = tmp_path / "there-1", [5000.0], iter(range(3))
    for name in "abcdefghijklmnop":  # files that are half written do not hide the others
        (tmp_path / name).write_text("{")

    def beat(*_):
        number = next(numbers, None)
        if number is None:
            clock[0] += 1000.0
        else:
            other.write_text(
                json.dumps(
                    {"host": "there", "number": number, "time": clock[0] - (100, 900)[not number]}
                )
            )

    monkeypatch.setattr(module.time, "time", lambda: clock[0])
    monkeypatch.setattr(module.time, "sleep", beat)
    beat()
    assert _measure_delays(tmp_path / f"here-{os.getpid()}", 0.2) == {"there": 100.0}
    assert clock[0] > 6000.0
